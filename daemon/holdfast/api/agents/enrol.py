"""A node's token for the identity of its machine on AWS (ADR 27): once for each machine, and by an operator's leave."""

from __future__ import annotations

import logging
import secrets
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, StringConstraints
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.callers.auth import hash_token
from holdfast.api.deps import Api
from holdfast.api.errors import ApiError, answers
from holdfast.api.requests import examples
from holdfast.api.requests.body import parse_object, read_body
from holdfast.api.requests.wire import Name, check_version, parse
from holdfast.bucket import Bucket
from holdfast.model.access.enrolment import EnrolmentProof, StsIdentity, judge, machines_of, why_not_sent
from holdfast.model.errors import Rejected, Unavailable

log = logging.getLogger(__name__)

LIMIT_BYTES = 16 * 1024
AT_ONCE = 2
"""Questions to STS at the same time."""
BURST, PER_S = 60.0, 1.0
"""Questions to STS: a cluster that starts asks once for each node, a stranger no more often."""
LOGGED, LOGGED_PER_S = 60.0, 0.2
"""Bound on log lines about refusals: anyone can cause them."""
Visible = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]+( [\x21-\x7e]+)*$", max_length=8192)]


class EnrolBody(BaseModel):
    """``POST /v1/enrol``."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: int
    node: Name
    controller: Visible
    date: Visible
    authorization: Visible
    security_token: Visible


def enrol_router(api: Api) -> APIRouter:
    router = APIRouter(tags=["enrolment"])
    enrolment = _Enrolment(api)

    @router.post(
        "/v1/enrol", openapi_extra=examples.enrol(EnrolBody.model_json_schema()), responses=answers(*_STATUSES)
    )
    async def enrol(request: Request) -> Response:
        """A token for the node whose machine signs a question to AWS' STS; 404 where `[enrolment]` is off."""
        return await enrolment.enrol(request)

    return router


_STATUSES = (400, 403, 404, 413, 422, 429, 503)


class _Enrolment:
    def __init__(self, api: Api) -> None:
        self._api, self._deps = api, api.deps
        self._bucket, self._logged = Bucket(BURST, PER_S), Bucket(LOGGED, LOGGED_PER_S)
        self._limiter: CapacityLimiter | None = None

    async def enrol(self, request: Request) -> Response:
        settings, sts = self._deps.enrolment, self._deps.sts
        if sts is None:
            raise ApiError(404, "not_found", "Enrolment is off here: [enrolment] enabled in controller.toml")
        message = parse_object(await read_body(request, LIMIT_BYTES))
        check_version(message)
        body = parse(EnrolBody, message)
        proof = EnrolmentProof(body.node, body.controller, body.date, body.authorization, body.security_token)
        if why := why_not_sent(proof, settings.names, self._deps.clock.now()):
            raise self._refused(proof, why)
        world = self._deps.world()
        if world is None or not self._deps.leader():
            raise ApiError(
                503, "unavailable", "This controller does not lead, or has not read the cluster yet; try again"
            )
        if not await self._awaited(proof.node, machines_of(world.book, proof.node)):
            raise self._refused(proof, f"no machine of it is awaited; holdfast token allow {proof.node}")
        identity = await self._ask(proof)
        verdict = judge(world.book, proof.node, identity, settings.roles)
        if verdict.refused:
            raise self._refused(proof, verdict.refused)
        return await self._give(proof, identity, needs_allowance=verdict.needs_allowance)

    async def _awaited(self, node: str, machines: frozenset[str]) -> bool:
        """STS is asked for no other node: what a stranger makes up leads to no question."""
        now = self._deps.clock.now()
        return await self._api.threads.read(lambda: self._deps.store.enrolment_open(node, machines, now))

    async def _ask(self, proof: EnrolmentProof) -> StsIdentity:
        sts, now_s = self._deps.sts, self._deps.clock.monotonic_s()
        if not self._bucket.take(now_s):
            wait_s = max(1, round(self._bucket.wait_s(now_s)))
            raise ApiError(429, "limited", "Too many ask for tokens; try again", retry_after_s=wait_s)
        self._limiter = self._limiter or CapacityLimiter(AT_ONCE)
        try:
            assert sts is not None  # noqa: S101 - asked before
            return await to_thread.run_sync(sts.identity, proof, limiter=self._limiter)
        except Unavailable as error:
            raise ApiError(503, "unavailable", f"{error}; try again") from None
        except Rejected as error:
            raise self._refused(proof, str(error)) from None

    async def _give(self, proof: EnrolmentProof, identity: StsIdentity, *, needs_allowance: bool) -> Response:
        token, now = secrets.token_urlsafe(32), self._deps.clock.now()
        hashed = hash_token(token)
        try:
            await self._api.threads.write(
                lambda: self._deps.store.enrol(
                    proof.node, identity.instance_id, hashed, now, needs_allowance=needs_allowance
                )
            )
        except Rejected as error:
            raise self._refused(proof, str(error)) from None
        log.warning(
            "event=enrolled node=%s instance=%s role=%s hash=%s allowed=%s",
            proof.node, identity.instance_id, identity.who, hashed[:12], "operator" if needs_allowance else "record",
        )  # fmt: skip
        return JSONResponse({"token": token, "node": proof.node})

    def _refused(self, proof: EnrolmentProof, why: str) -> ApiError:
        if self._logged.take(self._deps.clock.monotonic_s()):
            log.warning("event=enrolment_refused node=%s reason=%r", proof.node, why)
        return ApiError(403, "forbidden", f"No token for {proof.node}: {why}")
