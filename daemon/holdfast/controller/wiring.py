"""Where adapters meet the core: the only place, beside the command line, that knows which ones there are."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from uvicorn import Server

from holdfast.api.app import create_app
from holdfast.api.deps import ApiDeps
from holdfast.api.hub import OrderHub
from holdfast.api.server import build_server
from holdfast.clock import SystemClock
from holdfast.config.controller import Settings
from holdfast.controller.actor import Actor
from holdfast.controller.agents import AgentRegistry
from holdfast.controller.loop import ControlLoop
from holdfast.controller.notify import AppriseNotifier, LogNotifier
from holdfast.controller.observe import Observer, SlurmWatch
from holdfast.controller.outside import Outside
from holdfast.controller.poke import Alone, Bell, Ringer
from holdfast.controller.provider_watch import ProviderWatch
from holdfast.controller.quorum_link import QuorumLink
from holdfast.controller.quorum_watch import QuorumWatch
from holdfast.model.ids import incident_id
from holdfast.ports import Clock, Notifier, Provider, Scheduler
from holdfast.providers import KINDS, open_provider
from holdfast.slurm import open_scheduler
from holdfast.store import SqlStore, open_store


@dataclass
class Controller:
    """The parts of one controller process, ready to run."""

    loop: ControlLoop
    store: SqlStore
    bell: Bell
    hub: OrderHub
    deps: ApiDeps
    settings: Settings
    alone: Alone
    """Held for the life of the process."""

    def server(self) -> Server:
        """The HTTP server around the API, to be served in the caller's event loop."""
        section = self.settings.server
        return build_server(
            create_app(self.deps),
            host=section.host,
            port=section.port,
            tls_cert=str(section.tls_cert) if section.tls_cert else None,
            tls_key=str(section.tls_key) if section.tls_key else None,
        )


def holder_of(settings: Settings) -> str:
    """Name under which this controller takes the lease; its actor acts for the same name."""
    return settings.run.holder or socket.gethostname()


def scheduler_of(settings: Settings) -> Scheduler:
    """Slurm; where drained nodes are given away, with holds by reservation in the place of drains."""
    env = dict(os.environ)
    if settings.cluster.slurm_conf is not None:
        env["SLURM_CONF"] = str(settings.cluster.slurm_conf)
    reserve = KINDS[settings.provider].gives_drained_away
    return open_scheduler(settings.cluster.slurm_client, env=env, reserve=reserve)


def provider_of(settings: Settings) -> Provider:
    return open_provider(settings.provider, settings.provider_settings, scheduler=scheduler_of(settings))


def notifier_of(settings: Settings) -> Notifier:
    return AppriseNotifier(settings.notify.urls) if settings.notify.urls else LogNotifier()


def new_ids() -> Callable[[datetime], str]:
    """Incident ids from the time and fresh randomness."""
    return lambda at: incident_id(at, secrets.randbits(15))


def build_controller(settings: Settings) -> Controller:
    """Open the store (migrating it) and put the controller together. Raises ConfigError, Unavailable."""
    clock: Clock = SystemClock()
    alone = Alone(settings.run.dir / "controller.lock")
    store = open_store(settings.store.url)
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
    keep = timedelta(days=settings.store.keep_days)
    loop = ControlLoop(observer, store, hub, holder_of(settings), ringer.ring, new_ids(), keep=keep, prune=store.prune)
    rooms = QuorumLink(settings.quorum.socket) if settings.quorum.enabled else None
    if rooms is not None:
        loop.rooms = QuorumWatch(rooms, store, clock)
    deps = ApiDeps(
        store=store,
        agents=agents,
        clock=clock,
        wake=loop.wake.set,
        world=lambda: loop.world,
        orders=hub,
        loop_turned_at=lambda: loop.turned_at_s,
        leader=lambda: loop.leads,
        rooms=rooms,
        quorum=settings.quorum,
        look=loop.look.set,
    )
    return Controller(loop, store, Bell(controller_socket(settings)), hub, deps, settings, alone)


@dataclass
class ActorParts:
    """The parts of one actor process, ready to run."""

    actor: Actor
    watch: ProviderWatch
    bell: Bell
    alone: Alone
    """Held for the life of the process."""


def build_actor(settings: Settings) -> ActorParts:
    """The actor with every adapter that it may use. Raises ConfigError, Unavailable."""
    alone = Alone(settings.run.dir / "actor.lock")
    clock: Clock = SystemClock()
    store = open_store(settings.store.url)
    outside = Outside(
        scheduler=scheduler_of(settings),
        provider=provider_of(settings),
        notifier=notifier_of(settings),
        clock=clock,
        sleep=time.sleep,
        marks=lambda: dict(store.load_book(clock.now()).marks),
        spare_reservation=settings.policy.spare_reservation,
    )
    bell = Bell(actor_socket(settings))
    controller, own = Ringer(controller_socket(settings)), Ringer(actor_socket(settings))

    def ring() -> None:
        controller.ring()
        own.ring()

    actor = Actor(store, outside, holder_of(settings), bell.wait, ring)
    return ActorParts(
        actor, ProviderWatch(store, outside.provider, outside.scheduler, clock, controller.ring), bell, alone
    )


def actor_socket(settings: Settings) -> Path:
    return settings.run.dir / "actor.sock"


def controller_socket(settings: Settings) -> Path:
    return settings.run.dir / "controller.sock"
