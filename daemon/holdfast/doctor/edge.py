"""The doctor's edge: asks Slurm, the kernel and the provider, and tries harmlessly what it may do."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from holdfast.config.controller import ControllerSettings
from holdfast.config.sections import ServerSection
from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.doctor.advice import Advice
from holdfast.doctor.diagnose import diagnose
from holdfast.doctor.facts import Aside, ControllerFacts, DoctorFacts, PluginFacts, QuorumFacts, SlurmFacts
from holdfast.doctor.gather import exposed, metadata_edge, plugin_facts, tls_edge
from holdfast.doctor.gather.provider_edge import NO_SUCH_NODE, Examined, examine, metadata_options
from holdfast.head.disk import disk_room
from holdfast.model.access.tokens import TokenRow
from holdfast.model.agents.report import AgentView
from holdfast.model.elastic_jobs.elastic import ELASTIC_WORD
from holdfast.model.errors import NotFound, NotPermitted, OutsideError, Rejected, Unavailable
from holdfast.model.policies.policy import Policy
from holdfast.ports import Provider, QuorumRooms, Scheduler
from holdfast.store.mounts import mount_type, network_type
from holdfast_checks.aside import FilesSetAside

NO_SUCH_RESERVATION = "holdfast-doctor-no-such-reservation"
"""Slurm checks the caller's right before it looks a node or a reservation up: to change one that is not there shows the right and
changes nothing."""
NODES_ASKED = 16
"""The provider is asked for the machines of at most this many nodes, until it has one."""


@dataclass(frozen=True, slots=True)
class DoctorSite:
    """What the doctor wants to know of the site's configuration."""

    policy: Policy = field(default_factory=Policy)
    store_path: Path | None = None
    """File of an SQLite store; None: another database."""
    provider: Provider | None = None
    """None: there is none that could be asked."""
    rooms: QuorumRooms | None = None
    """The quorum service; None: the site has none."""
    rooms_bind: str = ""
    """Address that its rendezvous listen on."""
    rooms_aside: Callable[[], FilesSetAside] | None = None
    """What the quorum service has set aside; None: it cannot be asked. May raise OutsideError."""
    actor_state: Path | None = None
    """The file that the actor of this machine writes about itself; its owner is the actor's account. None: not looked for."""
    controller_state: Path | None = None
    """The same of the controller."""
    settings: Path | None = None
    """``controller.toml``; None: not looked at."""
    secrets: tuple[Path, ...] = ()
    """Files with passwords, keys, or addresses that hold one."""
    script: tuple[str, ...] = ()
    """Command of the provider's script; empty: it has none."""
    server: ServerSection = field(default_factory=ServerSection)
    """Where the controller listens, and with which certificate."""


_SQLITE = "sqlite:///"


def site_of(settings: ControllerSettings, provider: Provider | None = None) -> DoctorSite:
    """The site as ``controller.toml`` describes it."""
    url = settings.store.url
    rooms = QuorumLink(settings.quorum.socket) if settings.quorum.enabled else None
    path = Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None
    aside = rooms.set_aside if rooms is not None else None
    return DoctorSite(
        settings.policy,
        path,
        provider,
        rooms,
        settings.quorum.bind,
        aside,
        settings.run.dir / "actor" / "state",
        settings.run.dir / "controller" / "state",
        settings.path,
        _secrets(settings),
        getattr(settings.provider_settings, "command", ()),
        settings.server,
    )


def _secrets(settings: ControllerSettings) -> tuple[Path, ...]:
    """Files that hold one, and the settings themselves where they do."""
    notify, folder = settings.notify, settings.path.parent
    server, header = settings.server, settings.telemetry.otlp_header_file
    routes, proxy = (route.urls_file for route in notify.routes), settings.dashboard.proxy_secret_file
    named = [notify.urls_file, *routes, server.tls_key, header, proxy]
    itself = "password" in settings.store.url or "@" in settings.store.url
    itself = itself or bool(notify.urls) or any(route.urls for route in notify.routes)
    return (*((settings.path,) if itself else ()), *(folder / each for each in named if each is not None))


def run(
    scheduler: Scheduler,
    site: DoctorSite,
    agents: Mapping[str, tuple[AgentView, ...]] | None = None,
    now: datetime | None = None,
    rows: Aside | None = None,
    untaken: str | None = None,
    controller: ControllerFacts | None = None,
    tokens: tuple[TokenRow, ...] = (),
    not_asked: str = "",
    no_answer: str = "",
) -> list[Advice]:
    """Gather and diagnose. ``agents``: as the controller hears them, None when it was not asked or did not answer; ``rows``: of the
    store, that it could not read; ``untaken``: which planned step no actor takes, as the controller says it; ``controller``: what else it
    reports of itself; ``tokens``: of the store, as far as it can be read; ``not_asked``: why the controller could not be asked;
    ``no_answer``: the error with which it did not answer."""
    facts = gather(scheduler, site, agents, now or datetime.now(UTC))
    controller = controller or ControllerFacts()
    asked = replace(facts, not_asked=not_asked, no_answer=no_answer)
    return diagnose(
        replace(asked, unreadable_rows=rows or Aside(), untaken=untaken, controller=controller, tokens=tokens)
    )


