"""Record of when a node stopped answering the head node and when it answered again, kept to recognise network cuts. Pure.

It is kept for every node, no matter who is in charge of it and what else is wrong with it: its silence may say nothing about its own death,
but it shows that its neighbours may be cut off with it (docs/decisions/0024). Nodes that Slurm or Holdfast switched off or rebooted are
silent by order, and a lost power supply is no cut: neither is recorded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import node_agents
from holdfast.decisions.death import agentless, evidence, late, ordered
from holdfast.model.actions.action import Reboot, Replace, StopStart, Terminate
from holdfast.model.book import Change, NodeRecord, World
from holdfast.model.policies.lookback import DEATHS_S

CUT_S = 30.0
"""Nodes that stopped answering within this of each other were cut off together: three of the longest heartbeats that the controller sets
(``controller/timing/pace.py``), since each last reported up to one heartbeat before, and one may be lost."""
_BEATS = 3.0
"""The same in heartbeats, for a node whose heartbeat is longer."""
_LONGEST_BEAT_S = 60.0
"""The longest interval that ``agent.toml`` may have (``config/agent.py``)."""
_MACHINE_STEPS = (Reboot, Replace, StopStart, Terminate)


def remember(world: World, silent: Collection[str]) -> Change:
    """Node records of what stopped answering or answers again. ``silent``: all silent nodes."""
    quiet, known = frozenset((*silent, *late.unreached(world))), world.book.nodes
    changed: dict[str, NodeRecord] = {}
    for name in sorted(quiet):
        before = known.get(name) or NodeRecord(name)
        after = _alive(world, _followed(world, before))
        if after != before:
            changed[name] = after
    for name, since, failing in agentless.stopped(world):
        before = known.get(name) or NodeRecord(name)
        if name not in quiet and not lasts(before):
            changed[name] = _stopped(before, since, max(failing, latest(since, None)))
    for name, record in known.items():
        if lasts(record) and name not in quiet:
            probe = world.head.get(name)
            if node_agents.agent_of(world, name) is not None:
                changed[name] = replace(record, unreached_until=_heard_again(world, record))
            elif probe is not None and probe.answered and not world.agents.get(name):
                changed[name] = replace(record, unreached_until=probe.at)
    return Change(nodes=tuple(_with_companions(world, changed, silent).values()))


def lasts(record: NodeRecord) -> bool:
    """Whether neither the node's agent nor its kernel answers."""
    return record.unreached_since is not None and record.unreached_until is None


def latest(since: datetime, by: datetime | None) -> datetime:
    """Latest time by which a node that last answered at ``since`` had stopped. ``by``: the recorded time."""
    return since + timedelta(seconds=CUT_S) if by is None else by


def stopped_by(world: World, name: str, since: datetime) -> datetime:
    """Latest time by which the silent node, whose last report was at ``since``, had stopped answering: it would have reported again by
    then.

    No Holdfast agent has an interval longer than ``agent.toml`` allows: it is capped, or one node would count as cut off together with
    every node that dies in the hours after."""
    interval_s = max((a.heartbeat_interval_s for a in world.agents.get(name, ())), default=0.0)
    return since + timedelta(seconds=max(CUT_S, _BEATS * min(interval_s, _LONGEST_BEAT_S)))


def asked(world: World, name: str) -> bool:
    """Whether the head node has tried to reach the silent node since its agent's last report."""
    probe, since = world.head.get(name), last_heard(world, name) or world.listening_since
    return probe is not None and (since is None or probe.at > since)


def last_heard(world: World, name: str) -> datetime | None:
    """Time of the last report of an agent of the node; None: none to this controller."""
    return max((a.last_heard for a in world.agents.get(name, ())), default=None)


def by_order(world: World, name: str) -> bool:
    """Whether the node is silent because Slurm or Holdfast switched it off or reboots it. A reboot that only waits for the node's jobs
    (REBOOT_REQUESTED) silences nothing, and one after which an agent reported is over."""
    probe = world.head.get(name)
    lived = [at for at in (last_heard(world, name), probe.answered_at if probe is not None else None) if at is not None]
    if ordered.by_slurm(world, name, max(lived, default=None)):
        return True
    agents = world.agents.get(name, ())
    return any(
        isinstance(i.action, _MACHINE_STEPS)
        and i.started_at is not None
        and world.now - i.started_at <= timedelta(seconds=DEATHS_S)
        and not any(a.first_heard > i.started_at or a.instance_id != i.action.instance_id for a in agents)
        for incident in world.book.open_on(name)
        for i in world.book.intents_of(incident.id)
    )


def lost_power(world: World, name: str) -> bool:
    """Whether the power of the silent node was seen off before anything showed its machine running: it was not cut off."""
    since = last_heard(world, name)
    return any(evidence.fell_with_its_power(world, i, since or i.fault_at) for i in world.book.open_on(name))


def off_at_once(world: World, silent: Collection[str]) -> Iterator[tuple[str, datetime]]:
    """Silent nodes that :func:`lost_power`, and the time of their last report."""
    for name in silent:
        since = last_heard(world, name)
        for incident in world.book.open_on(name):
            at = since or incident.fault_at
            if evidence.fell_with_its_power(world, incident, at):
                yield name, at
                break


