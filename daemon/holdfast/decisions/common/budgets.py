"""Remaining budgets on machines. Pure.

Refused and failed steps do not count; each step allowed in this turn counts for the next one of the same turn."""

from __future__ import annotations

import math
from dataclasses import replace

from holdfast.decisions.common import slurm_view
from holdfast.model.actions.action import Action, Drain, IntentState, Launch
from holdfast.model.actions.budgets import BudgetKind, BudgetState, budget_of
from holdfast.model.book import World
from holdfast.model.policies.lookback import CAP_DAY_S, CAP_HOUR_S
from holdfast.model.policies.policy import RepairPolicy

COUNTED = frozenset({IntentState.PLANNED, IntentState.STARTED, IntentState.DONE})
"""States of steps that budgets and brakes count: what was refused, failed or withheld did nothing."""


def budgets(world: World) -> dict[BudgetKind, BudgetState]:
    """State of all budgets."""
    return {kind: _state(world, kind) for kind in BudgetKind}


def _state(world: World, kind: BudgetKind) -> BudgetState:
    hour, day, nodes_most = limits(world.policy.repair, kind, len(slurm_view.fleet(world)))
    extension = world.book.extensions.get(kind)
    if extension is not None and extension.until <= world.now:
        extension = None
    plus = extension.plus if extension is not None else 0
    taken = [
        ((world.now - i.planned_at).total_seconds(), i.action.target.node)
        for i in world.book.intents.values()
        if budget_of(i.action) is kind and i.state in COUNTED
    ]
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


class Purse:
    """Budgets that one turn may still spend. A budget is counted when the first step requests it: most turns request none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._left: dict[BudgetKind, BudgetState] = {}

    def half_spent(self, action: Action) -> bool:
        """Whether half of the hour's, or of the day's, steps of its budget are spent."""
        kind = budget_of(action)
        if kind is None:
            return False
        state = self._left.get(kind) or _state(self._world, kind)
        return 2 * state.hour_spent >= state.hour_most or 2 * state.day_spent >= state.day_most

    def keeps_too_little(self, action: Action) -> BudgetState | None:
        """The budget of which an operator's order would leave less than half for faults, or less than one step; None: it leaves enough.
        What a launch or a drain is to end with counts as well: nothing is begun that would wait half done."""
        kinds = {budget_of(action)} | ({BudgetKind.ENDED} if isinstance(action, Launch | Drain) else set())
        states = (self._left.get(k) or _state(self._world, k) for k in BudgetKind if k in kinds)
        return next((s for s in states if not _leaves_half(s, action.target.node)), None)

    def take(self, action: Action) -> BudgetState | None:
        """None, and one less is left; or the budget that is spent."""
        kind, node = budget_of(action), action.target.node
        if kind is None:
            return None
        state = self._left.get(kind) or _state(self._world, kind)
        if not (state.steps_left if node in state.nodes else state.left):
            return state
        nodes = state.nodes if node is None else state.nodes | {node}
        self._left[kind] = replace(state, hour_spent=state.hour_spent + 1, day_spent=state.day_spent + 1, nodes=nodes)
        return None


def _leaves_half(state: BudgetState, node: str | None) -> bool:
    nodes = len(state.nodes | {node}) if node is not None else len(state.nodes)
    enough = 2 * (state.hour_spent + 1) <= state.hour_most and 2 * (state.day_spent + 1) <= state.day_most
    return enough and (node in state.nodes or nodes < state.nodes_most)


def why_kept_for_faults(state: BudgetState) -> str:
    """For people."""
    return (
        f"what is left of budget {state.kind.value!r} is kept for faults: an operator's order may use half of it "
        f"({state.hour_spent} of {state.hour_most} machines within an hour, {state.day_spent} of {state.day_most} within a day, "
        f"{len(state.nodes)} of {state.nodes_most} different nodes); "
        f"`holdfast budget extend {state.kind.value} --plus N --nodes N` allows more for a time"
    )


def why_spent(state: BudgetState) -> str:
    """For people."""
    more = f"`holdfast budget extend {state.kind.value} --plus N` allows more for a time"
    if state.hour_spent >= state.hour_most:
        said = f"{state.hour_spent} machines within an hour, at most {state.hour_most}"
    elif state.day_spent >= state.day_most:
        said = f"{state.day_spent} machines within a day, at most {state.day_most}"
    else:
        said = f"machines of {len(state.nodes)} different nodes within a day, at most {state.nodes_most}"
        more = f"`holdfast budget extend {state.kind.value} --plus N --nodes N` allows more for a time"
    return f"budget {state.kind.value!r} is spent: {said}; {more}"
