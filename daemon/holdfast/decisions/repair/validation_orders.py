"""Validation orders in addition to a machine's ordinary checks: a deep check, and a network probe where several are validated at a time.
Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.decisions.common import attempted_steps, node_agents, node_incidents, slurm_view
from holdfast.decisions.machines import replacement
from holdfast.decisions.probing import probe_orders
from holdfast.decisions.probing.pairs import Probe, ProbeOutcome, SuspectVerdict, exhausted, judge
from holdfast.decisions.repair.ladder import Rung
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, SendOrder, Verb
from holdfast.model.agents.answers import CheckWord, Refusal, check_word, held_by_job, refusal_of
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState

_DEEP_TRIES = 2
"""A deep check that gave no answer is asked for once more."""


_HELD_PAUSE_S = 10.0
_MOST_DEEP_S = 3600.0
"""What an agent allows."""


class ValidationProgress(StrEnum):
    PENDING = "pending"
    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    """It did not pass, and nothing shows that it is this machine which is at fault."""


@dataclass(frozen=True, slots=True)
class ValidationPart:
    """One part of the proof."""

    progress: ValidationProgress
    at: datetime | None = None
    """When it was passed; None: nothing was asked."""
    text: str = ""
    """Reason why it failed, or why the result is unknown."""


PENDING, PASSED = ValidationPart(ValidationProgress.PENDING), ValidationPart(ValidationProgress.PASSED)


def beside(world: World, incident: Incident) -> bool:
    """The machine does not serve the node yet: it has no slurmd, and the node's address is the old machine's."""
    return replacement.new_instance(world, incident) is not None


# The deep check


def deep(world: World, incident: Incident) -> ValidationPart:
    if not world.policy.repair.deep_checks:
        return PASSED
    tries = [i for i in _deep_checks(world, incident) if check_word(i.result) is not CheckWord.HELD]
    latest = tries[-1] if tries else None
    if latest is None or not latest.settled:
        return PENDING
    if latest.state is IntentState.DONE or refusal_of(latest.result) is Refusal.UNSUPPORTED_VERB:
        return ValidationPart(ValidationProgress.PASSED, latest.finished_at)
    if check_word(latest.result) is CheckWord.BAD or len(tries) >= _DEEP_TRIES:
        return ValidationPart(ValidationProgress.FAILED, text=f"deep check failed: {latest.outcome}")
    return PENDING


def deep_order(world: World, incident: Incident, instance: str) -> SendOrder | None:
    """The order that is due now; None: none is, or there is no agent to take it."""
    agent = node_agents.agent_of(world, incident.node, instance or None)
    latest = attempted_steps.last(_deep_checks(world, incident))
    on_its_way = latest is not None and (not latest.settled or not may_ask_again(world, latest))
    if agent is None or on_its_way or deep(world, incident).progress is not ValidationProgress.PENDING:
        return None
    repair = world.policy.repair
    args = {
        "checks": list(repair.deep_checks),
        "deadline_s": min(repair.validate_timeout_s, _MOST_DEEP_S),
        "serves": not beside(world, incident),
    }
    expires_s = 1.5 * repair.validate_timeout_s  # the last check starts before the deadline
    return node_agents.order_to(agent, Verb.CHECK, expires_s, args)


def may_ask_again(world: World, latest: Intent) -> bool:
    """After a node that a job held, or what was left of one, it is asked for again once a while has passed."""
    held = check_word(latest.result) is CheckWord.HELD or held_by_job(latest.result)
    return not held or latest.finished_at is None or world.now - latest.finished_at >= timedelta(seconds=_HELD_PAUSE_S)


def _deep_checks(world: World, incident: Incident) -> tuple[Intent, ...]:
    return world.book.attempts(incident.id, steps.deep_check(incident.node, incident.repair_attempt))


# The network


@dataclass(frozen=True, slots=True)
class ValidationGroup:
    """Machines that are validated at the same time, and their probes so far."""

    incidents: tuple[Incident, ...]
    """Those whose network is still to be shown."""
    together: int
    """Number of machines, including those that wait out their quiet time."""
    probes: tuple[Probe, ...]
    ended_at: datetime | None
    """When the last of the probes ended."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(i.node for i in self.incidents)


