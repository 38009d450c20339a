"""Remaining budgets on machines. Pure.

Refused and failed steps do not count; each step allowed in this turn counts for the next one of the same turn."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast.decisions.common import node_incidents, slurm_view
from holdfast.decisions.common.wording import counted
from holdfast.model.actions import steps
from holdfast.model.actions.action import Action, Drain, Intent, IntentState, Launch, Replace, Terminate
from holdfast.model.actions.budgets import BudgetKind, BudgetState, budget_of
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.policies.lookback import CAP_DAY_S, CAP_HOUR_S
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import RepairPolicy

_HOURS = 24
_KEYS = {
    BudgetKind.ENDED: ("terminations_per_hour", "terminations_per_day"),
    BudgetKind.CYCLED: ("cycles_per_hour", "cycles_per_day"),
    BudgetKind.BOUGHT: ("launches_per_hour", "launches_per_day"),
}
"""Keys of a set's budgets: of an hour, of a day."""
COUNTED = frozenset({IntentState.PLANNED, IntentState.STARTED, IntentState.DONE})
"""States of steps that budgets and brakes count: what was refused, failed or withheld did nothing."""


def budgets(world: World) -> tuple[BudgetState, ...]:
    """State of all budgets: the site's first, then the own ones of node sets."""
    site = [_state(world, kind) for kind in BudgetKind]
    sets = [_of_set(world, kind, each) for each in world.policy.nodes for kind in BudgetKind if _has_budget(each, kind)]
    return (*site, *sets)


def _state(world: World, kind: BudgetKind) -> BudgetState:
    hour, day, nodes_most = limits(world.policy.repair, kind, len(slurm_view.fleet(world)))
    extension = world.book.extensions.get(kind)
    if extension is not None and extension.until <= world.now:
        extension = None
    plus = extension.plus if extension is not None else 0
    taken = _taken(world, kind)
    return BudgetState(
        kind,
        hour_spent=sum(1 for age_s, _node in taken if age_s <= CAP_HOUR_S),
        hour_most=hour + plus,
        day_spent=sum(1 for age_s, _node in taken if age_s <= CAP_DAY_S),
        day_most=day + plus,
        nodes=frozenset(node for age_s, node in taken if age_s <= CAP_DAY_S and node is not None),
        nodes_most=nodes_most + (extension.plus_nodes if extension is not None else 0),
        extension=extension,
    )


def _taken(world: World, kind: BudgetKind) -> list[tuple[float, str | None]]:
    """(age in seconds, node) of each machine that was taken."""
    return [
        ((world.now - i.planned_at).total_seconds(), i.action.target.node)
        for i in world.book.intents.values()
        if budget_of(i.action) is kind and i.state in COUNTED
    ]


def _of_set(world: World, kind: BudgetKind, node_set: NodeSet) -> BudgetState:
    """A set's own budget. An extension is of the site's alone: a set's limit is changed in its table."""
    hour, day = (node_set.budgets.get(key) for key in _KEYS[kind])
    hour_most = hour if hour is not None else day or 0
    day_most = day if day is not None else hour_most * _HOURS
    taken = [(age_s, node) for age_s, node in _taken(world, kind) if node is not None and _has(world, node_set, node)]
    today = [node for age_s, node in taken if age_s <= CAP_DAY_S]
    return BudgetState(
        kind,
        hour_spent=sum(1 for age_s, _node in taken if age_s <= CAP_HOUR_S),
        hour_most=hour_most,
        day_spent=len(today),
        day_most=day_most,
        nodes=frozenset(today),
        nodes_most=day_most,
        node_set=node_set.name,
    )


def _has_budget(node_set: NodeSet, kind: BudgetKind) -> bool:
    return any(key in node_set.budgets for key in _KEYS[kind])


def _has(world: World, node_set: NodeSet, node: str) -> bool:
    return node_set.has(node, world.view.nodes.get(node) if world.view is not None else None)


def limits(policy: RepairPolicy, kind: BudgetKind, nodes: int) -> tuple[int, int, int]:
    """(most in an hour, most in a day, most different nodes in a day) of a fleet of ``nodes`` nodes. The first two are the number or the
    share, whichever is greater; the third is ``budget_cluster_share``, at least one."""
    hour, day = _numbers(policy, kind)
    return (
        max(hour, math.floor(nodes * policy.budget_hour_share)) if hour else 0,
        max(day, math.floor(nodes * policy.budget_day_share)) if day else 0,
        max(1, math.floor(nodes * policy.budget_cluster_share)),
    )


def _numbers(policy: RepairPolicy, kind: BudgetKind) -> tuple[int, int]:
    match kind:
        case BudgetKind.ENDED:
            return policy.terminations_per_hour, policy.terminations_per_day
        case BudgetKind.CYCLED:
            return policy.cycles_per_hour, policy.cycles_per_day
        case BudgetKind.BOUGHT:
            return policy.launches_per_hour, policy.launches_per_day


