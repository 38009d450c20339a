"""The route of the stream of records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.answers.shapes import MAX_ID
from holdfast.api.deps import Api, frames_after
from holdfast.api.errors import ApiError
from holdfast.api.guards.guarded import READERS, caller_of, guarded_router
from holdfast.api.reads.reading import OfIncident, OfNode
from holdfast.api.stream import EventStream, StreamFrame, Viewer, WantedRecords, cursor_of
from holdfast.model.errors import OutsideError
from holdfast.model.event import EventKind


def streaming_router(api: Api) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)

    @router.get(
        "/v1/stream",
        response_class=Response,
        responses={200: {"description": "Server-sent events", "content": {"text/event-stream": {}}}},
    )
    async def stream(
        request: Request,
        after_id: Annotated[
            int | None, Query(ge=0, le=MAX_ID, description="Only records after this one; absent: from now on.")
        ] = None,
        kind: Annotated[list[EventKind] | None, Query(description="Only these kinds.", max_length=50)] = None,
        node: OfNode = None,
        incident: OfIncident = None,
        last_event_id: Annotated[
            str, Header(description="Goes before `after_id`: what a client has that was cut off.", max_length=32)
        ] = "",
    ) -> Response:
        """All records as they are made: `id:` is the record's number, `data:` the record as `GET /v1/events` shows it. A comment comes each
        15 s. It ends when the token does, and where its reader does not keep up; 4 of one token at a time, 64 in all."""
        newest = await api.threads.read(api.deps.store.newest_event_id)
        wanted = WantedRecords(frozenset(kind or ()), node, incident)
        viewer = Viewer(wanted, cursor_of(last_event_id, after_id, newest), api.streams.bounds.behind)
        return EventStream(api.streams, caller_of(request).token, viewer, lambda v: _lines(api, request, v))

    return router


def _lines(api: Api, request: Request, viewer: Viewer) -> AsyncIterator[bytes]:
    caller = caller_of(request)

    async def missed(after_id: int, most: int) -> Sequence[StreamFrame]:
        async with api.readers.turn(caller):
            return await api.threads.read(lambda: frames_after(api.deps.store, after_id, most))

    async def still_valid() -> bool:
        try:
            await api.auth.caller(request, *READERS)
        except ApiError:
            return False
        except OutsideError:
            return True  # the database is away: what was valid stays so
        return True

    return api.streams.watch(viewer, still_valid, missed)
