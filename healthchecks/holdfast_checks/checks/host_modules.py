"""``host.modules``: the kernel modules that jobs need are loaded.

Without nvidia_peermem, gdrdrv or efa a job still starts, on a path that is many times slower."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.manifest import manifest_of
from holdfast_checks.per_host import bad, good
from holdfast_checks.probes.procfs import modules
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.modules"


@dataclass(frozen=True, slots=True)
class HostModulesFacts:
    """What must be loaded, and what is."""

    wanted: tuple[str, ...]
    loaded: frozenset[str]


def gather(context: Context) -> HostModulesFacts:
    """By the settings and the manifest. Raises NotApplicable where neither names a module, NotGathered."""
    settings = context.settings.host
    manifest = manifest_of(context)
    names = {*settings.modules, *(manifest.modules if manifest is not None else ())}
    wanted = tuple(sorted({name.replace("-", "_") for name in names}))
    if not wanted:
        raise NotApplicable("neither the settings nor a manifest name kernel modules")
    return HostModulesFacts(wanted, modules(settings.proc))


def judge(facts: HostModulesFacts) -> tuple[Result, ...]:
    """One result a module. A boot loads it, where the machine is set up as the others."""
    return tuple(_judge_one(name, facts.loaded) for name in facts.wanted)


def _judge_one(name: str, loaded: frozenset[str]) -> Result:
    if name in loaded:
        return good(CHECK_ID, "loaded", name)
    summary = f"the kernel module {name} is not loaded"
    return bad(CHECK_ID, "missing", Severity.DEGRADED, Remedy.REBOOT, summary, name)


CHECK = Check(
    id=CHECK_ID,
    title="The kernel modules that jobs need are loaded",
    needs=frozenset({Need.HOST}),
    interval_s=300,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    place=lambda settings: f"{settings.host.proc}/modules",
    hysteresis=(2, 2),
)
