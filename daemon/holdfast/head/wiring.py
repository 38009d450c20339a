"""Wiring of adapters and core: the only module, apart from the command line, that knows which adapters exist."""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.actor.actor import Actor
from holdfast.actor.adapters import Outside
from holdfast.actor.begun import Begun
from holdfast.actor.limits import ActorLimits
from holdfast.actor.notice_desk import DigestTime, NoticeDesk
from holdfast.actor.owner_desk import OwnerDesk
from holdfast.actor.provider_watch import ProviderWatch
from holdfast.clock import SystemClock
from holdfast.config.controller import ControllerSettings
from holdfast.config.notify import clock_of
from holdfast.config.sections import OwnersSection
from holdfast.controller import lease_holder
from holdfast.controller.wakeup import Alone, Bell, Ringer
from holdfast.decisions.machines.disputes import claimants
from holdfast.decisions.nodes.hands_off import own_reservations
from holdfast.head.notify import links_of, notifier_for, owner_address, places_of, wrong_addresses
from holdfast.head.pager import Pager
from holdfast.head.paging import ActorPaging
from holdfast.head.process_state import StateReader, StateWriter
from holdfast.model.errors import OutsideError
from holdfast.model.notice import NoticePolicy
from holdfast.model.parts import NotifierState
from holdfast.model.policies.lookback import needed
from holdfast.ports import Clock, Provider, Scheduler, Store
from holdfast.providers import KINDS, open_provider
from holdfast.slurm import open_scheduler
from holdfast.store import open_store

log = logging.getLogger(__name__)


def announce(settings: ControllerSettings) -> None:
    """Log the settings of this process that differ from the defaults."""
    log.info("event=start mode=%s provider=%s config=%s", settings.policy.mode.value, settings.provider, settings.path)
    for key, value in settings.profile_changes.items():
        log.info("event=profile profile=%s key=%s value=%r", settings.profile, key, value)


def controller_name(settings: ControllerSettings) -> str:
    """Name of this controller for operators; not necessarily unique."""
    return settings.run.holder or socket.gethostname()  # rule host-name: for people; the process's id is random


def scheduler_of(settings: ControllerSettings) -> Scheduler:
    """The Slurm adapter; where drained nodes are given away, it uses reservations in place of drains."""
    env = dict(os.environ)
    if settings.cluster.slurm_conf is not None:
        env["SLURM_CONF"] = str(settings.cluster.slurm_conf)
    reserve = KINDS[settings.provider].gives_drained_away
    return open_scheduler(settings.cluster.slurm_client, env=env, reserve=reserve)


def provider_of(settings: ControllerSettings) -> Provider:
    return open_provider(settings.provider, settings.provider_settings, scheduler=scheduler_of(settings))


@dataclass
class ActorParts:
    """The parts of one actor process, ready to run."""

    actor: Actor
    watch: ProviderWatch
    bell: Bell
    alone: Alone
    """Held for the life of the process."""
    state: StateWriter
    """The actor's state as the controller on this machine sees it."""
    paging: ActorPaging


