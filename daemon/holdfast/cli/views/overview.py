"""One screen: what Holdfast does now, whether it is well itself, what waits for an operator, what it did last night."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.cli.common.restraints import extension_line, mode_line
from holdfast.cli.common.show import counted, span
from holdfast.cli.common.when import both, clock
from holdfast.model.ids import abbreviated
from holdfast.model.incidents.fleet import fleet_text

if TYPE_CHECKING:
    from holdfast.api.answers.overview_shapes import DoingShape, NightLineShape, NightShape, OverviewShape, WaitingShape
    from holdfast.api.answers.status_shapes import PartShape

MOST_LINES = 40


@dataclass(frozen=True, slots=True)
class Room:
    """How many of each are shown, each on two or three lines; the others are counted."""

    parts: int
    doing: int
    waiting: int
    night: int


_ROOMS = (
    Room(11, 30, 30, 40),
    Room(11, 12, 12, 20),
    Room(8, 7, 8, 10),
    Room(4, 4, 5, 6),
    Room(3, 3, 4, 4),
    Room(2, 2, 3, 2),
    Room(1, 1, 2, 1),
)
"""The first with which everything fits is taken."""
OUTCOMES = {
    "healed": "healed",
    "by_operator": "put back by others",
    "needs_you": "needs you",
    "under_way": "under way",
    "held_back": "held back",
    "watched": "watched",
    "over": "over, nothing to heal",
}


def screen(got: OverviewShape, now: datetime, width: int, most: int = MOST_LINES) -> list[str]:
    """At most ``most`` lines of ``width`` columns, whatever the size of the cluster."""
    shown = (_lines(got, now, width, room) for room in _ROOMS)
    return next((lines for lines in shown if len(lines) <= most), _lines(got, now, width, _ROOMS[-1])[:most])


def _lines(got: OverviewShape, now: datetime, width: int, room: Room) -> list[str]:
    return [
        *_fold(got.sentence, "", width, 2),
        _cut(fleet_text(got.nodes), width),
        *_section("ITSELF", _health(got, width, room.parts)),
        *_section("NOW", _now(got, now, width, room.doing)),
        *_section("WAITS FOR YOU", _waiting(got.waiting, now, width, room.waiting)),
        *_section("LAST NIGHT", _night(got.night, now, width, room.night)),
    ]


def _section(title: str, lines: Iterable[str]) -> list[str]:
    shown = list(lines)
    return [title, *shown] if shown else []


def _said(text: str) -> str:
    """A text of others, in which nothing reads like the line of a command that answers (``→ holdfast resume``)."""
    return abbreviated(text).replace("→", "->")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _fold(text: str, indent: str, width: int, most: int) -> list[str]:
    """At most ``most`` lines; what is left out is marked."""
    return textwrap.wrap(
        _said(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent + ("  " if indent else ""),
        max_lines=most,
        placeholder=" …",
        break_on_hyphens=False,
    )


def _health(got: OverviewShape, width: int, most: int) -> Iterator[str]:
    good = [str(p.name) for p in got.parts if p.condition == "good"]
    failed = [str(p.name) for p in got.parts if p.condition == "failed"]
    others = [p for p in got.parts if p.condition not in ("good", "failed")]
    ready = "ready" if got.ready else "not ready"
    bad = f"FAILED: {', '.join(failed)} (below); " if failed else ""
    yield from _fold(f"release {got.release or '?'}, {ready}; {bad}good: {', '.join(good) or 'none'}", "  ", width, 2)
    yield from _fold(mode_line(got), "  ", width, 1)
    if not got.leader:
        yield from _fold(got.not_leading or f"another controller leads: {got.led_by or '?'}", "  ", width, 2)
    if got.frozen:
        yield from _fold(f"frozen: {got.frozen}", "  ", width, 2)
    for extension in got.extensions[:1]:
        yield from _fold(extension_line(extension), "  ", width, 1)
    for part in others[:most]:
        yield from _fold(_part(part), "  ", width, 2)
    if len(others) > most:
        yield f"  and {counted(len(others) - most, 'more part')}: holdfast status --parts"


def _part(part: PartShape) -> str:
    step = f"; {part.next_step}" if part.next_step else ""
    return f"{part.name} {part.condition}: {part.text}{step}"


def _now(got: OverviewShape, now: datetime, width: int, most: int) -> Iterator[str]:
    for doing in got.doing[:most]:
        yield from doing_lines(doing, now, width)
    more = len(got.doing) - most
    if more > 0:
        yield f"  and {counted(more, 'more incident')}: holdfast incidents --open"
    if got.watched:
        yield f"  {counted(got.watched, 'incident')} only watched: holdfast incidents --open"
    if not got.doing and not got.watched:
        yield "  nothing under way"


def doing_lines(doing: DoingShape, now: datetime, width: int) -> Iterator[str]:
    """Three lines at most: what, the step in flight with its reason, and when the next one is due."""
    since = f" for {span(now, doing.since)}" if doing.since is not None else ""
    yield _cut(f"  {doing.node}  {doing.what}{since}: {_said(doing.fault)}", width)
    step = f"{doing.step}, for {span(now, doing.step_since)}" if doing.step and doing.step_since else doing.step
    why = ": ".join(filter(None, (step, doing.reason)))
    jobs = f"jobs: {', '.join(doing.jobs)}; " if doing.jobs else ""
    due = f"by {clock(doing.due_at, now)} {doing.due}; " if doing.due_at is not None else ""
    if why:
        yield _cut(f"    {_said(why)}", width)
    yield _cut(f"    holdfast incident show {doing.incident_id}; {jobs}{due}".removesuffix("; "), width)


def _waiting(waiting: Sequence[WaitingShape], now: datetime, width: int, most: int) -> Iterator[str]:
    for each in waiting[:most]:
        since = f" ({span(now, each.since)})" if each.since is not None else ""
        named = f"{each.subject}: " if each.subject else ""
        yield from _fold(f"{named}{each.what}{since}", "  ", width, 2)
        yield _cut(f"    → {each.answer}", width)
    more = len(waiting) - most
    if more > 0:
        yield f"  and {more:,} more: holdfast incidents --open"


def _night(night: NightShape | None, now: datetime, width: int, most: int) -> Iterator[str]:
    if night is None:
        return
    yield from _fold(f"since {both(night.since)}: {totals(night)}", "  ", width, 2)
    for each in [*night.lines][-most:]:
        yield _cut(f"  {night_line(each, now)}", width)
    if len(night.lines) > most:
        yield f"  and {counted(len(night.lines) - most, 'earlier one')}: holdfast night"


def totals(night: NightShape) -> str:
    """``3 incidents, 2 healed, 1 needs you; 2 of 2 jobs recovered; 1 node replaced; 12.3 GPU-hours lost``."""
    if not night.incidents:
        return "no incident"
    count = f"{night.incidents:,}{' or more' if night.more else ''} incident{'' if night.incidents == 1 else 's'}"
    needs = f", {night.needs_you:,} need{'s' * (night.needs_you == 1)} you" if night.needs_you else ""
    parts = [f"{count}, {night.healed:,} healed{needs}"]
    if night.jobs:
        parts.append(f"{night.jobs_back:,} of {counted(night.jobs, 'job')} recovered")
    if night.nodes_replaced:
        parts.append(f"{counted(night.nodes_replaced, 'node')} replaced")
    if night.jobs:
        lost = "unknown" if night.lost_gpu_hours is None else f"{night.lost_gpu_hours:,.1f}"
        parts.append(f"{lost} GPU-hours lost")
    return "; ".join(parts)


def night_line(each: NightLineShape, now: datetime) -> str:
    """``Thu 02:13 n17 healed in 6 min, machine replaced, 1 of 1 job back in 41 s: gpu.xid 79 …``."""
    took = f" in {span(each.returned_s)}" if each.returned_s is not None else ""
    replaced = ", machine replaced" if each.replaced else ""
    back = f" in {span(each.running_s)}" if each.running_s is not None else ""
    jobs = f", {each.jobs_back} of {counted(each.jobs, 'job')} back{back}" if each.jobs else ""
    outcome = OUTCOMES.get(each.outcome, each.outcome)
    return f"{clock(each.at, now)} {each.node} {outcome}{took}{replaced}{jobs}: {_said(said_of(each))}"


def said_of(each: NightLineShape) -> str:
    """The fault; first why nothing is done about it, if so."""
    return f"{each.held}; {each.what}" if each.held else each.what


def utc_now() -> datetime:
    return datetime.now(UTC)