def group(world: World, orders: Collection[Intent]) -> ValidationGroup:
    """``orders``: all probes in the state. Only probes of this validation count: what a machine did before its repair does not."""
    validating = [
        i
        for i in world.book.open_incidents()
        if i.state is IncidentState.VALIDATING and node_incidents.acting(i) and _ready(world, i)
    ]
    mine = tuple(i for i in validating if i.validated_at is None)
    since = {i.node: i.state_since or i.opened_at for i in mine}
    asked_for = {i.id: since[i.node] for i in mine}
    now: set[tuple[str, str]] = set()
    before: set[tuple[str, str]] = set()
    for order in orders:
        assert isinstance(order.action, SendOrder)  # noqa: S101 - see probing.all_orders
        began = since.get(order.action.node) or asked_for.get(order.incident_id)
        if began is not None:
            (now if order.planned_at >= began else before).add(_tag(order))
    counted = [order for order in orders if _tag(order) in now - before]
    ended = [order.finished_at for order in counted if order.finished_at is not None]
    probes = tuple(probe_orders.probes_of(world, counted))
    return ValidationGroup(mine, len(validating), probes, max(ended, default=None))


def _tag(order: Intent) -> tuple[str, str]:
    return (order.incident_id, probe_orders.name_of(order))


def _ready(world: World, incident: Incident) -> bool:
    """Its ordinary checks and its deep one are passed: only the network is left."""
    step = steps.validate(incident.node, incident.repair_attempt)
    checked = attempted_steps.done(world.book.attempts(incident.id, step)) is not None
    return checked and deep(world, incident).progress is ValidationProgress.PASSED


def network(world: World, incident: Incident) -> ValidationPart:
    """The pair probe: needed where more than one machine is validated at a time, and where the network was the fault."""
    if not world.policy.repair.pair_probe or incident.validated_at is not None:
        return PASSED
    orders = probe_orders.all_orders(world)
    them = group(world, orders)
    if incident.node not in them.nodes or not needed(incident, them):
        return PASSED
    standing = judge(them.nodes, probe_orders.partners(world, them.probes, them.nodes), them.probes)[incident.node]
    if standing is SuspectVerdict.CLEARED:
        return ValidationPart(ValidationProgress.PASSED, them.ended_at)
    failed = sorted(p.partner(incident.node) for p in them.probes if _bad(p, incident.node))
    if standing is SuspectVerdict.BAD:
        return ValidationPart(ValidationProgress.FAILED, text=f"pair probe failed with {', '.join(failed)}")
    return _undecided(world, incident, them, failed)


def needed(incident: Incident, them: ValidationGroup) -> bool:
    asked = any(incident.node in probe.nodes for probe in them.probes)
    return asked or them.together > 1 or incident.kind is IncidentKind.PAIR


def _bad(probe: Probe, node: str) -> bool:
    return node in probe.nodes and probe.outcome is ProbeOutcome.BAD


def _undecided(world: World, incident: Incident, them: ValidationGroup, failed: list[str]) -> ValidationPart:
    """Wait for partners as long as a validation may take. Unasked is no failure, unless the network was the fault of this very hardware.
    What failed without two proven partners is no failure either: the partner may be the one at fault, or lie."""
    view = slurm_view.fresh_view(world)
    since = deep(world, incident).at or incident.state_since or world.now
    late = world.now - since > timedelta(seconds=world.policy.repair.validate_timeout_s)
    if view is None:
        return PENDING
    same = incident.rung not in (Rung.STOP_START, Rung.REPLACE, Rung.WATCH)
    doubtful = bool(failed) or (same and incident.kind is IncidentKind.PAIR)
    others = [*probe_orders.partners(world, them.probes, them.nodes), *probe_orders.possible(view, them.nodes)]
    only = connect_only(world, them)
    nothing_left = exhausted(them.nodes, list(dict.fromkeys(others)), them.probes, connect_only=only)
    if not late and (doubtful or not nothing_left):
        return PENDING
    if failed:
        return ValidationPart(ValidationProgress.UNDECIDED, text=_cannot_tell(failed))
    if doubtful:
        return ValidationPart(
            ValidationProgress.FAILED, text="pair probe not answered, and no other node could be asked"
        )
    return ValidationPart(ValidationProgress.PASSED, them.ended_at)


def _cannot_tell(failed: list[str]) -> str:
    alone = " alone" if len(failed) == 1 else ""
    return (
        f"its pair probe failed with {', '.join(failed)}{alone}, and too few other nodes could be asked to show which side is at fault: "
        "check the network of both, then resume it if it works"
    )


def connect_only(world: World, them: ValidationGroup) -> frozenset[str]:
    return frozenset(i.node for i in them.incidents if beside(world, i))
