"""External systems of the actor, and the checks that every step starts with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import Lock

from holdfast.controller.observing.head_reach import Connect, connect
from holdfast.decisions.common import node_drains, slurm_view
from holdfast.decisions.common.het_jobs import whole
from holdfast.decisions.machines.machine_proof import DOUBT, OTHER_NODE, UnprovenMachine
from holdfast.decisions.nodes import hands_off
from holdfast.model.actions.action import IntentState
from holdfast.model.book import NodeMark
from holdfast.model.errors import HoldfastError, NotFound, Unavailable
from holdfast.model.ids import incident_of_reason, is_reason
from holdfast.model.policies.policy import MaintenancePolicy
from holdfast.model.slurm.cluster import HOLDING_STATES, Job, Node
from holdfast.ports import Clock, IntentOutcome, Notifier, Provider, Scheduler


@dataclass(frozen=True, slots=True)
class Outside:
    """External systems that the actor may read and change."""

    scheduler: Scheduler
    provider: Provider
    notifier: Notifier
    clock: Clock
    sleep: Callable[[float], None]
    marks: Callable[[], dict[str, NodeMark]]
    """The drains that are ours, from the store."""
    claims: Callable[[str], frozenset[str]]
    """Nodes whose machine has this id according to the store (:func:`holdfast.decisions.machines.disputes.claimants`)."""
    own_reservations: Callable[[], frozenset[str]]
    """Reservations that Holdfast made to keep nodes for jobs, from the store
    (:func:`holdfast.decisions.nodes.hands_off.own_reservations`)."""
    reach: Connect = connect
    """Whether a node's kernel answers a connection to its slurmd: the last check before an irreversible step."""
    node_orders: bool = True
    """Whether this site lets operators drain and release nodes through Holdfast (``[actor] node_orders``)."""
    spare_reservation: str = "holdfast-spares"
    maintenance: MaintenancePolicy = field(default_factory=MaintenancePolicy)
    pool: AbstractContextManager[object] = field(default_factory=Lock)
    """Held while the spare pool is read and written: incidents do not wait for each other, and Slurm only replaces a whole list."""


class StepRefused(HoldfastError):
    """The facts have changed since the decision, so the step must not be done."""


class NotProven(StepRefused):
    """The machine is not shown to be the node's."""

    def __init__(self, unproven: UnprovenMachine) -> None:
        super().__init__(unproven.text)
        self.result = {DOUBT: unproven.doubt.value, OTHER_NODE: unproven.other}


class NotYetProven(Unavailable):
    """The machine is not shown to be the node's, but the provider's record may catch up: retried."""

    def __init__(self, unproven: UnprovenMachine) -> None:
        super().__init__(f"{unproven.text}: ask again")
        self.result = {DOUBT: unproven.doubt.value, OTHER_NODE: unproven.other}


def done(text: str, **result: object) -> IntentOutcome:
    return IntentOutcome(IntentState.DONE, text, result=result)


def foreign(node: Node, outside: Outside, *setting: str) -> bool:
    """Out of service, and neither by slurmctld nor by the drain that the store has the mark of. ``setting``: reasons of the step itself,
    which may have been done before a crash."""
    if not node.out_of_service or node.down_by_slurm or is_reason(node.reason, *setting):
        return False
    return incident_of_reason(node.reason) is None or not node_drains.is_marked(outside.marks().get(node.name), node)


def prove_free(name: str, outside: Outside) -> None:
    """Last check before a machine is given up: we took it out of service, and no job runs on it. Raises StepRefused, Unavailable."""
    node = outside.scheduler.node(name)
    if not node.out_of_service:
        raise StepRefused(f"{name} is in service in Slurm")
    _not_taken(node, outside)
    if node.completing or outside.scheduler.jobs_on(name):
        raise Unavailable(f"{name} still holds a job")
    if not node.registered and _has_just_started(outside, certain=not node.unknown):
        raise Unavailable(f"slurmctld has just started, and {name}'s slurmd has not registered: a job may run there")


def _has_just_started(outside: Outside, *, certain: bool) -> bool:
    """Whether slurmctld started less than one SlurmdTimeout ago. ``certain``: only if it says when."""
    config = outside.scheduler.config()
    started = config.get("BOOT_TIME", "")
    if not started.isdecimal():
        return not certain
    timeout_s = slurm_view.slurmd_timeout_s(config) or slurm_view.SLURMD_TIMEOUT_S
    return abs(outside.clock.now().timestamp() - int(started)) < timeout_s


def prove_not_taken(name: str, outside: Outside) -> None:
    """Right before the machine of a dead node is fenced: no operator has drained the node. Raises StepRefused, Unavailable."""
    _not_taken(outside.scheduler.node(name), outside)


def _not_taken(node: Node, outside: Outside) -> None:
    if foreign(node, outside):
        raise StepRefused(f"{node.reason_user or 'another user'} has taken the node over: {node.reason!r}")


def prove_hands_on(name: str, outside: Outside) -> None:
    """Check again, right before a step at a node, that no operator has taken the node over. Raises Unavailable: the step is retried once
    the node is given back. A reboot or power-down of a node that Holdfast is repairing counts as Holdfast's."""
    try:
        node = outside.scheduler.node(name)
    except NotFound:
        return
    others = foreign(node, outside)
    reservations = tuple(outside.scheduler.all_reservations().values())
    hands = hands_off.found(
        node,
        reservations,
        outside.clock.now(),
        outside.maintenance,
        keeping=outside.own_reservations() if any(name in r.nodes for r in reservations) else (),
        ours=node.out_of_service and not others,
        drained_by_others=others,
    )
    if hands is not None and hands.holds_incidents:
        raise Unavailable(hands.text)


def jobs_on(name: str, outside: Outside) -> tuple[Job, ...]:
    """Jobs that hold a node now, each heterogeneous job as one; nothing else of the cluster is read. Raises as the scheduler does."""
    found: dict[int, Job] = {}
    for job in outside.scheduler.jobs_on(name):
        one = job if job.het_leader is None else _whole_of(job.het_leader, outside) or job
        found[one.key.job_id] = one
    return tuple(job for _, job in sorted(found.items()) if name in job.nodes and job.state in HOLDING_STATES)


def _whole_of(leader: int, outside: Outside) -> Job | None:
    """None: Slurm has forgotten the leader."""
    try:
        return whole(outside.scheduler.components(leader))
    except NotFound:
        return None