def gather(
    scheduler: Scheduler, site: DoctorSite, agents: Mapping[str, tuple[AgentView, ...]] | None, now: datetime
) -> DoctorFacts:
    """Read everything once. Raises nothing for an outside that does not answer: that is a fact too."""
    slurm, problem = _slurm(scheduler)
    actor = _owner(site.actor_state)
    store = PurePosixPath(site.store_path.resolve()) if site.store_path is not None else None
    mounts = _mounts()
    names = tuple(node.name for node in slurm.computing[:NODES_ASKED]) if slurm is not None else ()
    own_id = metadata_edge.own_id()
    found = examine(site.provider, names) if site.provider is not None else Examined()
    return DoctorFacts(
        now=now,
        policy=site.policy,
        user=getpass.getuser(),
        actor_user=actor,
        controller_user=_owner(site.controller_state),
        changeable=exposed.changeable_files(site.settings, site.script, site.store_path, actor),
        readable=exposed.readable_files(site.secrets),
        slurm=slurm,
        slurm_problem=problem,
        agents=agents,
        store_path=str(store or ""),
        store_filesystem=(mount_type(store, mounts) or "") if store else "",
        disk=disk_room(site.store_path),
        store_on_network=store is not None and network_type(store, mounts) is not None,
        provider_problem=found.problem,
        provider_denied=found.denied,
        provider_refused=found.refused,
        provider_can=found.can,
        provider_repairs=found.repairs,
        plugins=plugin_facts.look(slurm) if slurm is not None else PluginFacts(),
        quorum=_quorum(site),
        unreadable_rooms=_rooms_aside(site),
        metadata=metadata_edge.metadata(),
        own_id=own_id,
        metadata_options=metadata_options(site.provider, own_id),
        tls=tls_edge.surveyed(site.server),
        tls_running=tls_edge.running(site.server),
    )


def _quorum(site: DoctorSite) -> QuorumFacts | None:
    """One that refuses to speak to this user is there."""
    if site.rooms is None:
        return None
    facts = QuorumFacts(site.rooms_bind)
    try:
        return replace(facts, unwritten={r.name: r.unwritten for r in site.rooms.rooms() if r.unwritten})
    except Unavailable as error:
        return replace(facts, problem=str(error))
    except OutsideError:
        return facts


def _rooms_aside(site: DoctorSite) -> Aside:
    """Nothing where the service does not answer, or is of a release that sets nothing aside."""
    try:
        found = site.rooms_aside() if site.rooms_aside is not None else FilesSetAside()
    except OutsideError:
        return Aside()
    return Aside(found.count, None if found.since_s is None else datetime.fromtimestamp(found.since_s, UTC))


def _slurm(scheduler: Scheduler) -> tuple[SlurmFacts | None, str]:
    try:
        view = scheduler.view()
        facts = SlurmFacts(
            version=scheduler.version(),
            config=scheduler.config(),
            nodes=view.nodes,
            reservations=view.reservations,
            partitions=scheduler.partitions(),
            elastic_jobs=sum(ELASTIC_WORD in job.comment for job in view.jobs.values()),
            may_change=may_change(scheduler) if NO_SUCH_NODE not in view.nodes else None,
        )
        facts = replace(facts, may_reserve=may_reserve(scheduler))
    except OutsideError as error:
        return None, str(error)
    return facts, ""


def may_change(scheduler: Scheduler) -> bool | None:
    """Whether Slurm lets this user change nodes, tried on a node that does not exist. None: no clear answer."""
    try:
        scheduler.drain(NO_SUCH_NODE, "holdfast doctor")
    except NotPermitted:
        return False
    except NotFound:
        return True
    except (Rejected, Unavailable):
        return None
    return None


def may_reserve(scheduler: Scheduler) -> bool | None:
    """The same for reservations, tried on one that does not exist."""
    try:
        scheduler.delete_reservation(NO_SUCH_RESERVATION)
    except NotPermitted:
        return False
    except OutsideError:
        return None
    return True


def _owner(file: Path | None) -> str:
    """Account that owns a file; empty: it is not there, may not be read, or has no account here."""
    try:
        return file.owner() if file is not None else ""
    except (OSError, KeyError):
        return ""


def _mounts() -> str:
    """The kernel's table; empty when it cannot be read."""
    try:
        return Path("/proc/self/mounts").read_text(errors="surrogateescape")
    except OSError:
        return ""
