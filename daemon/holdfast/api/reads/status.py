"""The picture of the parts, read from what the API has at hand."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from holdfast import __version__
from holdfast.api.answers.restraint_shapes import RestraintsShape
from holdfast.api.answers.status_shapes import PartShape, StatusShape
from holdfast.api.check_policy.agent_policies import older, refused
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.guards.guarded import READERS, guarded_router
from holdfast.api.shown.restraints import Head, restraints_shape
from holdfast.api.shown.views import agent_counts, newest_reading, slurm_read_at
from holdfast.decisions.parts import Vitals, parts_of
from holdfast.model.errors import Unavailable
from holdfast.model.parts import not_ready

PING_EVERY_S = 1.0
"""Any client may ask ``/readyz``, so the database is asked no more often than this."""


class StoreHealth:
    """Whether the database answers a question."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._asked_s = float("-inf")
        self._problem: str | None = None

    async def problem(self) -> str | None:
        """Why it does not; None: it does."""
        now_s = self._api.deps.clock.monotonic_s()
        if now_s - self._asked_s >= PING_EVERY_S:
            self._asked_s = now_s
            try:
                await self._api.threads.read(self._api.deps.store.ping)
                self._problem = None
            except Unavailable as error:
                self._problem = str(error)
        return self._problem


def vitals(deps: ApiDeps, ping_problem: str | None = None) -> Vitals:
    """All of it as it is now; nothing here asks the store."""
    world, now, seen_at = deps.world(), deps.clock.now(), deps.slurm_seen_at()
    return Vitals(
        now=now,
        now_s=deps.clock.monotonic_s(),
        mode=world.policy.mode if world is not None else None,
        turned_s=deps.loop_turned_at(),
        loop_late_s=deps.settings.loop_late_s,
        trouble=deps.trouble(),
        ping_problem=ping_problem,
        committed_s=deps.committed_at(),
        write_late_s=deps.settings.write_late_s,
        disk=deps.disk(),
        leads=deps.leader(),
        led_by=deps.led_by(),
        actor=deps.actor(),
        notifier=deps.notifier(),
        untaken=deps.untaken.problem(),
        slurm_read_at=newest_reading(world, seen_at),
        slurm_fresh=slurm_read_at(world, seen_at, now) is not None,
        slurm_error=deps.slurm_error() or "",
        provider=world.book.provider if world is not None else None,
        agents=dict(agent_counts(world, deps.agents.views(), now)),
        older_checks=len(older(deps)),
        refused_checks=tuple(refused(deps)),
        certificate=deps.certificate(),
        connections=deps.connections.seen() if deps.connections is not None else None,
    )


def head_of(deps: ApiDeps) -> Head:
    """What this controller knows of itself, now."""
    return Head(deps.leader(), deps.led_by(), deps.trouble(), deps.disk(), deps.mode)


def status_router(api: Api, health: StoreHealth) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)

    @router.get("/v1/status", response_model=StatusShape)
    async def status() -> Response:
        """Each part of this head node and what it depends on: its state, and what to do."""
        deps, ping_problem = api.deps, await health.problem()

        def shown() -> StatusShape:
            seen = vitals(deps, ping_problem)
            return status_shape(seen, restraints_shape(deps.world(), seen.now, head_of(deps)))

        return await api.threads.render(shown)

    return router


def status_shape(seen: Vitals, restraints: RestraintsShape) -> StatusShape:
    parts = parts_of(seen)
    why = not_ready(parts)
    return StatusShape(
        **dict(restraints),
        release=__version__,
        ready=why is None,
        why=why,
        parts=[PartShape.model_validate(p) for p in parts],
        last_write_age_s=None if seen.committed_s is None else seen.now_s - seen.committed_s,
        actor_silent_s=None if seen.actor is None else seen.actor.silent_s,
        disk_free_bytes=None if seen.disk is None else seen.disk.free_bytes,
        store_bytes=None if seen.disk is None else seen.disk.store_bytes,
    )
