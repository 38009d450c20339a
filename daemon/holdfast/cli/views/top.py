"""The overview, live."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.live import EVERY_S, on_a_terminal, printed, redraw
from holdfast.cli.common.options import SinceOption, Url
from holdfast.cli.common.show import lines, width
from holdfast.cli.common.when import given, last_evening
from holdfast.cli.views.overview import screen, utc_now
from holdfast.model.errors import Usage

if TYPE_CHECKING:
    from holdfast.api.answers.overview_shapes import NightShape

NIGHT_EVERY = 15
"""Rounds after which what happened is asked for again: it costs the store more than the rest, and changes slowly."""


def top(
    every: Annotated[
        float, typer.Option("--every", "-n", min=0.5, max=3600, metavar="SECONDS", help="How often it is drawn.")
    ] = EVERY_S,
    since: SinceOption = None,
    url: Url = None,
) -> None:
    """Live: what Holdfast does now and why, what waits for you, what happened since last evening. q or Ctrl-C ends it."""
    if not on_a_terminal():
        raise Usage("top needs a terminal; `holdfast status` prints the same once")
    start = given(since) or last_evening(datetime.now(UTC))
    redraw(Rounds(ApiClient(url), start), every, f"holdfast top, every {every:g} s, q ends it")


@dataclass
class Rounds:
    """One frame for each call. A night that was asked for once is shown until it is asked for again."""

    client: ApiClient
    since: datetime
    count: int = 0
    night: NightShape | None = None

    def __call__(self) -> str:
        asks = self.count % NIGHT_EVERY == 0
        self.count += 1
        return printed(lambda: self._show(self.since.isoformat() if asks else None))

    def _show(self, since: str | None) -> None:
        from holdfast.api.answers.overview_shapes import OverviewShape  # noqa: PLC0415

        got = read(OverviewShape, self.client.get("/v1/overview", since=since))
        self.night = got.night or self.night
        shown = got.model_copy(update={"night": self.night})
        lines(screen(shown, shown.at or utc_now(), width(), shutil.get_terminal_size().lines - 1))
