"""Drains and DOWNs that are not Holdfast's, as events: who, why, since when, and when the node was back. Pure.

Only changes are recorded, compared with the node's record in the store: a restart of the controller records nothing twice. The very first
reading is one event. So that no storm fills the record, changes of many nodes at once are one event, and a node that flaps is recorded
:data:`MOST_AN_HOUR` times within an hour; what it is then is recorded once the hour is over. Nothing is decided from these events, except
that a site's rule may count a drain for the node's score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.decisions.common.slurm_view import fresh_view
from holdfast.decisions.nodes import slurm_drains
from holdfast.model.book import Change, NodeRecord, SlurmShown, World
from holdfast.model.event import Event, EventKind
from holdfast.model.ids import incident_of_reason, without_slurms_words
from holdfast.model.operators.node_orders import NodeOrder, order_of
from holdfast.model.policies.drain_rules import rule_of
from holdfast.model.policies.lookback import FLAP_S
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast.model.slurm.hostlist import compress

MOST_AN_HOUR = 20
"""Changes of one node that are recorded within an hour: ten drains and their ends, far more than people set."""
MOST_ALIKE = 32
"""More nodes than this that change in the same way in one turn are one event: a switch, a rack, scontrol on a list."""
MOST_SINGLE = 256
"""Events of single nodes in one turn; further changes are one event for each kind."""
MOST_A_TURN = 1024
"""Changed nodes in one turn; the others follow in the next ones, so that no turn is delayed by more than a part of a second."""
MOST_GROUPS = 50
"""Different reasons that an event of many nodes lists."""
SLURM, OTHERS = "slurm", "others"
_SLURM_USERS = frozenset({"slurm", "root"})
_WORDS = {
    EventKind.NODE_DRAINED_BY_OTHERS: "drained",
    EventKind.NODE_DOWN: "DOWN",
    EventKind.NODE_RESUMED_BY_OTHERS: "back in service",
}


@dataclass(frozen=True, slots=True)
class _Changed:
    """One node that differs from its record."""

    kind: EventKind
    node: str
    before: SlurmShown | None
    after: SlurmShown
    order: NodeOrder | None = None


def follow_foreign_drains(world: World) -> Change:
    """Events and records of nodes that others took out of service, or put back."""
    view = fresh_view(world)
    if view is None:
        return Change()
    if world.book.nodes_since is None:
        return _first_reading(world, view)
    concerned = [n for n in view.nodes.values() if n.out_of_service or _was_out(world, n.name)]  # few, of thousands
    found = [c for node in concerned if (c := _changed(world, node)) is not None]
    silent = [r for node in concerned if (r := _ours_now(world, node)) is not None]
    if not found and not silent:
        return Change()
    now = sorted(found, key=lambda c: c.node)[:MOST_A_TURN]
    records = tuple(_record(world, c.node, _counted(world, c.before, c.after)) for c in now)
    return Change(nodes=(*records, *silent), events=tuple(_events(world, now)))


def _first_reading(world: World, view: ClusterView) -> Change:
    out = [(node.name, _shown(world, node, None)) for _, node in sorted(view.nodes.items()) if _foreign(node)]
    text = f"first reading of Slurm: {len(out)} of {len(view.nodes)} nodes are out of service, not by Holdfast"
    names = [name for name, _ in out]
    event = Event(
        world.now,
        EventKind.NODES_FIRST_READ,
        text=text + (f": {_short(compress(names))}" if names else ""),
        detail={"nodes": compress(names), "count": len(names), "groups": _groups(out)},
    )
    records = tuple(_record(world, name, shown) for name, shown in out)
    return Change(nodes=records, events=(event,), nodes_since=world.now)


def _foreign(node: Node) -> bool:
    """Whether it is out of service and its reason does not read like one of Holdfast's: those have other events."""
    return node.out_of_service and incident_of_reason(node.reason) is None


def _before(world: World, name: str) -> SlurmShown | None:
    record = world.book.nodes.get(name)
    return record.shown if record is not None else None


