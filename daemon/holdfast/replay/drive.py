"""One replay: the real rules for brakes, lemons and spares over each failure of a trace. Pure.

One job holds all nodes but the spares. A failure of one of its nodes stops it for the downtime of a recovery; with no spare it waits in
addition until a node comes back. The trace says when a node is back; where a brake held its drain, that much later. Brakes ask for an
operator, who releases them after a fixed time here."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

from holdfast.decisions.brakes.tripping import trip
from holdfast.decisions.spares import choose, pool
from holdfast.model.policies.policy import Policy
from holdfast.planning.run_cost import Downtime
from holdfast.replay.replay_site import Fleet, ReplaySite
from holdfast.replay.trace import FailureSpan, Trace

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """What holds for every number of spares."""

    nodes: int
    downtime: Downtime
    policy: Policy = field(default_factory=Policy)
    release_after: timedelta = timedelta(minutes=30)
    """How long an operator takes to release a brake."""
    gpus: int = 8


@dataclass(frozen=True, slots=True)
class TrippedBrake:
    at: datetime
    name: str
    reason: str
    held: int
    """Drains that waited for its release."""


@dataclass(slots=True)
class Replayed:
    """What would have happened with one number of spares."""

    spares: int
    job_failures: int = 0
    """Failures of a node of the job."""
    taken: int = 0
    """Of these, those for which a spare was there."""
    lemons_taken: int = 0
    """Spares that were a lemon: there was no other one."""
    waits: int = 0
    """Failures for which the job had to wait until a node came back."""
    waited_h: float = 0.0
    down_h: float = 0.0
    """Time without training, waits included."""
    hours: float = 0.0
    brakes: list[TrippedBrake] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    """Spares by the rule p99, once a day."""

    @property
    def down_share(self) -> float:
        return self.down_h / self.hours if self.hours else 0.0


def replay(trace: Trace, rules: ReplayRules, spares: int) -> Replayed:
    """The whole trace. ``spares`` below the number of nodes, which is at least that of the trace's nodes."""
    names = _names(trace, rules.nodes)
    site = ReplaySite(Fleet(names, rules.policy, trace.begins, rules.gpus), rules.nodes - spares)
    return _Replay(trace, rules, site, Replayed(spares, hours=trace.hours)).run()


def _names(trace: Trace, nodes: int) -> tuple[str, ...]:
    """The trace's nodes, and others that never failed, spread evenly over the alphabet so that spares are of both kinds."""
    failed = sorted(trace.nodes)
    healthy = [f"healthy-{n}" for n in range(max(nodes - len(failed), 0))]
    placed = [((i + 0.5) / len(group), name) for group in (failed, healthy) for i, name in enumerate(group)]
    return tuple(name for _, name in sorted(placed))


