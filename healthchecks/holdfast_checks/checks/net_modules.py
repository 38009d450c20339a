"""``net.modules``: the kernel modules that EFA devices on the PCI bus need are loaded."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.probes.rdma import efa_devices, efa_functions
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "net.modules"
MODULES = ("efa", "ib_uverbs", "ib_core")


@dataclass(frozen=True, slots=True)
class NetModulesFacts:
    """The modules that the kernel shows: loaded, or built in with parameters."""

    loaded: frozenset[str]


def gather(context: Context) -> NetModulesFacts:
    """Raises NotApplicable without EFA devices on the bus, where none is expected either."""
    settings = context.settings
    if not (settings.network.expected_efa or efa_devices(settings.sysfs) or efa_functions(settings.sysfs)):
        raise NotApplicable("no EFA device is attached to this node")
    return NetModulesFacts(frozenset(name for name in MODULES if (settings.sysfs / "module" / name).is_dir()))


def judge(facts: NetModulesFacts) -> tuple[Result, ...]:
    """One result a module."""
    return tuple(Result.ok(CHECK_ID, name, sticky=True) if name in facts.loaded else _missing(name) for name in MODULES)


def _missing(name: str) -> Result:
    return Result.finding(
        CHECK_ID,
        Severity.DEGRADED,
        Remedy.REBOOT,
        name,
        code="missing",
        summary=f"the kernel module {name} is not loaded: EFA does not work without it",
        sticky=True,
    )


CHECK = Check(
    id=CHECK_ID,
    title="Kernel modules for EFA are loaded",
    needs=frozenset({Need.NETWORK}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    hysteresis=(2, 2),
    thresholds=(Threshold("modules", len(MODULES), "modules", "awslabs health check: efa, ib_uverbs, ib_core"),),
)
