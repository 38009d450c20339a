"""A router whose routes all need a token of one of the given roles, before anything of the request's body is read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive

from holdfast.api.callers.auth import Principal, Role
from holdfast.api.callers.readers import spent_s
from holdfast.api.deps import Api
from holdfast.api.errors import answers
from holdfast.api.guards.once import PARAMETER, once
from holdfast.api.requests.body import read_body
from holdfast.api.shared import PATHS, key_of, tagged, unchanged
from holdfast.api.transport.connections import unread_by

BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="A token of `holdfast token create`.")
READERS = (Role.VIEWER, Role.OPERATOR)
LIMIT_BYTES = 256 * 1024
"""Of an order: names of nodes and a reason."""

UNCHANGED = "What the client has, by `If-None-Match` with the `ETag` of an earlier answer, is still so"

RouteHandler = Callable[[Request], Coroutine[Any, Any, Response]]


def guarded_router(api: Api, tag: str, *roles: Role) -> APIRouter:
    operators = Role.OPERATOR in roles

    class GuardedRoute(APIRoute):
        """FastAPI itself reads a body, however long, before it asks for the dependencies of a route."""

        def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
            _describe(path, given, operators=operators)
            super().__init__(path, endpoint, **given)

        def get_route_handler(self) -> RouteHandler:
            handler = super().get_route_handler()
            has_body = self.body_field is not None

            async def guarded(request: Request) -> Response:
                caller = request.state.caller = await api.auth.caller(request, *roles)
                api.readers.ask(caller, unread=unread_by(request.scope, caller.token))
                content = b""
                if has_body:
                    content = await read_body(request, LIMIT_BYTES)
                    request = Request(request.scope, _replay(content))
                if request.method != "GET":
                    order = partial(handler, request)
                    changed = await (once(api, request, caller, content, order) if operators else order())
                    api.shared.forget()
                    return changed
                if (key := key_of(request)) is None:
                    async with api.readers.turn(caller):
                        return await handler(request)
                shown = await api.shared.answer(
                    key, lambda: made(request), lambda: api.readers.turn(caller), caller.token
                )
                return unchanged(request, shown)

            async def made(request: Request) -> tuple[Response, float]:
                response = await handler(request)
                return tagged(response), spent_s()

            return guarded

    return APIRouter(
        tags=[tag],
        dependencies=[Depends(BEARER)],
        responses=answers(401, 403, 422, 429, 503),
        route_class=GuardedRoute,
    )


def _describe(path: str, given: dict[str, Any], *, operators: bool) -> None:
    """Add to a route's description what all of its kind have in common."""
    common: dict[int | str, dict[str, Any]] = {304: {"description": UNCHANGED}} if path in PATHS else {}
    if set(given.get("methods") or ()) - {"GET"}:  # what changes something, and may have a body
        common = answers(400, 408, 409, 413)
        if operators:
            given["openapi_extra"] = {"parameters": [PARAMETER]}
    given["responses"] = common | (given.get("responses") or {})


def caller_of(request: Request) -> Principal:
    """Who calls, on a route of a guarded router."""
    return cast(Principal, request.state.caller)


def _replay(content: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    return receive
