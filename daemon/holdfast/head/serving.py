"""Assembly of the controller's process: the control loop and the API around one store."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from uvicorn import Server

from holdfast import __version__
from holdfast.api.app import create_app
from holdfast.api.counters import ApiCounters
from holdfast.api.deps import ApiDeps
from holdfast.api.figures.exposing import Exposition, cluster_of
from holdfast.api.reads.status import vitals
from holdfast.api.transport.certificates import ends_at
from holdfast.api.transport.connections import Connections
from holdfast.api.transport.server import build_server, connections_for
from holdfast.clock import SystemClock
from holdfast.config.controller import ControllerSettings
from holdfast.controller.keeping.figures_keeper import FiguresKeeper
from holdfast.controller.keeping.totals_keeper import TotalsKeeper
from holdfast.controller.lease_holder import claim
from holdfast.controller.loop import ControlLoop
from holdfast.controller.observing.agents import AgentRegistry
from holdfast.controller.observing.neighbours import NeighbourLists
from holdfast.controller.observing.observe import Observer, SlurmWatch
from holdfast.controller.orders import OrderHub
from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.controller.quorum.quorum_watch import QuorumWatch
from holdfast.controller.timing.pace import FleetPace
from holdfast.controller.timing.survey_turns import SurveyTurns
from holdfast.controller.wakeup import Alone, Bell, Ringer
from holdfast.dashboard.attach import attach
from holdfast.dashboard.proxied import ProxyTrust, read_trust
from holdfast.decisions.parts import Certificate
from holdfast.head.disk import disk_room
from holdfast.head.emf import EmfWriter
from holdfast.head.notify import notifier_for
from holdfast.head.pager import Pager
from holdfast.head.paging import ControllerPaging
from holdfast.head.process_state import StateReader, StateWriter
from holdfast.head.sts import Sts
from holdfast.head.tracing import OtlpReceiver, TraceSender
from holdfast.head.wiring import (
    actor_socket,
    actor_state,
    controller_lock,
    controller_name,
    controller_socket,
    controller_state,
    scheduler_of,
)
from holdfast.metrics.traces import TraceAttributes
from holdfast.model.ids import incident_id
from holdfast.model.policies.lookback import needed
from holdfast.ports import Clock
from holdfast.store import SqlStore, open_store


@dataclass
class Controller:
    """The parts of one controller process, ready to run."""

    loop: ControlLoop
    store: SqlStore
    bell: Bell
    hub: OrderHub
    deps: ApiDeps
    settings: ControllerSettings
    alone: Alone
    """Held for the life of the process."""
    paging: ControllerPaging
    connections: Connections
    """Connections to the API."""
    totals: TotalsKeeper
    figures: FiguresKeeper
    traces: TraceSender | None
    """None: ``telemetry.otlp_url`` is empty."""
    emf: EmfWriter | None
    """None: ``telemetry.emf_file`` is empty."""
    proxy: ProxyTrust | None
    """In front of the dashboard; None: no proxy is believed."""

    def server(self) -> Server:
        """The HTTP server around the API, to be served in the caller's event loop."""
        section, app = self.settings.server, create_app(self.deps)
        if self.settings.dashboard.enabled:
            attach(app, self.settings.dashboard, self.proxy)
        return build_server(
            app,
            host=section.host,
            port=section.port,
            tls_cert=str(section.tls_cert) if section.tls_cert else None,
            tls_key=str(section.tls_key) if section.tls_key else None,
            connections=self.connections,
        )


def new_ids() -> Callable[[datetime], str]:
    """Incident ids from the time and fresh randomness."""
    return lambda at: incident_id(at, secrets.randbits(15))


