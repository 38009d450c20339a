"""Tables for people, JSON for programs. Rich is imported only when something is shown."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import Usage

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 160
"""Columns where standard output is not a terminal: wide enough that nothing is cut."""
NARROW = 100
"""On a terminal with fewer columns a view leaves out what another column says as well."""


def console() -> Console:
    from rich.console import Console  # noqa: PLC0415

    return Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, soft_wrap=False)


def narrow() -> bool:
    return console().width < NARROW


def width() -> int:
    return console().width


def lines(shown: Iterable[str]) -> None:
    """Lines that fit already; a heading (capitals from the margin on) is bold, a command that answers is green."""
    from rich.text import Text  # noqa: PLC0415

    view = console()
    for text in shown:
        style = "bold" if text.isupper() else "green" if text.lstrip().startswith("→") else ""
        view.print(Text(printable(text), style=style), soft_wrap=True)


_RARE = re.compile(r"[^ -~]")


def printable(text: str, instead: str = "?") -> str:
    """One line without what would move the cursor, change the terminal, or reverse the order of a text: agents, users and what answers in
    the controller's place choose texts."""
    return _RARE.sub(lambda c: c[0] if c[0].isprintable() else instead, text)


def json_text(value: Any) -> str:
    """The same for programs: such a character is escaped, so that nothing of it is lost."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _RARE.sub(lambda c: c[0] if c[0].isprintable() or c[0] == "\n" else json.dumps(c[0])[1:-1], text)


def as_json(value: Any) -> None:
    sys.stdout.write(json_text(value) + "\n")


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet. Raises Usage where it is, also as another user's link to a place where nothing is."""
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise Usage(f"{path} exists already: name another file with --output") from None


def line(text: str) -> None:
    """One line, or several."""
    console().print(_printable_lines(text), markup=False, emoji=False)


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A table, or the sentence ``empty`` when there are no rows."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = [
        [Text("" if cell is None else _printable_lines(str(cell)), style=_style(cell)) for cell in row] for row in rows
    ]
    if not shown:
        line(empty)
        return
    view = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        view.add_column(column, overflow="fold", no_wrap=column in _WHOLE)
    for row in shown:
        view.add_row(*row)
    console().print(view)


_IDS = ("ID", "NODE", "INCIDENT", "HASH", "SINCE FAULT", "AT (UTC)", "FAULT (UTC)", "FAULT")
_WORDS = ("STATE", "SEVERITY", "AGENT", "PHASE", "RECOVERY", "SLURM")
_WHOLE = frozenset((*_IDS, *_WORDS))
"""Columns that are not broken over lines as long as there is room: short words, and what people copy."""
_STYLES = {
    "fatal": "bold red",
    "silent": "red",
    "reporting": "green",
    "failed": "red",
    "awaiting_human": "bold red",
    "closed": "dim",
    "resumed": "green",
    "error": "bold red",
    "warning": "yellow",
    "degraded": "yellow",
}


def _style(cell: object) -> str:
    return _STYLES.get(str(cell), "")


def agent_word(status: str) -> str:
    """The status of an agent, for people; the API calls one that reports `heard`."""
    return "reporting" if status == "heard" else status  # word: as the API says it


def counted(number: int, word: str) -> str:
    """``1 incident``, ``2 incidents``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def moment(at: datetime | None) -> str:
    """``2026-01-31 12:00:00.123`` UTC; None: nothing."""
    if at is None:
        return ""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def span(value: float | datetime, since: datetime | None = None) -> str:
    """How long, coarsely: ``41 s``, ``6 min``, ``3 h 20 min``, ``2 d 4 h``; between two times where ``since`` is one."""
    took_s = value if not isinstance(value, datetime) else (value - (since or value)).total_seconds()
    left = int(max(took_s, 0.0))
    if left < 60:
        return f"{left} s"
    if left < 3600:
        return f"{left // 60} min"
    if left < 86_400:
        return f"{left // 3600} h {left % 3600 // 60:02d} min"
    return f"{left // 86_400} d {left % 86_400 // 3600} h"


def seconds(value: float | None) -> str:
    """A duration with the digits that matter."""
    if value is None:
        return "-"
    if value < 60:
        return f"{value:.2f} s"
    minutes, rest = divmod(value, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02.0f} s"
