"""The budgets on machines: how much is left, and more of one for a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from holdfast.api.answers.shape import Essential, Shape
from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api
from holdfast.api.guards.guarded import READERS, caller_of, guarded_router
from holdfast.api.requests.wire import clean
from holdfast.decisions.common.budgets import budgets
from holdfast.model.actions.budgets import LONGEST_H, MOST_PLUS, BudgetExtension, BudgetKind, BudgetState
from holdfast.ports import Operation

BudgetKindInPath = Annotated[BudgetKind, Path(description="ended, cycled or bought.")]


class NewExtension(BaseModel):
    """More machines for a time."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"plus": 10, "hours": 4, "reason": "rack 7 gets new boards"}}
    )
    plus: int = Field(ge=1, le=MOST_PLUS, description="Machines more, within an hour and within a day.")
    nodes: int = Field(default=0, ge=0, le=MOST_PLUS, description="Different nodes more, within a day; 0: as before.")
    hours: float = Field(gt=0, le=LONGEST_H, description="For how long; 7 days at most.")
    reason: str = Field(min_length=1, max_length=500, description="Why, for the record.")


class BudgetShape(Shape):
    kind: Annotated[str, Essential()] = Field(
        description="ended, cycled or bought; `ended@SET`: what a node set may spend of it."
    )
    hour_spent: int
    hour_most: int
    day_spent: int
    day_most: int
    nodes_taken: int
    nodes_most: int
    left: Annotated[int, Essential()]
    plus: int = 0
    plus_nodes: int = 0
    until: datetime | None = None
    by: str = ""
    reason: str = ""


class BudgetsShape(Shape):
    budgets: Annotated[list[BudgetShape], Essential()]


class ExtendedShape(Shape):
    kind: Annotated[str, Essential()]
    plus: int
    plus_nodes: int
    until: datetime


def budgets_router(api: Api) -> APIRouter:
    reading = guarded_router(api, "reading", *READERS)
    operating = guarded_router(api, "operating", Role.OPERATOR)
    deps = api.deps

    @reading.get("/v1/budgets")
    async def show() -> BudgetsShape:
        """Machines that may still be ended, cycled and bought, as of the control loop's last turn."""
        world = deps.world()
        return BudgetsShape(budgets=[budget_shape(b) for b in budgets(world)] if world is not None else [])

    @operating.post("/v1/budgets/{kind}/extend")
    async def extend(request: Request, kind: BudgetKindInPath, wanted: NewExtension) -> ExtendedShape:
        """Allow more for a time. A new extension takes the place of the one before."""
        now, who = deps.clock.now(), caller_of(request).name
        reason = clean(wanted.reason, 500)
        extension = BudgetExtension(kind, wanted.plus, now + timedelta(hours=wanted.hours), who, reason, wanted.nodes)
        operation = Operation("extend_budget", who, kind.value, reason, extension=extension)
        await api.threads.write(deps.store.operate, operation, now)
        deps.wake()
        return ExtendedShape.model_validate(extension)

    router = APIRouter()
    router.include_router(reading)
    router.include_router(operating)
    return router


def budget_shape(state: BudgetState) -> BudgetShape:
    extension = state.extension
    return BudgetShape(
        kind=state.name,
        hour_spent=state.hour_spent,
        hour_most=state.hour_most,
        day_spent=state.day_spent,
        day_most=state.day_most,
        nodes_taken=len(state.nodes),
        nodes_most=state.nodes_most,
        left=state.left,
        plus=extension.plus if extension is not None else 0,
        plus_nodes=extension.plus_nodes if extension is not None else 0,
        until=extension.until if extension is not None else None,
        by=extension.by if extension is not None else "",
        reason=extension.reason if extension is not None else "",
    )
