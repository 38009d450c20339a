"""``host.memory``: all of the memory is present, and some of it is available."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.manifest import manifest_of
from holdfast_checks.per_host import bad, good, warning
from holdfast_checks.probes.procfs import meminfo
from holdfast_checks.registry import Check, Context, Cost, Need, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.settings import HostSettings

CHECK_ID = "host.memory"
LOST_PERCENT = 2.0
AVAILABLE_MIB = HostSettings().memory_available_mib
_MODULES = "modules"
_FREE = "available"


@dataclass(frozen=True, slots=True)
class HostMemoryFacts:
    """``/proc/meminfo``, and what is expected."""

    total_kib: int
    available_kib: int
    expected_kib: int | None = None
    """By the manifest; None: not known."""
    available_limit_kib: float = AVAILABLE_MIB * 1024


def gather(context: Context) -> HostMemoryFacts:
    """Raises NotGathered without the file or for a broken manifest."""
    settings = context.settings.host
    seen = meminfo(settings.proc)
    if "MemTotal" not in seen or "MemAvailable" not in seen:
        raise NotGathered(f"{settings.proc}/meminfo lacks MemTotal or MemAvailable")
    manifest = manifest_of(context)
    expected = manifest.memory_kib if manifest is not None else None
    return HostMemoryFacts(seen["MemTotal"], seen["MemAvailable"], expected, settings.memory_available_mib * 1024)


def judge(facts: HostMemoryFacts) -> tuple[Result, ...]:
    """Two components: what is built in, and what is left of it. Either says nothing of the other."""
    return (_left(facts), *_built_in(facts))


def _left(facts: HostMemoryFacts) -> Result:
    summary = f"{facts.available_kib >> 10} MiB of memory are available"
    if facts.available_kib < facts.available_limit_kib:
        return warning(CHECK_ID, "low", summary, _FREE, available_kib=facts.available_kib)
    return good(CHECK_ID, summary, _FREE)


def _built_in(facts: HostMemoryFacts) -> tuple[Result, ...]:
    if facts.expected_kib is None:
        return ()
    lost = 100 * (1 - facts.total_kib / facts.expected_kib)
    if lost <= LOST_PERCENT:
        return (good(CHECK_ID, f"{facts.total_kib >> 10} MiB of memory", _MODULES),)
    summary = f"{facts.total_kib >> 10} MiB of memory instead of {facts.expected_kib >> 10}: a memory module is lost"
    numbers = {"total_kib": facts.total_kib, "expected_kib": facts.expected_kib}
    return (bad(CHECK_ID, "lost", Severity.DEGRADED, Remedy.REPLACE, summary, _MODULES, **numbers),)


CHECK = Check(
    id=CHECK_ID,
    title="All memory is there, and some is left",
    needs=frozenset({Need.HOST}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REPLACE,
    gather=gather,
    judge=judge,
    hysteresis=(2, 3),
    thresholds=(
        Threshold("available, warning", AVAILABLE_MIB, "MiB", "gpud: 100 MiB; ours is earlier, and a warning"),
        Threshold(
            "missing", LOST_PERCENT, "percent", "one memory module of 32 is 3 %; kernels reserve less than 1 % more"
        ),
    ),
)
