"""Orders to Holdfast itself: pause, resume, and what operators do with incidents and brakes."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request

from holdfast.api.answers.operator_shapes import Done, Word
from holdfast.api.answers.restraint_shapes import BRAKE_NAME
from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api
from holdfast.api.errors import ApiError, answers
from holdfast.api.guards.guarded import caller_of, guarded_router
from holdfast.api.reads.reading import IncidentIdInPath
from holdfast.api.requests.wire import clean
from holdfast.api.shown.views import incident_shape
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.ports import Operation

NO_WORD = Word()


def operating_router(api: Api) -> APIRouter:
    router = guarded_router(api, "operating", Role.OPERATOR)

    store = api.deps.store

    async def operate(request: Request, verb: str, word: Word, target: str = "") -> None:
        operation = Operation(verb, caller_of(request).name, target, clean(word.reason, 500))
        await api.threads.write(store.operate, operation, api.deps.clock.now())
        api.deps.wake()

    async def with_incident(request: Request, verb: str, word: Word, incident_id: str) -> Done:
        in_service, now = _in_service(api.deps.world(), incident_id), api.deps.clock.now()
        who, reason = caller_of(request).name, clean(word.reason, 500)
        operation = Operation(verb, who, incident_id, reason, in_service=in_service)

        def done() -> (
            Incident | None
        ):  # in one call: a refusal for want of room after the order would be one of an order that is done
            store.operate(operation, now)
            return store.incident(incident_id)

        after = await api.threads.write(done)
        api.deps.wake()
        return Done(incident=incident_shape(after) if after else None)

    @router.post("/v1/pause")
    async def pause(request: Request, word: Word = NO_WORD) -> Done:
        """Do nothing outside until resumed; faults are still recorded."""
        await operate(request, "pause", word)
        return Done()

    @router.post("/v1/resume")
    async def resume(request: Request, word: Word = NO_WORD) -> Done:
        """End a pause."""
        await operate(request, "resume", word)
        return Done()

    @router.post("/v1/brakes/{kind}/release", responses=answers(404))
    async def release(
        request: Request,
        kind: Annotated[
            str,
            Path(
                description="drains, job_stops, planned_stops or task_drains; `drains@SET`: of a node set alone.",
            ),
        ],
        word: Word = NO_WORD,
    ) -> Done:
        """Release a tripped brake."""
        _refuse_other_names(kind)
        await operate(request, "release_brake", word, kind)
        return Done()

    @router.post("/v1/incidents/{incident_id}/acknowledge", responses=answers(404, 409))
    async def acknowledge(request: Request, incident_id: IncidentIdInPath, word: Word = NO_WORD) -> Done:
        """Take it over: recorded, never acted upon by Holdfast."""
        return await with_incident(request, "acknowledge", word, incident_id)

    @router.post("/v1/incidents/{incident_id}/close", responses=answers(404, 409))
    async def close(request: Request, incident_id: IncidentIdInPath, word: Word = NO_WORD) -> Done:
        """Close it by hand. Of an order to replace a machine that has not begun: withdraw it, and the node is put back."""
        return await with_incident(request, "close", word, incident_id)

    @router.post("/v1/incidents/{incident_id}/retry", responses=answers(404, 409))
    async def retry(request: Request, incident_id: IncidentIdInPath, word: Word = NO_WORD) -> Done:
        """Continue the repair of an incident that waits for an operator."""
        return await with_incident(request, "retry", word, incident_id)

    return router


def _refuse_other_names(brake: str) -> None:
    """Raises ApiError 404 for what no brake is called."""
    if re.match(BRAKE_NAME, brake) is None:
        text = "There is no such brake: drains, or drains@SET; GET /v1/nodes lists those that hold"
        raise ApiError(404, "not_found", text)


def _in_service(world: World | None, incident_id: str) -> bool:
    """Whether Slurm shows the incident's node in service."""
    incident = world.book.incidents.get(incident_id) if world is not None else None
    node = world.view.nodes.get(incident.node) if world is not None and world.view is not None and incident else None
    return node is not None and not node.out_of_service