@dataclass(frozen=True, slots=True)
class _Promise:
    """What an order that was begun is still to spend."""

    node: str
    kinds: frozenset[BudgetKind]


_UNDER_WAY = frozenset({IncidentState.OPEN, IncidentState.CONTAINED, IncidentState.REPAIRING, IncidentState.VALIDATING})


def _whole_order(world: World) -> tuple[BudgetKind, ...]:
    return (BudgetKind.ENDED, BudgetKind.BOUGHT) if world.can.launch_first else (BudgetKind.ENDED,)


def _promises(world: World) -> dict[str, _Promise]:
    """By incident: orders whose node is drained for them, and that have not spent everything yet. One that waits for an operator, or is
    dropped before its machine was launched, keeps nothing from others."""
    found: dict[str, _Promise] = {}
    for incident in world.book.open_incidents():
        if not incident.only_ordered or incident.acknowledged or incident.state not in _UNDER_WAY:
            continue
        counted = [i for i in world.book.intents_of(incident.id) if i.state in COUNTED]
        kinds = frozenset(_whole_order(world)) - _spent_by(incident, counted)
        begun = any(isinstance(i.action, Drain) for i in counted)
        if begun and kinds and (incident.ordered is not None or BudgetKind.BOUGHT not in kinds):
            found[incident.id] = _Promise(incident.node, kinds)
    return found


def _spent_by(incident: Incident, counted: Iterable[Intent]) -> frozenset[BudgetKind]:
    """Budgets that the present attempt of an order has spent."""
    attempt = (
        steps.launch(incident.node, incident.repair_attempt),
        steps.replace(incident.node, incident.repair_attempt),
        steps.terminate(incident.instance_id),
    )
    return frozenset(kind for i in counted if i.step in attempt and (kind := budget_of(i.action)) is not None)


class Purse:
    """Budgets that one turn may still spend. A budget is counted when the first step requests it: most turns request none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._left: dict[tuple[BudgetKind, str], BudgetState] = {}
        self._launched: set[str] = set()
        """Nodes for which this turn launches."""
        self._promised: dict[str, _Promise] | None = None

    def half_spent(self, action: Action) -> BudgetState | None:
        """One of its budgets of which half of the hour's, or of the day's, steps are spent; None: none is. What a launch is to end with
        counts as well."""
        ends = self._ends_left(action.target.node) if isinstance(action, Launch) else []
        return next((state for state in (*self._states(action), *ends) if state.half_spent), None)

    def cannot_end(self, action: Action, incident: Incident) -> BudgetState | None:
        """The budget that leaves no end of the old machine to a launch, which would wait validated next to it; None: each does, or nothing
        waits for one.

        Ends that replacements under way have yet to take are theirs: one that is launched finishes. A dead machine serves no one, so that
        its successor is not kept waiting."""
        if not isinstance(action, Launch) or incident.dead or not _has_an_end_to_come(self._world, incident):
            return None
        return next((s for s in self._ends_left(action.node) if not s.has_room(action.node)), None)

    def _ends_left(self, node: str | None) -> list[BudgetState]:
        """Budgets of ended machines for a launch for this node; what other replacements under way will end is counted as ended."""
        owing = {*_owing(self._world), *self._launched} - {node}
        return [_with_owed(self._world, state, owing) for state in self._of(BudgetKind.ENDED, node)]

    def short_for_order(self, action: Action, incident_id: str = "") -> tuple[BudgetState, ...]:
        """The budgets of which an operator's order would leave less than half for faults, or less than one step; empty: all leave enough.

        What a drain or a launch leads to counts as well, and what the orders that were begun before are still to spend (those of
        ``incident_id`` apart): nothing is begun that would wait half done. The end of what was launched is never kept back."""
        node = action.target.node
        states = [s for kind in self._leads_to(action) for s in self._of(kind, node)]
        others = [p for number, p in self._promises().items() if number != incident_id]
        return tuple(s for s in (self._with(state, others) for state in states) if not _leaves_half(s, node))

    def promise(self, action: Action, incident_id: str) -> None:
        """An order is begun with this step: what it leads to is kept for it from the others of this turn."""
        kinds = frozenset(self._leads_to(action)) - {budget_of(action)}
        if action.target.node is not None and kinds:
            self._promises()[incident_id] = _Promise(action.target.node, kinds)

    def _leads_to(self, action: Action) -> tuple[BudgetKind, ...]:
        match action:
            case Launch():
                return BudgetKind.ENDED, BudgetKind.BOUGHT
            case Replace():
                return (BudgetKind.ENDED,)
            case Drain():
                return _whole_order(self._world)
            case _:
                return ()

    def _promises(self) -> dict[str, _Promise]:
        if self._promised is None:
            self._promised = _promises(self._world)
        return self._promised

    def _with(self, state: BudgetState, promises: Iterable[_Promise]) -> BudgetState:
        """The budget as it is once these orders are carried out."""
        sets = [s for s in self._world.policy.nodes if s.name == state.node_set]
        mine = [p.node for p in promises if state.kind in p.kinds and all(_has(self._world, s, p.node) for s in sets)]
        return replace(
            state,
            hour_spent=state.hour_spent + len(mine),
            day_spent=state.day_spent + len(mine),
            nodes=state.nodes | frozenset(mine),
        )

    def take(self, action: Action) -> BudgetState | None:
        """None, and one less is left in each of its budgets; or one that is spent."""
        node, states = action.target.node, self._states(action)
        spent = next((s for s in states if not s.has_room(node)), None)
        if spent is not None:
            return spent
        for state in states:
            nodes = state.nodes if node is None else state.nodes | {node}
            self._left[state.kind, state.node_set] = replace(
                state, hour_spent=state.hour_spent + 1, day_spent=state.day_spent + 1, nodes=nodes
            )
        if isinstance(action, Launch) and action.instead_of:
            self._launched.add(action.node)
        return None

    def _states(self, action: Action) -> list[BudgetState]:
        """Of the site's budget, and of those that the sets of its node have; none: the action spends no budget."""
        kind = budget_of(action)
        return self._of(kind, action.target.node) if kind is not None else []

    def _of(self, kind: BudgetKind, node: str | None) -> list[BudgetState]:
        limited = [s for s in self._world.policy.nodes if _has_budget(s, kind)]
        sets = [s for s in limited if node is not None and _has(self._world, s, node)]
        site = self._left.get((kind, "")) or _state(self._world, kind)
        return [site, *(self._left.get((kind, s.name)) or _of_set(self._world, kind, s) for s in sets)]