def _ours_now(world: World, node: Node) -> NodeRecord | None:
    """The record of a node whose foreign drain Holdfast has taken over: noted, no event."""
    before = _before(world, node.name)
    if before is None or not before.out or not node.out_of_service or _foreign(node):
        return None
    return _record(world, node.name, replace(before, out=False))


def _was_out(world: World, name: str) -> bool:
    before = _before(world, name)
    return before is not None and before.out


def _changed(world: World, node: Node) -> _Changed | None:
    before = _before(world, node.name)
    if _flaps(world, before):
        return None
    was = before if before is not None and before.out else None
    if not node.out_of_service:
        return None if was is None or _unsettled(node) else _back(node, was)
    if not _foreign(node) or (was is not None and _same(was, node)):
        return None
    since = world.now if was is None else was.since or was.time
    order = order_of(world.book.node_orders, node.name, node.reason)
    return _Changed(_kind(node), node.name, before, _shown(world, node, since), order)


def _unsettled(node: Node) -> bool:
    """slurmctld has just started and the node has not registered, or power saving has it off: neither shows that it is in service."""
    return node.unknown or node.asleep


def _back(node: Node, before: SlurmShown) -> _Changed:
    return _Changed(EventKind.NODE_RESUMED_BY_OTHERS, node.name, before, replace(before, out=False))


def _kind(node: Node) -> EventKind:
    return EventKind.NODE_DRAINED_BY_OTHERS if node.draining else EventKind.NODE_DOWN


def _shown(world: World, node: Node, since: datetime | None) -> SlurmShown:
    rule = rule_of(world.policy.history.drain_rules, node.reason, node.reason_user)
    return SlurmShown(
        out=True,
        kind=_kind(node).value,
        by=SLURM if _by_slurm(world, node) else OTHERS,
        reason=node.reason,
        user=node.reason_user,
        time=node.reason_time,
        since=since,
        category=rule.category if rule is not None else "",
        scores=rule is not None and rule.score,
    )


def _by_slurm(world: World, node: Node) -> bool:
    users = _SLURM_USERS | ({world.background.slurm_user} if world.background.slurm_user else set())
    return node.down_by_slurm or (slurm_drains.is_slurms(node.reason) and node.reason_user in users)


def _same(before: SlurmShown, node: Node) -> bool:
    """Whether it is the same drain: Slurm may have added its own words, its own name and a new time to it."""
    if before.kind != _kind(node).value:
        return False
    if (before.reason, before.user) == (node.reason, node.reason_user):
        return True
    plain = without_slurms_words(before.reason), without_slurms_words(node.reason)
    return plain[0] == plain[1] and plain != (before.reason, node.reason)


def _flaps(world: World, before: SlurmShown | None) -> bool:
    return before is not None and before.changes >= MOST_AN_HOUR and _in_hour(world, before)


def _in_hour(world: World, before: SlurmShown) -> bool:
    begun = before.changes_since
    return begun is not None and timedelta(0) <= world.now - begun < timedelta(seconds=FLAP_S)


def _counted(world: World, before: SlurmShown | None, after: SlurmShown) -> SlurmShown:
    if before is None or not _in_hour(world, before):
        return replace(after, changes=1, changes_since=world.now)
    return replace(after, changes=before.changes + 1, changes_since=before.changes_since)


def _record(world: World, name: str, shown: SlurmShown) -> NodeRecord:
    return replace(world.book.nodes.get(name) or NodeRecord(name), shown=shown)


def _events(world: World, found: Sequence[_Changed]) -> Iterable[Event]:
    """Single ones as long as they are few; alike ones, and what is too many, together."""
    alike: dict[tuple[str, str, str], list[_Changed]] = {}
    for each in found:
        alike.setdefault((each.kind.value, each.after.reason, each.after.user), []).append(each)
    single = [c for many in alike.values() if len(many) <= MOST_ALIKE for c in many]
    yield from (_event(world, c) for c in single[:MOST_SINGLE])
    yield from (_of_many(world, many) for many in alike.values() if len(many) > MOST_ALIKE)
    rest = single[MOST_SINGLE:]
    for kind in dict.fromkeys(c.kind for c in rest):
        yield _of_many(world, [c for c in rest if c.kind is kind])


