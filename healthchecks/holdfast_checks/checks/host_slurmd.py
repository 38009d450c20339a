"""``host.slurmd``: the node's slurmd is alive.

The process table says whether it runs. When it has none, systemd is asked why before that counts: a unit that was stopped in an orderly
way is no fault, one that is just starting or stopping says nothing yet, and one that runs by systemd's account contradicts the table."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.per_host import bad, good, unknown, warning
from holdfast_checks.probes.slurmd import UNIT, WantedSlurmd, find
from holdfast_checks.probes.systemd import UnitState, unit_state
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, Threshold
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.settings import CheckSettings

CHECK_ID = "host.slurmd"
K, N = 2, 2
_STARTS_AGAIN = "auto-restart"
"""SubStates of a unit that waits between two starts begin so: it has just failed."""
_CHANGES = frozenset({"activating", "deactivating", "reloading", "refreshing", "maintenance"})


@dataclass(frozen=True, slots=True)
class HostSlurmdFacts:
    """What the process table shows, and systemd where that has no slurmd."""

    pid: int | None
    unit: UnitState | None = None
    """Of ``slurmd.service``; None: not asked, no systemd, or no such unit."""


@dataclass(frozen=True, slots=True)
class Runs:
    """slurmd is alive."""

    pid: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """It was stopped in an orderly way: by an administrator, an upgrade, a shutdown."""

    why: str


@dataclass(frozen=True, slots=True)
class SlurmdDown:
    """It is gone, and was not stopped on purpose."""

    why: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """The process table and systemd disagree, or its state is just changing."""

    why: str


SlurmdState = Runs | Stopped | SlurmdDown | Unclear


def wanted(settings: CheckSettings) -> WantedSlurmd:
    """Which slurmd is searched, by the settings."""
    return WantedSlurmd(
        settings.slurmd_node,
        settings.slurmd_pid_file,
        settings.slurm_conf,
        settings.proc,
        settings.sysfs / "fs/cgroup",
    )


def gather(context: Context) -> HostSlurmdFacts:
    """Raises NotApplicable without /proc, NotGathered when the process table has no slurmd and systemd does not answer."""
    settings = context.settings
    if not settings.proc.is_dir():
        raise NotApplicable(f"there is no {settings.proc} here")
    pid = find(wanted(settings))
    return HostSlurmdFacts(pid) if pid is not None else HostSlurmdFacts(None, unit_state(settings.host.systemctl, UNIT))


def state_of(facts: HostSlurmdFacts) -> SlurmdState:
    """Combine the process table and systemd's answer."""
    if facts.pid is not None:
        return Runs(facts.pid)
    unit = facts.unit
    if unit is None:
        return SlurmdDown("no slurmd among the processes")
    said = f"systemd: {UNIT} is {unit.active} ({unit.sub}, {unit.result})"
    if unit.active == "active":
        return Unclear(f"{said} as process {unit.main_pid}, but the process table shows no slurmd of this node")
    if unit.sub.startswith(_STARTS_AGAIN):
        return SlurmdDown(said)
    if unit.active in _CHANGES or unit.job not in ("", "0"):
        return Unclear(f"{said} and is just being changed")
    if unit.active == "inactive" and unit.result == "success":
        return Stopped(said)
    return SlurmdDown(said)


def judge(facts: HostSlurmdFacts) -> tuple[Result, ...]:
    """Running jobs continue without slurmd; new ones cannot start, and none can end well.

    One that was stopped on purpose is a warning: Slurm itself takes the node for down after SlurmdTimeout, and starts nothing there."""
    match state_of(facts):
        case Runs(pid):
            return (good(CHECK_ID, f"slurmd runs as {pid}"),)
        case Stopped(why):
            return (warning(CHECK_ID, "stopped", f"slurmd was stopped in an orderly way: {why}"),)
        case Unclear(why):
            return (unknown(CHECK_ID, why),)
        case SlurmdDown(why):
            return (bad(CHECK_ID, "down", Severity.DEGRADED, Remedy.REBOOT, f"slurmd does not run: {why}"),)


CHECK = Check(
    id=CHECK_ID,
    title="slurmd runs",
    needs=frozenset({Need.HOST, Need.COMMAND}),
    interval_s=30,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    observe=False,
    place=lambda _settings: f"process table, {UNIT}",
    thresholds=(
        Threshold("samples without slurmd", K, "samples", "a restart of the service takes less than one interval"),
    ),
    hysteresis=(K, N),
)
