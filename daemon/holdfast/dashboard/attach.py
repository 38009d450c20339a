"""Puts the dashboard on the controller's application."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from fastapi import APIRouter, FastAPI
from starlette.requests import Request

from holdfast.api.answers.login_shapes import LoginShape, NewLogin
from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api, ApiStore
from holdfast.api.figures.measuring import opened_within
from holdfast.api.figures.overview import night_shape, overview_shape, saved_shape
from holdfast.api.guards.guarded import READERS, caller_of, guarded_router
from holdfast.api.reads.spares import spares_shape
from holdfast.api.reads.status import StoreHealth
from holdfast.api.shown.views import agent_statuses
from holdfast.config.sections import DashboardSection
from holdfast.dashboard import charts, render
from holdfast.dashboard.browsers import BrowserGate
from holdfast.dashboard.feed import LiveFeed
from holdfast.dashboard.pages import Pages
from holdfast.dashboard.problems import show_errors
from holdfast.dashboard.proxied import ProxyTrust
from holdfast.dashboard.routes import Dashboard, dashboard_router
from holdfast.dashboard.screen import DAY, Figures, FirstScreen, grid, listed, troubles
from holdfast.dashboard.sessions import CODE_S, BrowserSessions
from holdfast.metrics.figures import summarize
from holdfast.metrics.night import MANUAL_MINUTES
from holdfast.model.incidents.incident import Incident

FIGURES_EVERY_S = 60.0
RECENT_EVERY_S = 5.0
MOST_INCIDENTS = 2000
"""Incidents of the last day on the timeline."""
PIECES = ("now", "tiles", "nodes", "incidents", "timeline")


def attach(app: FastAPI, section: DashboardSection, proxy: ProxyTrust | None = None) -> None:
    """Serve the dashboard with the application of :func:`holdfast.api.app.create_app`. ``proxy``: one in front where people sign in."""
    api: Api = app.state.api
    sessions = BrowserSessions(api.deps.clock.monotonic_s, section.session_hours * 3600)
    pages = Pages(render.environment(), api.deps.clock.now)
    maker = ScreenMaker(api, pages, StoreHealth(api))
    board = Dashboard(
        app, api, sessions, LiveFeed(maker.pieces, api.deps.clock.monotonic_s), pages, section.proxy_sign_out
    )
    app.include_router(login_router(api, sessions))
    app.include_router(dashboard_router(board))
    show_errors(app, pages)
    hosts = _names(section)
    app.add_middleware(BrowserGate, sessions=sessions, hosts=lambda: hosts, proxy=proxy)


def _names(section: DashboardSection) -> frozenset[str]:
    own = (socket.gethostname(), socket.getfqdn())
    return frozenset(name.lower().removesuffix(".") for name in (*own, *section.hosts) if name)


def login_router(api: Api, sessions: BrowserSessions) -> APIRouter:
    router = guarded_router(api, "operating", *READERS, Role.USER)

    @router.post("/v1/logins")
    async def login(request: Request, wanted: NewLogin) -> LoginShape:
        """A code with which a browser signs in once, within two minutes, with no more rights than this token."""
        code = sessions.code(caller_of(request).token, read_only=wanted.read_only)
        return LoginShape(code=code, expires_s=CODE_S)

    return router


@dataclass
class ScreenMaker:
    """Makes the first screen. What is of the last minutes and days is read now and then, the rest each time."""

    api: Api
    pages: Pages
    health: StoreHealth
    _figures: Figures = field(default_factory=Figures)
    _figures_s: float = float("-inf")
    _recent: tuple[Incident, ...] = ()
    _recent_s: float = float("-inf")

    async def pieces(self) -> Mapping[str, str]:
        """Each part of the page, by the id of its element. Raises ApiError, OutsideError."""
        problem = await self.health.problem()
        return await self.api.threads.read(self._made, problem)

    def _made(self, problem: str | None) -> Mapping[str, str]:
        screen = self._screen(problem)
        pitch = charts.pitch_of(screen.nodes)
        rows, more = charts.timeline(screen.troubles, screen.now)
        given = {
            "screen": screen,
            "drawings": [charts.draw(g, pitch) for g in screen.groups],
            "rows": rows,
            "more_rows": more,
            "marks": charts.MARKS,
            "words": charts.TROUBLE_WORDS,
        }
        return {name: self.pages.text(f"pieces/{name}.html", **given) for name in PIECES}

    def _screen(self, problem: str | None) -> FirstScreen:
        deps = self.api.deps
        world, now, now_s = deps.world(), deps.clock.now(), deps.clock.monotonic_s()
        if problem is None:
            if now_s - self._figures_s >= FIGURES_EVERY_S:
                self._figures, self._figures_s = self._read_figures(deps.store), now_s
            if now_s - self._recent_s >= RECENT_EVERY_S:
                recent = deps.store.list_incidents(since=now - 2 * DAY, limit=MOST_INCIDENTS)
                self._recent, self._recent_s = tuple(recent), now_s
        opened = world.book.open_incidents() if world is not None else ()
        known = {i.id: i for i in (*self._recent, *opened)}
        spares = spares_shape(world)
        view = world.view if world is not None else None
        return FirstScreen(
            cluster=deps.cluster_name() or (view.cluster if view is not None else ""),
            now=now,
            overview=overview_shape(deps, problem, None),
            groups=grid(world, agent_statuses(world, deps.agents.views(), now)),
            incidents=listed(opened),
            troubles=troubles(known.values(), now),
            spares_ready=spares.ready,
            spares_wanted=spares.wanted,
            figures=self._figures,
        )

    def _read_figures(self, store: ApiStore) -> Figures:
        now = self.api.deps.clock.now()
        month = timedelta(days=30)
        measured = store.figures_since(now - 2 * month)
        this = summarize([i for i in measured if opened_within(i, now - month, now)])
        before = summarize([i for i in measured if opened_within(i, now - 2 * month, now - month)])
        week = night_shape(self.api.deps, now - timedelta(days=7), now)
        saved = saved_shape(store, now - month, now, MANUAL_MINUTES)
        return Figures(
            jobs_back=week.jobs_back,
            jobs_stopped=week.jobs,
            mttr=this.mttr,
            mttr_before=before.mttr,
            lost_gpu_hours=this.lost_gpu_hours,
            saved_gpu_hours=saved.saved_gpu_hours,
        )
