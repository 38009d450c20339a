"""How good the verdict 'lemon' (a repeat offender) is on a trace: precision, recall, faults avoided and their price. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.incidents import node_history
from holdfast.model.background import Outage
from holdfast.model.policies.policy import HistoryPolicy, RepairPolicy
from holdfast.replay.trace import FailureSpan, Trace


@dataclass(frozen=True, slots=True)
class OffenderScore:
    """All shares are 0 … 1; None: nothing to divide by."""

    verdicts: int
    """Times as a lemon that ended, by time or by a fault, within the trace."""
    right: int
    """Of these, those in which the node failed again."""
    repeats: int
    """Faults of a node within the time of a lemon after its return from another."""
    caught: int
    """Of these, those that came while it was a lemon."""
    faults: int
    lemon_node_days: float
    """In service, as a lemon."""
    node_days: float
    chance: float
    """Share of the spans of that length in which any node fails: what a verdict by lot would get right."""

    @property
    def precision(self) -> float | None:
        return self.right / self.verdicts if self.verdicts else None

    @property
    def recall(self) -> float | None:
        return self.caught / self.repeats if self.repeats else None

    @property
    def avoided(self) -> float | None:
        """Share of all faults that come on a lemon."""
        return self.caught / self.faults if self.faults else None

    @property
    def price(self) -> float:
        """Share of all node-days for which a lemon was in service."""
        return self.lemon_node_days / self.node_days


@dataclass(frozen=True, slots=True)
class LemonTime:
    """One time as a lemon, from the node's return on."""

    start: datetime
    end: datetime


def score(trace: Trace, nodes: int, history: HistoryPolicy, repair: RepairPolicy) -> OffenderScore:
    """Each node's faults one after another, as the daemon would have seen them."""
    lasts = timedelta(seconds=history.lemon_s)
    verdicts = right = repeats = caught = 0
    lemon_days = 0.0
    by_node: dict[str, list[FailureSpan]] = {}
    for failure in trace.failures:
        by_node.setdefault(failure.node, []).append(failure)
    for mine in by_node.values():
        for number, failure in enumerate(mine):
            later = mine[number + 1] if number + 1 < len(mine) else None
            if later is not None and failure.end is not None and later.start - failure.end <= lasts:
                repeats += 1
            time = _as_lemon(mine[: number + 1], history, repair)
            if time is None:
                continue
            again = later is not None and later.start < time.end
            caught += again
            if again or time.end <= trace.ends:
                verdicts += 1
                right += again
            until = min(time.end, later.start if later is not None else trace.ends, trace.ends)
            lemon_days += max((until - time.start).total_seconds(), 0.0) / 86400
    days = nodes * trace.hours / 24
    return OffenderScore(
        verdicts, right, repeats, caught, len(trace.failures), lemon_days, days, _chance(trace, by_node, nodes, lasts)
    )


def _as_lemon(faults: Sequence[FailureSpan], history: HistoryPolicy, repair: RepairPolicy) -> LemonTime | None:
    """Verdict at the node's return from the last of these faults; None: it is no lemon then, or it never returned."""
    last = faults[-1]
    if last.end is None:
        return None
    known = [Outage(f.node, str(n), "", f.cause, f.start, f.end, over=True) for n, f in enumerate(faults)]
    lemon = node_history.lemons(known, {}, {}, history, repair.fresh_s, last.end).get(last.node)
    held = lemon.until if lemon is not None else None
    return LemonTime(last.end, held) if held is not None and held > last.end else None


def _chance(trace: Trace, by_node: dict[str, list[FailureSpan]], nodes: int, lasts: timedelta) -> float:
    """Share of the time, over all nodes, that has a fault of that node within ``lasts`` after it."""
    room_s = (trace.ends - trace.begins - lasts).total_seconds()
    if room_s <= 0:
        return 0.0
    covered_s = 0.0
    for mine in by_node.values():
        reached = trace.begins
        for failure in mine:
            start, end = max(failure.start - lasts, reached), min(failure.start, trace.ends - lasts)
            covered_s += max((end - start).total_seconds(), 0.0)
            reached = max(reached, end)
    return covered_s / (nodes * room_s)
