"""``host.dstate``: processes stuck in the kernel (state D).

One in state D cannot be killed. A training job that reads much is in D in many samples; stuck is one that has not run once in between.
Its kernel stack shows the cause: the GPU driver's is cured by a reboot only, a file server's is not this node's fault."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.per_host import bad, good
from holdfast_checks.probes.dstate import DstateWatch, Stuck
from holdfast_checks.probes.procfs import short_list
from holdfast_checks.registry import Check, Context, Cost, Need, Threshold
from holdfast_checks.result import NODE_COMPONENT, Remedy, Result, Scalar, Severity

CHECK_ID = "host.dstate"
LOOKS = 5
_DRIVERS = frozenset(
    {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_fs", "gdrdrv", "efa", "ib_uverbs"}
)
_DRIVER_PROCESS = "nvidia"
_WATCHES: dict[Path, DstateWatch] = {}


@dataclass(frozen=True, slots=True)
class HostDstateFacts:
    """Processes that have been stuck for :data:`LOOKS` samples or longer."""

    stuck: tuple[Stuck, ...]


def gather(context: Context) -> HostDstateFacts:
    """Each run is one sample; a process is reported once three samples saw it. Raises NotGathered, OSError."""
    proc = context.settings.host.proc
    return HostDstateFacts(_WATCHES.setdefault(proc, DstateWatch()).look(proc, LOOKS))


def judge(facts: HostDstateFacts) -> tuple[Result, ...]:
    """One finding for the node: hundreds of processes wait for one thing."""
    if not facts.stuck:
        return (good(CHECK_ID, "no process is stuck in the kernel"),)
    in_driver = [process for process in facts.stuck if _in_driver(process)]
    if in_driver:
        return (_finding(in_driver, "driver", Severity.DEGRADED, Remedy.REBOOT),)
    return (_finding(list(facts.stuck), "stuck", Severity.WARNING, Remedy.NONE),)


def _in_driver(process: Stuck) -> bool:
    """By its stack. Where that cannot be read, by its name, which only root's processes are believed."""
    if process.stack_known:
        return not _DRIVERS.isdisjoint(process.modules)
    return process.uid == 0 and process.name.startswith(_DRIVER_PROCESS)


def _finding(stuck: list[Stuck], code: str, severity: Severity, remedy: Remedy) -> Result:
    modules = short_list(dict.fromkeys(module for process in stuck for module in process.modules))
    where = f" in {modules}" if modules else ""
    names = short_list(f"{process.name} ({process.pid})" for process in stuck)
    summary = f"stuck in the kernel{where} for {max(process.looks for process in stuck)} samples: {names}"
    evidence: dict[str, Scalar] = {"processes": len(stuck), "pid": stuck[0].pid, "modules": modules}
    return bad(CHECK_ID, code, severity, remedy, summary, NODE_COMPONENT, **evidence)


CHECK = Check(
    id=CHECK_ID,
    title="No process is stuck in the kernel",
    needs=frozenset({Need.HOST}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    thresholds=(Threshold("samples without having run", LOOKS, "samples", "gpud: D in 5 samples, one a minute"),),
)