def _owing(world: World) -> frozenset[str]:
    """Nodes of replacements that have begun to launch and have not ended the old machine."""
    under_way = (IncidentState.REPAIRING, IncidentState.VALIDATING)
    mine = (i for i in world.book.open_incidents() if i.state in under_way and node_incidents.acting(i))
    return frozenset(i.node for i in mine if _has_an_end_to_come(world, i) and _launch_begun(world, i))


def _launch_begun(world: World, incident: Incident) -> bool:
    planned = world.book.planned(incident.id, steps.launch(incident.node, incident.repair_attempt))
    return any(intent.state in COUNTED for intent in planned)


def _has_an_end_to_come(world: World, incident: Incident) -> bool:
    """Whether the machine with the fault is known, and no step to end it is counted yet."""
    ends = (i for i in world.book.intents.values() if isinstance(i.action, Terminate) and i.state in COUNTED)
    machine = incident.instance_id
    return bool(machine) and not any(isinstance(i.action, Terminate) and i.action.instance_id == machine for i in ends)


def _with_owed(world: World, state: BudgetState, owing: Iterable[str]) -> BudgetState:
    named = [each for each in world.policy.nodes if each.name == state.node_set]
    mine = frozenset(node for node in owing if not state.node_set or any(_has(world, each, node) for each in named))
    hour, day = state.hour_spent + len(mine), state.day_spent + len(mine)
    return replace(state, hour_spent=hour, day_spent=day, nodes=state.nodes | mine, owed=len(mine))


def _leaves_half(state: BudgetState, node: str | None) -> bool:
    nodes = len(state.nodes | {node}) if node is not None else len(state.nodes)
    enough = 2 * (state.hour_spent + 1) <= state.hour_most and 2 * (state.day_spent + 1) <= state.day_most
    return enough and (node in state.nodes or nodes < state.nodes_most)


def why_kept_for_faults(state: BudgetState) -> str:
    """For people."""
    more = f"`holdfast budget extend {state.kind.value} --plus N --nodes N` allows more for a time"
    if state.node_set:
        more = _more_of_set(state)
    return (
        f"what is left of budget {state.name!r} is kept for faults: an operator's order may use half of it "
        f"({state.hour_spent} of {state.hour_most} machines within an hour, {state.day_spent} of {state.day_most} within a day, "
        f"{len(state.nodes)} of {state.nodes_most} different nodes, what orders that were begun will take included); {more}"
    )


def why_spent(state: BudgetState) -> str:
    """For people."""
    more = f"`holdfast budget extend {state.kind.value} --plus N` allows more for a time"
    if state.node_set:
        more = _more_of_set(state)
    if state.hour_spent >= state.hour_most:
        said = f"{counted(state.hour_spent, 'machine')} within an hour, at most {state.hour_most}"
    elif state.day_spent >= state.day_most:
        said = f"{counted(state.day_spent, 'machine')} within a day, at most {state.day_most}"
    else:
        said = f"machines of {counted(len(state.nodes), 'different node')} within a day, at most {state.nodes_most}"
        more = f"`holdfast budget extend {state.kind.value} --plus N --nodes N` allows more for a time"
    owed = f" ({state.owed} of them yet to be ended by replacements under way)" if state.owed else ""
    return f"budget {state.name!r} is spent: {said}{owed}; {more}"


def _more_of_set(state: BudgetState) -> str:
    return f"budgets of node set {state.node_set!r} in controller.toml allow more"
