"""A screen that is drawn again and again: ``--watch`` on the verbs that read, and ``holdfast top``."""

from __future__ import annotations

import functools
import inspect
import io
import os
import select
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from typing import Annotated, Any, get_type_hints

import typer

from holdfast.cli.common.show import printable
from holdfast.model.errors import HoldfastError

EVERY_S = 2.0
WATCH = "--watch"
Watch = Annotated[
    float | None,
    typer.Option(
        WATCH,
        metavar="[SECONDS]",
        min=0.5,
        max=3600,
        help="Show it again every 2 seconds, or every SECONDS, until q or Ctrl-C; once where the output is no terminal.",
        show_default=False,
    ),
]
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The terminal's other screen, without a cursor; and back to what was there before."""
_HOME, _REST_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_QUITS = (b"q", b"Q", b"\x03", b"")


class Frame(io.StringIO):
    """What a verb prints, as it would print it on the terminal."""

    def isatty(self) -> bool:
        return True


def watched(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with ``--watch``."""
    hints = {**get_type_hints(verb, include_extras=True), "watch": Watch}
    known = inspect.signature(verb)
    parameters = [p.replace(annotation=hints[p.name]) for p in known.parameters.values()]
    added = inspect.Parameter("watch", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Watch)

    @functools.wraps(verb)
    def call(*given: Any, watch: float | None = None, **named: Any) -> None:
        if watch is None or not on_a_terminal():
            verb(*given, **named)
            return
        title = f"holdfast {' '.join(sys.argv[1:])}"
        redraw(lambda: printed(lambda: verb(*given, **named)), watch, f"every {watch:g} s: {title}")

    call.__signature__ = known.replace(parameters=[*parameters, added])  # type: ignore[attr-defined]
    call.__annotations__ = hints
    return call


def with_seconds(argv: Sequence[str]) -> list[str]:
    """``--watch`` alone, or before something that is no number, gets its two seconds."""
    given = list(argv)
    for index, word in enumerate(given):
        if word == "--":
            break
        after = given[index + 1] if index + 1 < len(given) else ""
        if word == WATCH and not after.replace(".", "", 1).isdigit():
            given[index] = f"{WATCH}={EVERY_S:g}"
    return given


def on_a_terminal() -> bool:
    return sys.stdout.isatty()


def printed(show: Callable[[], None]) -> str:
    """What it prints; an expected error is its last line, since the next round may be without."""
    frame = Frame()
    with redirect_stdout(frame):
        try:
            show()
        except HoldfastError as error:
            frame.write(f"holdfast: {printable(str(error))}\n")
        except typer.Exit:
            pass
    return frame.getvalue()


def redraw(frame: Callable[[], str], every_s: float, title: str) -> None:
    """Until q or Ctrl-C. The terminal is left as it was."""
    with _other_screen(), _keys() as key:
        while True:
            size = shutil.get_terminal_size()
            sys.stdout.write(
                drawn(frame(), f"{title}   {datetime.now().astimezone():%H:%M:%S %Z}", size.columns, size.lines)
            )
            sys.stdout.flush()
            if key(every_s) in _QUITS:
                return


def drawn(text: str, title: str, columns: int, rows: int) -> str:
    """One frame of ``rows`` lines; what does not fit is counted on the last one."""
    body = text.rstrip("\n").split("\n")
    room = max(rows - 1, 1)
    if len(body) > room:
        body = [*body[: room - 1], f"… {len(body) - room + 1} more lines: a larger terminal shows them"]
    lines = [title[:columns], *body]
    return _HOME + f"{_REST_OF_LINE}\r\n".join(lines) + _REST_OF_LINE + _BELOW


@contextmanager
def _other_screen() -> Iterator[None]:
    sys.stdout.write(_ENTER)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


@contextmanager
def _keys() -> Iterator[Callable[[float], bytes | None]]:
    """``key(seconds)``: the key that is pressed within that time; None: none is. Without a terminal to read from it only waits."""
    import termios  # noqa: PLC0415
    import tty  # noqa: PLC0415

    source = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    before = termios.tcgetattr(source) if source is not None else None

    def key(wait_s: float) -> bytes | None:
        ready, _, _ = select.select([source] if source is not None else [], [], [], wait_s)
        return os.read(source, 1) if ready and source is not None else None

    try:
        if source is not None:
            tty.setcbreak(source)
        yield key
    finally:
        if source is not None and before is not None:
            termios.tcsetattr(source, termios.TCSADRAIN, before)