def _followed(world: World, record: NodeRecord) -> NodeRecord:
    """The record of a silent node after the head node's newest connect."""
    probe = world.head.get(record.name)
    if probe is None or not asked(world, record.name):
        return record
    if probe.answered:
        return replace(record, unreached_until=probe.at) if lasts(record) else record
    if lost_power(world, record.name):
        return replace(record, unreached_since=None, unreached_until=None) if lasts(record) else record
    heard = last_heard(world, record.name)
    if lasts(record) and (heard is None or record.unreached_since is None or heard <= record.unreached_since):
        return record
    if not lasts(record) and by_order(world, record.name):
        return record
    answered = [at for at in (heard, probe.answered_at) if at is not None]
    since = max(answered, default=world.listening_since or world.now)
    by = stopped_by(world, record.name, since) if since == heard else latest(since, None)
    return _stopped(record, since, by, unseen=not answered)


def _stopped(record: NodeRecord, since: datetime, by: datetime, *, unseen: bool = False) -> NodeRecord:
    return replace(
        record,
        unreached_since=since,
        unreached_by=by,
        unreached_until=None,
        unreached_unseen=unseen,
        unreached_with="",
        unreached_near="",
    )


def _alive(world: World, record: NodeRecord) -> NodeRecord:
    """Record the newest sign of life of a node that the head node does not reach; nodes that answer it need no record."""
    view = world.view
    if view is None or not lasts(record) or record.name not in view.nodes:
        return record
    signs = (evidence.alive_at(world, view, i) for i in world.book.open_on(record.name))
    newest = max((at for at in signs if at is not None), default=None)
    if newest is None or (record.alive_at is not None and newest - record.alive_at < evidence.ALIVE_EVERY):
        return record
    return replace(record, alive_at=newest)


def _heard_again(world: World, record: NodeRecord) -> datetime:
    since = record.unreached_since or world.now
    return min((a.first_heard for a in world.agents.get(record.name, ()) if a.first_heard > since), default=world.now)


def _with_companions(world: World, changed: dict[str, NodeRecord], silent: Collection[str]) -> dict[str, NodeRecord]:
    """Mark nodes that do not answer with another node that stopped together with them and answers again by now, or lost power. The other
    node's own record is overwritten by its next silence."""
    known = {**world.book.nodes, **changed}
    off = tuple(off_at_once(world, silent))
    ended = [r for n, r in changed.items() if not lasts(r) and _began(world, n)]
    begun = {n for n, r in changed.items() if lasts(r) and r.unreached_since != _began(world, n)}
    over = [r for r in known.values() if r.unreached_until is not None] if begun else []
    for name, record in known.items():
        if lasts(record) and (ended or off or name in begun):
            marked = _beside_power(_marked(record, over if name in begun else ended), off)
            if name in begun:
                marked = _cut_before(world, marked)
            if marked != record:
                changed[name] = marked
    return _of_a_start(world, {**known, **changed}, begun, changed)


def _began(world: World, name: str) -> datetime | None:
    """Since when the node did not answer, as the store has it; None: it did."""
    before = world.book.nodes.get(name)
    return before.unreached_since if before is not None and lasts(before) else None


def _marked(record: NodeRecord, others: Iterable[NodeRecord]) -> NodeRecord:
    for other in others:
        if record.unreached_with:
            break
        if record.unreached_since is None or other.unreached_since is None or other.name == record.name:
            continue
        apart_s = abs((record.unreached_since - other.unreached_since).total_seconds())
        if may_be_one(record, other.unreached_since, other.unreached_by):
            record = replace(record, unreached_with=other.name)
        elif apart_s <= DEATHS_S and not record.unreached_near:
            record = replace(record, unreached_near=other.name)
    return record


def _beside_power(record: NodeRecord, off: Iterable[tuple[str, datetime]]) -> NodeRecord:
    """Mark the record with a node that lost power at the moment when this one stopped answering: a switch may have lost it too."""
    for name, at in off:
        if not record.unreached_near and name != record.name and may_be_one(record, at, None):
            record = replace(record, unreached_near=name)
    return record


def _cut_before(world: World, record: NodeRecord) -> NodeRecord:
    """Mark the record with a node that was cut off together with this one in its previous cut, minutes ago: the same switch, once more."""
    before, since = world.book.nodes.get(record.name), record.unreached_since
    if before is None or before.unreached_until is None or record.unreached_with or since is None:
        return record
    if since - before.unreached_until > timedelta(seconds=DEATHS_S):
        return record
    others = (r for r in world.book.nodes.values() if r.unreached_since is not None)
    return replace(record, unreached_with=before.unreached_with or _marked(before, others).unreached_with)


def may_be_one(record: NodeRecord, since: datetime, by: datetime | None) -> bool:
    """Whether the node and one that last answered ``since``, and not from ``by`` on, may have stopped at the same moment."""
    mine = record.unreached_since
    return mine is not None and since <= latest(mine, record.unreached_by) and mine <= latest(since, by)


def _of_a_start(
    world: World, known: dict[str, NodeRecord], begun: Collection[str], changed: dict[str, NodeRecord]
) -> dict[str, NodeRecord]:
    """Nodes that fell silent while no controller listened: the time is not known, so each may have been cut off with any other node that
    did not answer when the previous controller last ran, or that stopped answering after that. Nodes that Slurm no longer has are left
    out."""
    start = world.listening_since
    unknown = [n for n in begun if last_heard(world, n) is None and known[n].unreached_since == start]
    if not unknown or start is None:
        return changed
    earliest = world.led_until - timedelta(seconds=2 * CUT_S) if world.led_until is not None else None
    for name, record in known.items():
        if not lasts(record) or name in unknown or record.unreached_since is None:
            continue
        if world.view is not None and name not in world.view.nodes:
            continue
        if earliest is None or earliest <= record.unreached_since:
            changed[name] = replace(record, unreached_with=record.unreached_with or unknown[0])
            changed.update({n: replace(known[n], unreached_with=name) for n in unknown})
    return changed