class _Replay:
    """One pass over the events in the order of time."""

    def __init__(self, trace: Trace, rules: ReplayRules, site: ReplaySite, result: Replayed) -> None:
        self.trace, self.rules, self.site, self.result = trace, rules, site, result
        self.returns: list[tuple[datetime, str]] = []
        self.up_at = trace.begins
        """When the job trains again, where it is down; unknown while it waits for nodes."""
        self.down_from: datetime | None = None
        self.waits_from: datetime | None = None
        self.release_at: datetime | None = None
        self.lasting: dict[str, FailureSpan] = {}
        """By incident: failures whose drain is not done yet."""
        self.asked_at = trace.begins

    def run(self) -> Replayed:
        number = 0
        for at, group in groupby(self.trace.failures, key=lambda f: f.start):
            self._until(at)
            together = [f for f in group if f.node not in self.site.out]
            hit = [f.node for f in together if f.node in self.site.job_nodes]
            for failure in together:
                self.lasting[f"r{number}"] = failure
                self.site.open(number, failure.node, failure.cause, at)
                number += 1
            self._turn(at)
            self._recover(hit, at)
        self._until(self.trace.ends)
        if self.down_from is not None:
            self._train_again(self.trace.ends)
        return self.result

    def _until(self, at: datetime) -> None:
        """Everything before a time: returns, an operator's release, and the daily question for the number of spares."""
        for now, what in self._due(at):
            if what is None:
                self._released(now)
            elif what == "":
                self.result.wanted.append(self._by_rule(now))
            else:
                self._back(what, now)

    def _due(self, at: datetime) -> Iterator[tuple[datetime, str | None]]:
        """(when, node that is back); None: a brake is released; empty: a day is over."""
        while True:
            due: list[tuple[datetime, str | None]] = [(self.asked_at + _DAY, ""), *self.returns[:1]]
            if self.release_at is not None:
                due.append((self.release_at, None))
            now, what = min(due, key=lambda e: e[0])
            if now > at:
                return
            if what is None:
                self.release_at = None
            elif what == "":
                self.asked_at = now
            else:
                heapq.heappop(self.returns)
            yield now, what

    def _by_rule(self, now: datetime) -> int:
        return pool.by_rule(self.site.world(now), self.site.view(now)).number or 0

    def _turn(self, at: datetime) -> None:
        """Drain what is proposed, unless a brake holds or trips now."""
        self.site.forget(at)
        proposals = self.site.undrained()
        if self.release_at is not None or not proposals:
            return
        tripped = trip(self.site.world(at), proposals)
        if not tripped:
            self._drain(at)
            return
        self.site.brakes |= {brake.name: brake for brake in tripped}
        self.release_at = at + self.rules.release_after

    def _drain(self, at: datetime) -> None:
        """Each node is repaired from its drain on, for as long as in the trace."""
        proposals = self.site.undrained()
        self.site.drain(proposals, at)
        for proposal in proposals:
            failure = self.lasting.pop(proposal.incident_id)
            if failure.end is not None:
                heapq.heappush(self.returns, (at + (failure.end - failure.start), failure.node))

    def _released(self, at: datetime) -> None:
        """An operator releases each brake that holds."""
        held = len(self.site.undrained())
        for name, brake in self.site.brakes.items():
            if brake.released_at is None:
                self.result.brakes.append(TrippedBrake(brake.tripped_at, name, brake.reason, held))
                self.site.brakes[name] = replace(brake, released_at=at)
        self._turn(at)

    def _back(self, node: str, at: datetime) -> None:
        self.site.back(node, at)
        if self.site.missing:
            self.site.job_nodes.add(node)
            if not self.site.missing:
                self._complete(at)

    def _recover(self, hit: list[str], at: datetime) -> None:
        """The job lost these nodes: it gets a spare for each, or waits."""
        if not hit:
            return
        self._train_again_before(at)
        self.down_from = self.down_from or at
        for bad in hit:
            self.result.job_failures += 1
            spare = self._choose(bad, at)
            if spare is None:
                self.result.waits += 1
                self.waits_from = self.waits_from or at
            else:
                self.site.job_nodes.add(spare)
                self.result.taken += 1
        if not self.site.missing:
            self.up_at = at + timedelta(hours=self.rules.downtime.hours)

    def _choose(self, bad: str, at: datetime) -> str | None:
        world, view = self.site.world(at, self.site.pool), self.site.view(at)
        spare = choose.choose_spare(world, view, self.site.job(at), taken=frozenset(), replaced=bad)
        self.result.lemons_taken += spare is not None and world.background.lemon(spare, at)
        return spare

    def _complete(self, at: datetime) -> None:
        """The job has all its nodes again after a wait."""
        if self.waits_from is not None:
            self.result.waited_h += (at - self.waits_from).total_seconds() / 3600
        self.waits_from = None
        self.up_at = at + timedelta(hours=self.rules.downtime.hours)

    def _train_again_before(self, at: datetime) -> None:
        """Close a time without training that was over before now."""
        if self.down_from is not None and not self.waits_from and self.up_at <= at:
            self._train_again(self.up_at)

    def _train_again(self, at: datetime) -> None:
        if self.waits_from is not None:
            self.result.waited_h += (at - self.waits_from).total_seconds() / 3600
        end = at if self.waits_from is not None else min(self.up_at, at)
        if self.down_from is not None:
            self.result.down_h += (end - self.down_from).total_seconds() / 3600
        self.down_from = self.waits_from = None
