"""Before the application: who shows no token that is known here waits for a turn (:mod:`holdfast.api.callers.stranger_turns`), before
anything else is done for the request."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api
from holdfast.api.errors import ApiError, error_response
from holdfast.api.transport.connections import attached

_CLOSED = error_response(ApiError(503, "unavailable", "The connection is closed"))


class StrangersLast:
    """Agents, operators and viewers continue at once. A user's token, which any job's owner may hold, takes turns as its own address."""

    def __init__(self, app: ASGIApp, api: Api) -> None:
        self._app = app
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        goes_on = await self._turn(scope)
        await (self._app if goes_on else _CLOSED)(scope, receive, send)

    async def _turn(self, scope: Scope) -> bool:
        found = attached(scope)
        if found is None:
            return True
        connections, connection = found
        caller = await self._api.auth.known(scope, crowded=self._api.strangers.crowded)
        if caller is not None and caller.role is not Role.USER:
            return True
        if caller is not None:
            return await self._api.strangers.turn(caller.token, connection, many_behind=False)
        many = connections.bounds.many_behind(connection.address)
        return await self._api.strangers.turn(connection.address, connection, many_behind=many)
