"""Requests of agents for their elastic jobs: the rendezvous where a group meets the others, and its secret."""

from __future__ import annotations

import logging
import threading
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.callers.auth import Role
from holdfast.api.callers.quota import Load
from holdfast.api.deps import Api
from holdfast.api.errors import ApiError, answers
from holdfast.api.requests import examples
from holdfast.api.requests.body import parse_object, read_body
from holdfast.api.requests.wire import parse
from holdfast.controller.quorum.quorum_names import ask_room
from holdfast.decisions.common import slurm_view
from holdfast.decisions.common.elastic_jobs import ElasticJob, elastic_jobs
from holdfast.decisions.elastic.admission import Admission, AdmissionReason, AdmissionRefusal, RendezvousRequest, admit
from holdfast.model.book import World
from holdfast.model.elastic_jobs.rooms import OpenRoom, RoomRules
from holdfast.model.slurm.cluster import ClusterView
from holdfast.ports import QuorumRooms

log = logging.getLogger(__name__)

LIMIT_BYTES = 4096
_MOST = 2**32 - 1
_NOT_READ = "Slurm has not been read of late; try again"


class RoomBody(BaseModel):
    """A group's launcher, as the kernel and slurmd showed it to the agent."""

    model_config = ConfigDict(strict=True)

    job_id: int = Field(ge=1, le=_MOST)
    uid: int = Field(ge=0, le=_MOST)
    restarts: int = Field(ge=0, le=_MOST)


def rooms_router(api: Api) -> APIRouter:
    router = APIRouter(tags=["agents"])
    desk = _Desk(api)

    @router.post(
        "/v1/agent/room",
        openapi_extra=examples.room(RoomBody),
        responses=answers(400, 401, 403, 404, 409, 413, 422, 429, 503),
    )
    async def room(request: Request) -> Response:
        """The rendezvous of an elastic job's group that runs on the caller's node; opened where it is not yet.

        404: this run has none. 409 with `retry: true`: not as Slurm shows it now. 503: nothing can be said or opened now."""
        return await desk.answer(request)

    return router


class _Desk:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._deps = api.deps
        self._opening = threading.Lock()

    async def answer(self, request: Request) -> Response:
        caller = await self._api.auth.caller(request, Role.AGENT)
        self._api.quota.take(caller, {Load.ROOMS: 1})
        body = parse(RoomBody, parse_object(await read_body(request, LIMIT_BYTES)))
        rooms, world = self._rooms(), self._world()
        view = self._view(world)
        found = admit(
            view, elastic_jobs(view), RendezvousRequest(caller.node or "", body.job_id, body.uid, body.restarts)
        )
        if isinstance(found, AdmissionRefusal):
            return self._refuse(found, body.job_id)
        job, section = found.job, self._deps.quorum
        times_s = section.heartbeat_timeout_s, section.join_timeout_s
        rules = RoomRules(job.sizes.least, job.sizes.most, *times_s, groups=1 + job.groups[-1].index)
        name, opened = await self._api.threads.write(self._open, rooms, world, job, rules)
        log.info("event=room_told room=%s node=%s start=%s", name, caller.node, found.group.start)
        return JSONResponse(_answer(found, name, opened))

    def _open(self, rooms: QuorumRooms, world: World, job: ElasticJob, rules: RoomRules) -> tuple[str, OpenRoom]:
        """One at a time: where neither Slurm nor the memory has the name, the first one that is opened becomes the name."""
        with self._opening:
            name = ask_room(world, rooms, job).room
            return name, rooms.open(name, rules)

    def _rooms(self) -> QuorumRooms:
        if not self._deps.leader():
            raise ApiError(503, "unavailable", "This controller does not lead now; ask the other one")
        if self._deps.rooms is None:
            raise ApiError(503, "unavailable", "This site runs no quorum service: controller.toml, [quorum] enabled")
        return self._deps.rooms

    def _world(self) -> World:
        world = self._deps.world()
        if world is None:
            raise ApiError(503, "unavailable", _NOT_READ)
        return world

    def _view(self, world: World) -> ClusterView:
        view = slurm_view.fresh_view(world)
        if view is None:
            raise ApiError(503, "unavailable", _NOT_READ)
        return view

    def _refuse(self, refusal: AdmissionRefusal, job_id: int) -> Response:
        if refusal.why is AdmissionReason.NEVER:
            raise ApiError(404, "not_found", refusal.line)
        if refusal.why is AdmissionReason.NOT_YET:
            self._deps.look(job_id)
        error = {"code": "not_yet", "message": refusal.line, "field": None}
        return JSONResponse({"error": error, "retry": True}, status_code=409)


def _answer(found: Admission, name: str, opened: OpenRoom) -> dict[str, Any]:
    job = found.job
    return {
        "room": name,
        "url": opened.url,
        "token": opened.token,
        "group": found.group.index,
        "start": found.group.start,
        "min": job.sizes.least,
        "max": job.sizes.most,
        "sizes": list(job.sizes.legal),
        "spares": job.spec.spares,
    }
