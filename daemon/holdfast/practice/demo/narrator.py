"""Common parts of the demos: lines with the elapsed time, checked claims, and a cluster that is removed afterwards."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.logs import set_up
from holdfast.model.errors import HoldfastError
from holdfast.practice.cluster.site import PracticeSite

_WIDTH = 120
"""Columns where standard output is no terminal."""

Fact = tuple[str, bool]
"""A claim, and whether it was verified."""


class Narrator:
    """Printer of the demo's output."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line of the scenario; text that does not fit is wrapped below."""
        row = Table.grid(padding=(0, 2))
        row.add_column(style="dim", no_wrap=True)
        row.add_column()
        row.add_row(f"{time.monotonic() - self._began:6.2f} s", text)
        self.console.print(row, highlight=False)

    def check_off(self, facts: Iterable[Fact]) -> bool:
        """Print the claims. Returns whether all of them are true."""
        told = list(facts)
        checked = Table.grid(padding=(0, 1))
        for text, true in told:
            checked.add_row("  [green]✓[/]" if true else "  [bold red]✗[/]", text)
        self.console.print(checked, highlight=False)
        return all(true for _, true in told)


def perform(
    make_site: Callable[[Path], PracticeSite],
    play: Callable[[PracticeSite, Narrator], bool],
    *,
    good: str,
    keep: Callable[[PracticeSite], str] | None,
) -> int:
    """Run a scenario on a site in its own folder. Returns the exit status. ``good``: the last line if all claims were true. ``keep``:
    leave the site running, and print how to use it; otherwise remove everything except the logs of a failed run."""
    set_up("text", "error")
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-", dir="/tmp"))
    folder.chmod(0o755)
    site = make_site(folder)
    began = time.monotonic()
    true = False
    try:
        true = play(site, Narrator(console))
    except HoldfastError as error:
        console.print(f"[bold red]{escape(str(error))}[/]")
    except KeyboardInterrupt:
        console.print("stopped; taking the cluster down")
    finally:
        if keep is None:
            site.down()
            if true:
                shutil.rmtree(folder, ignore_errors=True)
    verdict = f"[bold green]{good}[/]" if true else f"[bold red]Not all of it is true[/]; see {folder}/log"
    console.print(f"{verdict} {time.monotonic() - began:.0f} s in all.", highlight=False)
    if keep is not None:
        sys.stdout.write(keep(site))
    return 0 if true else 1
