"""The doctor's edge: asks Slurm, the kernel and the provider, and tries harmlessly what it may do."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from holdfast.config.controller import Settings
from holdfast.doctor.advice import Advice
from holdfast.doctor.diagnose import diagnose
from holdfast.doctor.facts import DoctorFacts, SlurmFacts
from holdfast.model.errors import NotFound, NotPermitted, OutsideError, Rejected, Unavailable
from holdfast.model.policy import Policy
from holdfast.model.report import AgentView
from holdfast.ports import Scheduler
from holdfast.store.mounts import mount_type, network_type

NO_SUCH_NODE = "holdfast-doctor-no-such-node"
"""Slurm checks the caller's right before it looks the node up: changing this one shows the right and changes nothing."""


@dataclass(frozen=True, slots=True)
class Site:
    """What the doctor wants to know of the site's configuration."""

    policy: Policy = field(default_factory=Policy)
    store_path: Path | None = None
    """File of an SQLite store; None: another database."""
    ask_provider: Callable[[], object] | None = None
    """Any cheap, reading call on the provider; it raises an OutsideError when the provider does not answer."""


_SQLITE = "sqlite:///"


def site_of(settings: Settings, ask_provider: Callable[[], object] | None = None) -> Site:
    """The site as ``controller.toml`` tells it."""
    url = settings.store.url
    return Site(settings.policy, Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None, ask_provider)


def run(
    scheduler: Scheduler,
    site: Site,
    agents: Mapping[str, tuple[AgentView, ...]] | None = None,
    now: datetime | None = None,
) -> list[Advice]:
    """Gather and diagnose. ``agents``: as the controller hears them, None when it was not asked or did not answer."""
    return diagnose(gather(scheduler, site, agents, now or datetime.now(UTC)))


def gather(
    scheduler: Scheduler, site: Site, agents: Mapping[str, tuple[AgentView, ...]] | None, now: datetime
) -> DoctorFacts:
    """Read everything once. Raises nothing for an outside that does not answer: that is a fact too."""
    slurm, problem = _slurm(scheduler)
    store = PurePosixPath(site.store_path.resolve()) if site.store_path is not None else None
    mounts = _mounts()
    return DoctorFacts(
        now=now,
        policy=site.policy,
        user=getpass.getuser(),
        slurm=slurm,
        slurm_problem=problem,
        agents=agents,
        store_path=str(store or ""),
        store_filesystem=(mount_type(store, mounts) or "") if store else "",
        store_on_network=store is not None and network_type(store, mounts) is not None,
        provider_problem=_provider_problem(site.ask_provider),
    )


def _slurm(scheduler: Scheduler) -> tuple[SlurmFacts | None, str]:
    try:
        view = scheduler.view()
        facts = SlurmFacts(
            version=scheduler.version(),
            config=scheduler.config(),
            nodes=view.nodes,
            reservations=view.reservations,
            may_change=may_change(scheduler) if NO_SUCH_NODE not in view.nodes else None,
        )
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


def _provider_problem(ask: Callable[[], object] | None) -> str:
    if ask is None:
        return ""
    try:
        ask()
    except NotFound:
        return ""  # it answered
    except OutsideError as error:
        return str(error) or type(error).__name__
    return ""


def _mounts() -> str:
    """The kernel's table; empty when it cannot be read."""
    try:
        return Path("/proc/self/mounts").read_text(errors="surrogateescape")
    except OSError:
        return ""
