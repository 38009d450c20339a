"""Refill of the spare pool. Pure.

Moves idle nodes into it if the site wants that, returns a surplus to service, and notifies an operator when it stays too small. None of
this without a configured number: then the pool only gets back what was taken from it (:mod:`holdfast.decisions.repair.repair`), and the
operator manages the rest."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from holdfast.decisions.common import attempted_steps, slurm_view
from holdfast.decisions.common.node_policy import policy_of
from holdfast.decisions.common.part import Part
from holdfast.decisions.elastic.grow import wants_nodes
from holdfast.decisions.spares.choose import busy_nodes, why_not_ready
from holdfast.decisions.spares.pool import kept, wanted
from holdfast.model.actions import steps
from holdfast.model.actions.action import Action, AdoptSpare, Notify, PromoteSpare, Proposal
from holdfast.model.actions.steps import Step
from holdfast.model.book import World
from holdfast.model.conditions import ConditionKind
from holdfast.model.ids import UPKEEP
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.operators.proposals import StepKind
from holdfast.model.policies.lookback import SPARES_TOLD_S
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import ClusterView, Node


def keep_pool(world: World) -> Part:
    """Steps that bring the pool to its wanted size, one node of each kind at a time."""
    view = slurm_view.fresh_view(world)
    if view is None or world.policy.spares.wanted == "" or world.frozen is not None:
        return Part()
    number = wanted(world).number
    if number is None:
        return Part()
    pool = kept(world, view)
    proposals = _tell(world, pool, number)
    if world.policy.mode is Mode.ACT and world.book.paused is None and not _on_its_way(world):
        if len(pool) > number:
            proposals += _give_back(world, view, pool, number)
        elif len(pool) < number and world.policy.spares.refill == "idle":
            proposals += _take_idle(world, view, pool, number)
    return Part(tuple(proposals))


def is_short(world: World, view: ClusterView) -> bool | None:
    """Whether fewer spares are there than wanted; None: no number is wanted, or it is not known."""
    number = wanted(world).number if world.policy.spares.wanted != "" else None
    return None if number is None else len(kept(world, view)) < number


def _on_its_way(world: World) -> bool:
    """A change of the pool that Slurm may not show yet."""
    view = world.view
    return any(
        isinstance(i.action, AdoptSpare | PromoteSpare)
        and (not i.settled or (view is not None and i.finished_at is not None and i.finished_at >= view.read_at))
        for i in world.book.intents.values()
    )


def _step(world: World, step: Step, action: Action, reason: str) -> list[Proposal]:
    if not world.may_try(UPKEEP, step):
        return []
    return [Proposal(UPKEEP, step, action, reason, order=95)]


def _give_back(world: World, view: ClusterView, pool: tuple[str, ...], number: int) -> list[Proposal]:
    """The last ready one by name that is no lemon: jobs get the better nodes, the pool keeps those that it rarely gives away."""
    busy = busy_nodes(view)
    ready = [
        n
        for n in pool
        if n in view.nodes and _unasked(world, n) and why_not_ready(world, view, view.nodes[n], busy) is None
    ]
    if not ready:
        return []
    node = max(ready, key=lambda name: (not world.background.lemon(name, world.now), name))
    reason = f"{len(pool)} spares, {number} are wanted: it goes back into service"
    return _step(world, steps.release_spare(node, attempted_steps.hour(world)), PromoteSpare(node, None), reason)


def _take_idle(world: World, view: ClusterView, pool: tuple[str, ...], number: int) -> list[Proposal]:
    """An idle, healthy node, never one that a pending job of its partition could use, and never a partition's last idle one."""
    reserved = {name for r in view.reservations.values() for name in r.nodes}
    waited_for = {p for j in view.jobs.values() if wants_nodes(j, world.now) for p in j.partition.split(",")}
    idle = [n for n in view.nodes.values() if n.gpu_count and n.name not in reserved and _idle(n)]
    busy = busy_nodes(view)
    left = Counter(p for n in idle for p in n.partitions)
    for node in sorted(idle, key=lambda n: n.name):
        if waited_for & set(node.partitions) or not node.partitions or min(left[p] for p in node.partitions) < 2:
            continue
        if world.background.lemon(node.name, world.now) or world.book.open_on(node.name):
            continue
        if _unasked(world, node.name) and why_not_ready(world, view, node, busy) is None:
            reason = f"{len(pool)} spares, {number} are wanted: an idle node joins them"
            step = steps.adopt_idle_node(node.name, attempted_steps.hour(world))
            return _step(world, step, AdoptSpare(node.name), reason)
    return []


def _unasked(world: World, node: str) -> bool:
    """Whether the pool may take or give back the node without an accept: of no incident, the step cannot be proposed."""
    return StepKind.SPARE not in policy_of(node, world).asks


def _idle(node: Node) -> bool:
    return node.base_state == "IDLE" and not node.flags  # powered down, planned for a job, in maintenance: not idle


def _tell(world: World, pool: tuple[str, ...], number: int) -> list[Proposal]:
    """Once for each time that the pool is short; the controller counts that time in memory, so a restart counts from zero."""
    since = world.background.short_since
    if since is None or len(pool) >= number:
        return []
    late = world.now - since - timedelta(seconds=world.policy.spares.short_s)
    if not timedelta(0) <= late < timedelta(seconds=SPARES_TOLD_S):
        return []
    step = steps.notify_short_of_spares(since)
    if not world.may_try(UPKEEP, step):
        return []
    lasts = world.conditions.key(ConditionKind.SPARES, "")
    had, at = len(pool), f"{since:%Y-%m-%d %H:%M}"
    subject = f"the spare pool is short since {at} UTC: {had} there, {number} wanted"
    body = (
        f"{subject}\nA fault now may leave a job without a node. What is under repair: holdfast nodes; why this many are wanted: "
        f"holdfast spares"
    )
    return [
        Proposal(
            UPKEEP,
            step,
            Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.SPARES_SHORT, condition=lasts),
            subject,
            order=95,
        )
    ]
