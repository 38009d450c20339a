"""A router whose routes all need a token of one of the given roles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import APIRouter, Depends
from fastapi.security import HTTPBearer
from starlette.requests import Request

from holdfast.api.auth import Principal, Role
from holdfast.api.deps import Api
from holdfast.api.errors import answers

BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="A token of `holdfast token create`.")
READERS = (Role.VIEWER, Role.OPERATOR)


def guarded_router(api: Api, tag: str, *roles: Role) -> APIRouter:
    return APIRouter(
        tags=[tag],
        dependencies=[Depends(BEARER), Depends(_check(api, *roles))],
        responses=answers(401, 403, 422, 503),
    )


def caller_of(request: Request) -> Principal:
    """Who calls, on a route of a guarded router."""
    return cast(Principal, request.state.caller)


def _check(api: Api, *roles: Role) -> Callable[[Request], Awaitable[None]]:
    async def check(request: Request) -> None:
        request.state.caller = await api.auth.caller(request, *roles)

    return check
