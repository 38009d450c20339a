"""Findings that operators know of, and that are to lead to nothing for a while."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request

from holdfast.api.answers.operator_shapes import Done, NewSuppression, SuppressionShape, Word
from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api
from holdfast.api.errors import answers
from holdfast.api.guards.guarded import caller_of, guarded_router
from holdfast.api.orders.operating import NO_WORD
from holdfast.api.requests.wire import clean
from holdfast.model.ids import incident_id as new_id
from holdfast.model.operators.suppression import Suppression
from holdfast.ports import Operation

SuppressionId = Annotated[str, Path(pattern="^[0-9a-z]{12}$", description="As the list of suppressions shows it.")]


def suppressing_router(api: Api) -> APIRouter:
    router = guarded_router(api, "operating", Role.OPERATOR)

    @router.post("/v1/suppressions", responses=answers(409))
    async def suppress(request: Request, wanted: NewSuppression) -> SuppressionShape:
        """Have findings of this kind open no incident for a while; what is still so at the end counts then."""
        now = api.deps.clock.now()
        suppression = Suppression(
            id=new_id(now, secrets.randbits(15)),
            until=now + timedelta(hours=wanted.hours),
            by=caller_of(request).name,
            reason=clean(wanted.reason, 500),
            created_at=now,
            node=wanted.node,
            check=wanted.check,
            component=wanted.component,
        )
        text = f"{suppression.what} until {suppression.until:%Y-%m-%d %H:%M} UTC: {suppression.reason}"
        order = Operation("suppress", suppression.by, suppression.id, text, suppression)
        await api.threads.write(api.deps.store.operate, order, now)
        api.deps.wake()
        return SuppressionShape.model_validate(suppression)

    @router.delete("/v1/suppressions/{suppression_id}", responses=answers(404))
    async def unsuppress(request: Request, suppression_id: SuppressionId, word: Word = NO_WORD) -> Done:
        """End a suppression now."""
        order = Operation("unsuppress", caller_of(request).name, suppression_id, clean(word.reason, 500))
        await api.threads.write(api.deps.store.operate, order, api.deps.clock.now())
        api.deps.wake()
        return Done()

    return router
