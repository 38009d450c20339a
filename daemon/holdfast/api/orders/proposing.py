"""Proposals: what waits for an operator's accept, and their answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request

from holdfast.api.answers.operator_shapes import Word
from holdfast.api.answers.proposal_shapes import NewSnooze, ProposalShape, ProposalsShape, proposal_shape, proposals_of
from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api, ApiStore
from holdfast.api.errors import ApiError, answers
from holdfast.api.guards.guarded import READERS, caller_of, guarded_router
from holdfast.api.orders.operating import NO_WORD
from holdfast.api.requests.wire import clean
from holdfast.model.operators.proposals import LIVE, Answer, parse_id
from holdfast.ports import Operation

ProposalId = Annotated[
    str, Path(pattern=r"^[0-9a-z]{12}\.[1-9][0-9]{0,5}$", description="As the list of proposals shows it.")
]
MOST_INCIDENTS = 5000
"""Open incidents whose proposals are listed."""


def proposing_router(api: Api) -> APIRouter:
    reading = guarded_router(api, "reading", *READERS)
    operating = guarded_router(api, "operating", Role.OPERATOR)
    deps = api.deps

    @reading.get("/v1/proposals")
    async def proposals(
        every: Annotated[
            bool, Query(alias="all", description="Also answered and withdrawn ones of open incidents.")
        ] = False,
    ) -> ProposalsShape:
        """Steps that wait for an operator's accept, oldest first: open, snoozed and expired ones."""
        return ProposalsShape(proposals=await api.threads.read(_listed, deps.store, every=every))

    async def answer(
        request: Request, verb: Answer, name: str, reason: str, until_s: float | None = None
    ) -> ProposalShape:
        now = deps.clock.now()
        until = now + timedelta(seconds=until_s) if until_s is not None else None
        order = Operation(verb.value, caller_of(request).name, name, clean(reason, 500), until=until)

        def done() -> (
            ProposalShape
        ):  # in one call: a refusal for want of room after the order would be one of an order that is done
            deps.store.operate(order, now)
            return _one(deps.store, name)

        shown = await api.threads.write(done)
        deps.wake()
        return shown

    @operating.post("/v1/proposals/{proposal_id}/accept", responses=answers(404, 409))
    async def accept(request: Request, proposal_id: ProposalId, word: Word = NO_WORD) -> ProposalShape:
        """Let the step be done, once, in the situation that this id names; brakes and every other check still hold it."""
        return await answer(request, Answer.ACCEPT, proposal_id, word.reason, deps.policy.propose.accepted_s)

    @operating.post("/v1/proposals/{proposal_id}/dismiss", responses=answers(404, 409))
    async def dismiss(request: Request, proposal_id: ProposalId, word: Word = NO_WORD) -> ProposalShape:
        """Never do it for this incident, unless the incident becomes worse. Takes back an accept that was not used yet."""
        return await answer(request, Answer.DISMISS, proposal_id, word.reason)

    @operating.post("/v1/proposals/{proposal_id}/snooze", responses=answers(404, 409))
    async def snooze(request: Request, proposal_id: ProposalId, wanted: NewSnooze) -> ProposalShape:
        """Ask again later."""
        return await answer(request, Answer.SNOOZE, proposal_id, wanted.reason, wanted.hours * 3600)

    @operating.post("/v1/proposals/{proposal_id}/reopen", responses=answers(404, 409))
    async def reopen(request: Request, proposal_id: ProposalId, word: Word = NO_WORD) -> ProposalShape:
        """Have a dismissed or expired one proposed again, under a new id, if it is still called for."""
        return await answer(request, Answer.REOPEN, proposal_id, word.reason)

    router = APIRouter()
    router.include_router(reading)
    router.include_router(operating)
    return router


def _listed(store: ApiStore, *, every: bool) -> list[ProposalShape]:
    found = [p for i in store.incidents(only_open=True, limit=MOST_INCIDENTS) for p in proposals_of(i)]
    kept = [p for p in found if every or p.state in LIVE]
    return sorted(kept, key=lambda p: (str(p.since), p.id))


def _one(store: ApiStore, name: str) -> ProposalShape:
    incident_id, number = parse_id(name)
    incident = store.incident(incident_id)
    record = next((r for r in incident.proposals if r.number == number), None) if incident is not None else None
    if incident is None or record is None:
        raise ApiError(404, "not_found", f"There is no proposal {name}; GET /v1/proposals lists them")
    return proposal_shape(incident, record)
