"""``host.services``: the services that a GPU node needs, and those that the site names, are alive.

NVIDIA's fabric manager and persistence daemon are expected where their units are enabled. One fleet ran 20 days without a fabric manager
while every check was green (NVSentinel pull requests 883 and 891)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_checks.per_host import bad, good, skipped, warning
from holdfast_checks.probes.child import CHILDREN, Hung
from holdfast_checks.probes.procfs import owner, processes, whole
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, SampleChange, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.services"
DEADLINE_S = 5.0
RESTARTS = 3
FABRIC_MANAGER = "nvidia-fabricmanager.service"
PERSISTENCED = "nvidia-persistenced.service"
_OURS = (FABRIC_MANAGER, PERSISTENCED)
_PROCESS = {FABRIC_MANAGER: "nv-fabricmanager", PERSISTENCED: "nvidia-persistenced"}
_PROPERTIES = "Names,LoadState,ActiveState,SubState,UnitFileState,NRestarts"
_SYSTEMD = Path("/run/systemd/system")
_NAME_LETTERS = 15
_FIRST_USER = 1000
"""UID_MIN of login.defs: a process of an ordinary user is no service."""
_GOOD_STATES = frozenset({"active", "activating", "reloading", "refreshing"})


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit as ``systemctl show`` prints it; ``loaded``, ``active`` and an empty rest where only a process was searched."""

    name: str
    load: str = ""
    active: str = ""
    sub: str = ""
    enabled: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class HostServicesFacts:
    """The units that were asked for."""

    units: Mapping[str, Unit] = field(default_factory=dict)
    configured: frozenset[str] = frozenset()
    """Those that the site names: they must be there."""


def gather(context: Context) -> HostServicesFacts:
    """One call of systemctl; without systemd, one scan of the processes. Raises NotApplicable, NotGathered, OSError."""
    settings = context.settings.host
    configured = frozenset(map(_unit_name, settings.services))
    names = (*_OURS, *sorted(configured.difference(_OURS)))
    if not _SYSTEMD.is_dir() and "/" not in settings.systemctl:
        if not configured:
            raise NotApplicable("systemd does not run here, and no services are configured")
        return HostServicesFacts(_by_process(settings.proc, configured), configured)
    done = CHILDREN.run(
        "systemctl", [settings.systemctl, "show", f"--property={_PROPERTIES}", "--", *names], DEADLINE_S
    )
    if isinstance(done, Hung):
        raise NotGathered(f"systemctl has not answered within {DEADLINE_S:g} s")
    if done.status:
        raise NotGathered(f"systemctl: {done.complaint}")
    units = parse_show(done.text)
    if not units:
        raise NotGathered("systemctl named no unit")
    return HostServicesFacts({name: units[name] for name in names if name in units}, configured)


def _unit_name(name: str) -> str:
    return name if "." in name else f"{name}.service"


def parse_show(text: str) -> dict[str, Unit]:
    """Blocks of ``Name=value`` lines with an empty line between them. A unit is there under each of its names (aliases too)."""
    units = {}
    for block in text.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for name in values.get("Names", "").split():
            units[name] = _unit(name, values)
    return units


def _unit(name: str, values: Mapping[str, str]) -> Unit:
    return Unit(
        name,
        values.get("LoadState", ""),
        values.get("ActiveState", ""),
        values.get("SubState", ""),
        values.get("UnitFileState", ""),
        whole(values.get("NRestarts", "")) or 0,
    )


def _by_process(proc: Path, names: frozenset[str]) -> dict[str, Unit]:
    """A service counts as active when a process of its name runs, and is no ordinary user's."""
    wanted = {_process_name(name): name for name in names}
    alive = set()
    for process in processes(proc):
        if process.name in wanted and process.state not in "ZX":
            uid = owner(proc, process.pid)
            if uid is not None and uid < _FIRST_USER:
                alive.add(wanted[process.name])
    return {name: Unit(name, "loaded", "active" if name in alive else "inactive") for name in names}


def _process_name(unit: str) -> str:
    """As the kernel cuts it."""
    return _PROCESS.get(unit, unit.rpartition(".")[0])[:_NAME_LETTERS]


def judge(change: SampleChange) -> tuple[Result, ...]:
    """One result a unit."""
    now: HostServicesFacts = change.now.facts
    before: Mapping[str, Unit] = change.before.facts.units if change.before is not None else {}
    names = sorted({*now.units, *now.configured})
    return tuple(_judge_one(name, now.units.get(name), before.get(name), name in now.configured) for name in names)


def _judge_one(name: str, unit: Unit | None, before: Unit | None, configured: bool) -> Result:
    if unit is None or unit.load in ("not-found", "masked"):
        if configured:
            return warning(CHECK_ID, "missing", f"{name} is expected, and not installed here", name)
        return skipped(CHECK_ID, "not installed", name)
    if unit.active in _GOOD_STATES:
        return _running(unit, before)
    if not configured and unit.active == "inactive" and unit.enabled not in ("enabled", "enabled-runtime"):
        return skipped(CHECK_ID, f"not enabled ({unit.enabled or 'no state'})", name)
    summary = f"{name} is {unit.active or 'in no state'}" + (f" ({unit.sub})" if unit.sub else "")
    if name == PERSISTENCED:
        return warning(CHECK_ID, "down", f"{summary}: the driver unloads between jobs", name, restarts=unit.restarts)
    return bad(CHECK_ID, "down", Severity.DEGRADED, Remedy.REBOOT, summary, name, restarts=unit.restarts)


def _running(unit: Unit, before: Unit | None) -> Result:
    new = unit.restarts - before.restarts if before is not None else 0
    if new >= RESTARTS:
        summary = f"{unit.name} was restarted {new} times since the previous sample"
        return warning(CHECK_ID, "restarting", summary, unit.name, restarts=unit.restarts)
    return good(CHECK_ID, unit.active, unit.name)


CHECK = Check(
    id=CHECK_ID,
    title="Services of a GPU node run",
    needs=frozenset({Need.HOST, Need.COMMAND}),
    interval_s=300,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    place=lambda _settings: "the unit",
    compares=True,
    hysteresis=(2, 2),
    thresholds=(
        Threshold("restarts between two samples", RESTARTS, "restarts", "our choice: an update restarts once or twice"),
        Threshold("bad runs", 2, "runs", "a restart of the service takes less than one interval"),
    ),
)
