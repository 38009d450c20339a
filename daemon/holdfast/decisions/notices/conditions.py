"""Conditions of no incident: which last, which are over. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import mounts, slurm_view
from holdfast.decisions.machines import orphans
from holdfast.decisions.silence import silence_notices, silent_nodes
from holdfast.decisions.spares import refill
from holdfast.model.book import World
from holdfast.model.conditions import ConditionKind, Conditions, LastingCondition, SeenConditions

SETTLE_S = 120.0
"""What is not seen for this long is over; what comes back before is the same occurrence, and no one is notified of it again."""


def follow(before: Conditions, seen: SeenConditions, now: datetime) -> Conditions:
    """The conditions as of now."""
    kept = tuple(c for each in before.lasting if (c := _followed(each, seen, now)) is not None)
    there = {(c.kind, c.name) for c in kept}
    new = (LastingCondition(*which, now, nodes) for which, nodes in seen.found.items() if which not in there)
    return Conditions((*kept, *(c for c in new if c.kind in seen.known)))


def _followed(condition: LastingCondition, seen: SeenConditions, now: datetime) -> LastingCondition | None:
    """The occurrence as of now; None: it is over."""
    if condition.kind not in seen.known:
        return condition
    nodes = seen.found.get((condition.kind, condition.name))
    if nodes is not None or (condition.kind is ConditionKind.SILENCE and seen.silent & set(condition.nodes)):
        return replace(condition, gone_at=None, nodes=tuple(sorted({*condition.nodes, *(nodes or ())})))
    gone_at = condition.gone_at or now
    return replace(condition, gone_at=gone_at) if now - gone_at < timedelta(seconds=SETTLE_S) else None


def seen_in(world: World) -> SeenConditions:
    """What is seen now. Missing data is no end: a kind that cannot be judged is not in ``known``."""
    found: dict[tuple[ConditionKind, str], tuple[str, ...]] = {}
    known = {ConditionKind.FILE_SYSTEM}
    for name, findings in mounts.away(world).items():
        found[ConditionKind.FILE_SYSTEM, name] = tuple(sorted({f.node for f in findings}))
    provider = world.book.provider
    if provider is not None and not provider.error:
        known.add(ConditionKind.ORPHAN)
        found |= {(ConditionKind.ORPHAN, machine): () for machine in orphans.unexplained(world)}
    view = slurm_view.fresh_view(world)
    if view is None or world.frozen is not None:
        return SeenConditions(found, frozenset(known))
    if (short := refill.is_short(world, view)) is not None:
        known.add(ConditionKind.SPARES)
        found |= {(ConditionKind.SPARES, ""): ()} if short else {}
    known.add(ConditionKind.FREEZE)
    silent = silent_nodes.silent_nodes(world)
    if silent and silent_nodes.freeze_reason(world, silent) is not None:
        found[ConditionKind.FREEZE, ""] = ()
        return SeenConditions(found, frozenset(known))
    known.add(ConditionKind.SILENCE)
    for where, nodes in silence_notices.subjects(world, view, silent).items():
        found[ConditionKind.SILENCE, where] = nodes
    return SeenConditions(found, frozenset(known), frozenset(silent) & frozenset(view.nodes))