def build_controller(settings: ControllerSettings) -> Controller:
    """Open the store (migrating it) and put the controller together. Raises ConfigError, Unavailable."""
    clock: Clock = SystemClock()
    alone = Alone(controller_lock(settings))
    store = open_store(settings.store.url, needed(settings.policy))
    holder = claim(alone, controller_name(settings))
    agents = AgentRegistry()
    hub = OrderHub(clock.monotonic_s)
    observer = Observer(
        store=store,
        slurm=SlurmWatch(scheduler_of(settings)),
        agents=agents,
        clock=clock,
        policy=settings.policy,
        cold_start_s=settings.run.cold_start_s,
    )
    ringer = Ringer(actor_socket(settings))
    keep, keep_reports = (timedelta(days=d) for d in (settings.store.keep_days, settings.store.keep_report_days))

    def prune(before: datetime) -> int:
        return store.prune(before, max(before, clock.now() - keep_reports))

    loop = ControlLoop(observer, store, hub, holder.id, ringer.ring, new_ids(), keep=keep, prune=prune)
    loop.ended = holder.ended
    rooms = QuorumLink(settings.quorum.socket) if settings.quorum.enabled else None
    if rooms is not None:
        loop.rooms = QuorumWatch(rooms, store, clock)
    notifier = notifier_for(settings.notify, settings.path.parent, clock, settings.cluster.name)
    actor = StateReader(actor_state(settings), clock.monotonic_s)
    cert, connections = settings.server.tls_cert, connections_for(settings.server)

    def fence() -> int | None:
        return loop.lease.fence if loop.leads and loop.lease is not None else None

    totals = TotalsKeeper(
        store,
        clock,
        fence,
        settings.provider,
        lambda: loop.world.view.cluster if loop.world is not None and loop.world.view is not None else "",
    )
    deps = ApiDeps(
        store=store,
        agents=agents,
        clock=clock,
        wake=loop.wake.set,
        world=lambda: loop.world,
        orders=hub,
        loop_turned_at=lambda: loop.turned_at_s,
        mode=settings.policy.mode,
        policy=settings.policy,
        leader=lambda: loop.leads,
        committed_at=lambda: loop.committed_s,
        led_by=lambda: loop.shown_leader,
        cluster_name=lambda: settings.cluster.name or totals.cluster,
        totals=lambda: totals.shown,
        rooms=rooms,
        quorum=settings.quorum,
        neighbours=NeighbourLists(lambda: loop.world, clock).of,
        surveys=SurveyTurns(lambda: loop.world, clock).of,
        heartbeat_s=FleetPace(lambda: loop.world, clock),
        enrolment=settings.enrolment,
        sts=Sts(settings.enrolment.sts_url) if settings.enrolment.enabled else None,
        look=loop.reader.asked_for,
        untaken=loop.untaken,
        trouble=lambda: loop.trouble,
        stage_times=loop.stages.seen,
        actor=actor.look,
        disk=lambda: disk_room(store.path),
        slurm_seen_at=lambda: observer.slurm.view.read_at if observer.slurm.view is not None else None,
        slurm_error=lambda: observer.slurm.error,
        certificate=lambda: Certificate(ends_at(cert)) if cert is not None else None,
        notifier=notifier.state,
        aside=lambda: tuple(each.what for each in loop.aside),
        connections=connections,
    )
    paging = ControllerPaging(
        lambda: vitals(deps),
        StateWriter(controller_state(settings), clock.monotonic_s, notifier.state),
        Pager(notifier, settings.run.dir / "controller" / "pages", clock.monotonic_s),
        controller_name(settings),
    )
    bell = Bell(controller_socket(settings))
    traces = _traces(settings, store, clock, fence, deps)
    return Controller(
        loop,
        store,
        bell,
        hub,
        deps,
        settings,
        alone,
        paging,
        connections,
        totals,
        FiguresKeeper(store, clock, fence),
        traces,
        _emf(settings, clock, deps),
        read_trust(settings.dashboard) if settings.dashboard.enabled else None,
    )


def _emf(settings: ControllerSettings, clock: Clock, deps: ApiDeps) -> EmfWriter | None:
    telemetry = settings.telemetry
    if not telemetry.emf_file:
        return None
    exposed = Exposition(deps, ApiCounters())
    return EmfWriter(exposed.families_of_cluster, deps.leader, clock, telemetry.emf_file, telemetry.emf_interval_s)


def _traces(
    settings: ControllerSettings, store: SqlStore, clock: Clock, fence: Callable[[], int | None], deps: ApiDeps
) -> TraceSender | None:
    telemetry = settings.telemetry
    if not telemetry.otlp_url:
        return None

    def resource() -> TraceAttributes:
        return {"service.name": "holdfast", "service.version": __version__, "slurm.cluster": cluster_of(deps)}

    return TraceSender(store, clock, fence, OtlpReceiver(telemetry.otlp_url, telemetry.otlp_header_file).send, resource)