def _event(world: World, changed: _Changed) -> Event:
    return Event(
        world.now, changed.kind, None, changed.node, text=_text(world, changed), detail=_detail(world, changed)
    )


def _text(world: World, changed: _Changed) -> str:
    shown = changed.after
    if changed.kind is EventKind.NODE_RESUMED_BY_OTHERS:
        return f"{_WORDS[changed.kind]}, put there by an operator, another tool or Slurm; it was {said(shown)}"
    category = f"{shown.category}: " if shown.category else ""
    by = f" (ordered by {changed.order.by} through Holdfast)" if changed.order is not None else ""
    flapped = changed.before is not None and changed.before.changes >= MOST_AN_HOUR
    note = (
        f"; more than {MOST_AN_HOUR} changes within the hour before, of which the last are not recorded"
        if flapped
        else ""
    )
    return f"{category}{said(shown)}{by}{note}"


def said(shown: SlurmShown) -> str:
    """``drained by ops: bad fan``, for people."""
    what = "DOWN" if shown.kind == EventKind.NODE_DOWN else "drained"
    who = "Slurm" if shown.by == SLURM else shown.user or "an unknown user"
    return f"{what} by {who}: {shown.reason or 'no reason given'}"


def _detail(world: World, changed: _Changed) -> dict[str, Any]:
    shown = changed.after
    detail: dict[str, Any] = {
        "by": shown.by,
        "reason": shown.reason,
        "user": shown.user,
        "time": shown.time.isoformat() if shown.time is not None else None,
    }
    if changed.kind is EventKind.NODE_RESUMED_BY_OTHERS:
        detail["out_s"] = _out_s(world, shown)
    if shown.category:
        detail |= {"category": shown.category, "scores": shown.scores}
    if changed.order is not None:
        detail |= {"who": changed.order.by, "order": changed.order.id, "ticket": changed.order.ticket}
    return detail


def _out_s(world: World, shown: SlurmShown) -> float | None:
    """For how long it was out; by Slurm's time where Holdfast did not see it go. None: not known."""
    begun = shown.since or shown.time
    return max(0.0, round((world.now - begun).total_seconds(), 1)) if begun is not None else None


def _of_many(world: World, many: Sequence[_Changed]) -> Event:
    kind, names = many[0].kind, [c.node for c in many]
    reasons = {said(c.after) for c in many}
    what = next(iter(reasons)) if len(reasons) == 1 else f"{_WORDS[kind]}, for {len(reasons)} different reasons"
    was = "back in service; they were " if kind is EventKind.NODE_RESUMED_BY_OTHERS and len(reasons) == 1 else ""
    detail: Mapping[str, Any] = {
        "nodes": compress(names),
        "count": len(names),
        "groups": _groups((c.node, c.after) for c in many),
    }
    return Event(world.now, kind, text=f"{len(names)} nodes {was}{what}: {_short(compress(names))}", detail=detail)


def _groups(shown: Iterable[tuple[str, SlurmShown]]) -> list[dict[str, Any]]:
    """Who and why, with the nodes of each: the commonest first, and at most :data:`MOST_GROUPS`."""
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    scores: dict[tuple[str, str, str, str], tuple[str, bool]] = {}
    for name, each in shown:
        key = (each.kind, each.by, each.reason, each.user)
        alike.setdefault(key, []).append(name)
        scores[key] = (each.category, each.scores)
    largest = sorted(alike.items(), key=lambda item: -len(item[1]))[:MOST_GROUPS]
    return [
        {"kind": k, "by": by, "reason": reason, "user": user, "nodes": compress(names)}
        | ({"category": scores[k, by, reason, user][0]} if scores[k, by, reason, user][0] else {})
        for (k, by, reason, user), names in largest
    ]


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
