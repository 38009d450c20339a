"""The doctor's edge: asks Slurm, the kernel and the provider, and tries harmlessly what it may do."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from holdfast.doctor.advice import Advice
from holdfast.doctor.diagnose import diagnose
from holdfast.doctor.facts import DoctorFacts, SlurmFacts
from holdfast.model.errors import NotFound, NotPermitted, OutsideError, Rejected, Unavailable
from holdfast.model.policy import Policy
from holdfast.model.report import AgentView
from holdfast.ports import Scheduler

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
    return DoctorFacts(
        now=now,
        policy=site.policy,
        user=getpass.getuser(),
        slurm=slurm,
        slurm_problem=problem,
        agents=agents,
        store_path=str(site.store_path or ""),
        store_filesystem=filesystem_of(site.store_path) if site.store_path is not None else "",
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


def filesystem_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Type of the file system that holds a path (which need not exist yet); empty when the kernel's table cannot be read."""
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return ""
    real = path.resolve()
    best, kind = -1, ""
    for line in lines:
        fields = line.split(b" ")
        if len(fields) < 3:
            continue
        point = Path(_unescaped(fields[1]))
        if real.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2].decode()
    return kind


def _unescaped(field_bytes: bytes) -> str:
    """A field of fstab(5) with its octal escapes (``\\040`` for a space) undone."""
    return field_bytes.decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
