"""Spans of time in which nodes were silent, or did not answer at all. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.common import node_drains
from holdfast.decisions.death import unreached
from holdfast.decisions.nodes import hands_off
from holdfast.model.book import NodeRecord, World
from holdfast.model.incidents.incident import Incident, IncidentKind
from holdfast.model.policies.lookback import DEATHS_S


@dataclass(frozen=True, slots=True)
class Span:
    """One silence of a node, or one time in which it did not answer."""

    node: str
    since: datetime
    """When its agent last reported before it, or its kernel last answered."""
    until: datetime | None
    """When it ended; None: it has not."""
    by: datetime | None = None
    """Latest time by which it had started; None: :data:`unreached.CUT_S` after ``since``."""
    cut_with: str = ""
    """A node that was cut off together with it and answers again; empty: none is known."""
    near: str = ""
    """The same of a node that stopped answering within ten minutes of it, or lost its power in the same moment."""
    unseen: bool = False
    """It began while no controller listened."""

    @property
    def begun_by(self) -> datetime:
        """Latest time by which it had started."""
        return unreached.latest(self.since, self.by)


def silences(world: World, silent: Collection[str]) -> tuple[Span, ...]:
    """Silences of agents: ongoing ones, of nodes not taken over by an operator or Slurm, and finished ones as far back as the state
    snapshot goes. ``silent``: all silent nodes."""
    return (*_lasting(world, silent), *_over(world, frozenset(silent)))


def cuts(world: World, silent: Collection[str]) -> tuple[Span, ...]:
    """When nodes did not answer the head node, which may be a cut of the network: the newest time of each node, no matter who is in charge
    of it. One that the head node has not tried yet counts."""
    known = world.book.nodes
    found = [span for record in known.values() if (span := _recorded(record)) is not None]
    away = {span.node for span in found if span.until is None}
    return (*(s for s in found), *(s for s in _untried(world, silent) if s.node not in away))


def without_power(world: World, silent: Collection[str]) -> tuple[Span, ...]:
    """Silent nodes whose power was seen off at once: no cut, but a switch may have lost its power with them."""
    return tuple(Span(name, at, None) for name, at in unreached.off_at_once(world, silent))


def _recorded(record: NodeRecord) -> Span | None:
    if record.unreached_since is None:
        return None
    return Span(
        record.name,
        record.unreached_since,
        record.unreached_until,
        record.unreached_by,
        record.unreached_with,
        record.unreached_near,
        record.unreached_unseen,
    )


def recent(world: World, found: Collection[Span]) -> list[Span]:
    """Those that last, and the newest one of each node that reports again since less than ten minutes."""
    lasting = [s for s in found if s.until is None]
    away = {s.node for s in lasting}
    over: dict[str, Span] = {}
    for span in found:
        fresh = span.until is not None and world.now - span.until <= timedelta(seconds=DEATHS_S)
        known = over.get(span.node)
        if fresh and span.node not in away and (known is None or known.since < span.since):
            over[span.node] = span
    return [*lasting, *over.values()]


def _lasting(world: World, silent: Collection[str]) -> Iterator[Span]:
    """Silences of nodes that count as deaths: neither asleep nor taken out of service by another user."""
    view = world.view
    if view is None:
        return
    mine: dict[str, list[Incident]] = defaultdict(list)
    for incident in world.book.open_incidents() if silent else ():
        mine[incident.node].append(incident)
    for name in silent:
        shown = view.nodes.get(name)
        if (
            shown is None
            or node_drains.drained_by_others(world, shown)
            or hands_off.explains_silence(world, name) is not None
        ):
            continue
        faults = (i.fault_at for i in mine[name] if i.dead or i.kind is IncidentKind.SILENCE)
        heard = unreached.last_heard(world, name)
        yield Span(name, heard or max(faults, default=None) or world.listening_since or world.now, None)


def _over(world: World, silent: Collection[str]) -> Iterator[Span]:
    for incident in world.book.incidents.values():
        if incident.kind is not IncidentKind.SILENCE or (incident.open and incident.node in silent):
            continue
        until = _heard_again(world, incident)
        if until is not None:
            yield Span(incident.node, incident.fault_at, until)


def _heard_again(world: World, incident: Incident) -> datetime | None:
    """End of the incident's silence: since then an agent of the node has reported without a gap. None: it lasts."""
    heard = (a.first_heard for a in world.agents.get(incident.node, ()) if a.first_heard > incident.fault_at)
    ends = [at for at in (*heard, incident.closed_at) if at is not None]
    return min(ends, default=None)


def _untried(world: World, silent: Collection[str]) -> Iterator[Span]:
    """Nodes that fell silent, and that the head node has not tried to reach since."""
    for name in silent:
        heard = unreached.last_heard(world, name)
        record = world.book.nodes.get(name)
        known = record is not None and unreached.lasts(record)
        if heard is None or known or unreached.asked(world, name):
            continue
        if not (unreached.by_order(world, name) or unreached.lost_power(world, name)):
            yield Span(name, heard, None, unreached.stopped_by(world, name, heard))