def build_actor(settings: ControllerSettings) -> ActorParts:
    """The actor with every adapter that it may use. Raises ConfigError, Unavailable."""
    alone = Alone(actor_lock(settings))
    clock: Clock = SystemClock()
    store = open_store(settings.store.url, needed(settings.policy))
    notifier = notifier_for(settings.notify, settings.path.parent, clock, settings.cluster.name)
    outside = Outside(
        scheduler=scheduler_of(settings),
        provider=provider_of(settings),
        notifier=notifier,
        clock=clock,
        sleep=time.sleep,
        marks=lambda: dict(store.load_book(clock.now()).marks),
        own_reservations=lambda: own_reservations(store.load_book(clock.now()), settings.policy.spare_reservation),
        claims=lambda instance_id: claimants(store.load_book(clock.now()), instance_id),
        spare_reservation=settings.policy.spare_reservation,
        maintenance=settings.policy.maintenance,
        node_orders=settings.actor.node_orders,
    )
    bell = Bell(actor_socket(settings))
    controller, own = Ringer(controller_socket(settings)), Ringer(actor_socket(settings))

    def ring() -> None:
        controller.ring()
        own.ring()

    lock, former = controller_lock(settings), settings.run.dir / "controller.lock"  # of the previous release
    name = controller_name(settings)
    watch = ProviderWatch(store, outside.provider, outside.scheduler, clock, controller.ring)
    limits = ActorLimits(
        settings.actor.dir,
        settings.policy,
        settings.actor.limit_factor,
        clock.now,
        lambda: len(outside.scheduler.all_nodes()),
        watch.going,
    )
    desk = desk_of(settings, store, outside.scheduler, clock)
    actor = Actor(
        store,
        outside,
        lambda: lease_holder.beside(lease_holder.latest(lock, former), name),
        bell.wait,
        ring,
        mode=settings.policy.mode,
        policy=settings.policy,
        limits=limits,
        begun=Begun(settings.actor.dir),
        desk=desk,
        owners=owner_desk_of(settings, store, clock),
    )
    paging = ActorPaging(
        StateReader(controller_state(settings), clock.monotonic_s),
        lambda: actor.problem,
        Pager(notifier, settings.run.dir / "actor" / "pages", clock.monotonic_s),
        name,
    )
    state = StateWriter(actor_state(settings), clock.monotonic_s, lambda: worse(desk.state(), notifier.state()))
    return ActorParts(actor, watch, bell, alone, state, paging)


def desk_of(settings: ControllerSettings, store: Store, scheduler: Scheduler, clock: Clock) -> NoticeDesk:
    """Sends the notices, by the addresses of ``[notify]``. Raises ConfigError."""
    section, folder = settings.notify, settings.path.parent
    places = places_of(section, folder, clock, settings.cluster.name)

    def partitions(name: str) -> frozenset[str] | None:
        try:
            return frozenset(scheduler.node(name).partitions)
        except OutsideError:
            return None

    return NoticeDesk(
        store,
        clock,
        places,
        NoticePolicy(section.group_s, section.repeat_s, section.most_per_hour),
        links_of(section, settings.cluster.name),
        DigestTime(*clock_of(section.digest_at, "notify.digest_at")),
        partitions,
        problem="; ".join(wrong_addresses([place.address for place in places])),
    )


def owner_desk_of(settings: ControllerSettings, store: Store, clock: Clock) -> OwnerDesk:
    """Sends the mails to jobs' owners, by ``[notify.owners]``. Raises ConfigError."""
    section = settings.notify.owners or OwnersSection()
    to = owner_address(section, settings.path.parent, clock)
    return OwnerDesk(store, clock, to, section.pause_s, settings.cluster.name)


def worse(one: NotifierState, other: NotifierState) -> NotifierState:
    """The one of two states that an operator has to know."""
    return one if one.error or not other.error else replace(other, addresses=one.addresses)


def controller_lock(settings: ControllerSettings) -> Path:
    """Lock file that the controller holds for its lifetime; identifies the process."""
    return settings.run.dir / "controller" / "lock"


def actor_lock(settings: ControllerSettings) -> Path:
    """Lock file that the actor holds for its lifetime."""
    return settings.run.dir / "actor" / "lock"


def actor_state(settings: ControllerSettings) -> Path:
    """State file of the actor."""
    return settings.run.dir / "actor" / "state"


def controller_state(settings: ControllerSettings) -> Path:
    """State file of the controller."""
    return settings.run.dir / "controller" / "state"


def actor_socket(settings: ControllerSettings) -> Path:
    return settings.run.dir / "actor" / "bell"


def controller_socket(settings: ControllerSettings) -> Path:
    return settings.run.dir / "controller" / "bell"
