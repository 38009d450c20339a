"""``gpu.leftover``: processes that hold a GPU although no job is on the node. The next job would find the GPU in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import absent, details_check, each_details, ok, warning
from holdfast_checks.probes.steps import jobs_here
from holdfast_checks.registry import Context, NotApplicable, Threshold, snapshot_of
from holdfast_checks.result import Result, Severity
from holdfast_checks.snapshot import Snapshot

CHECK_ID = "gpu.leftover"
RUNS = 2
_NAMED = 4


@dataclass(frozen=True, slots=True)
class GpuLeftoverFacts:
    """A snapshot of an idle node, and the programs behind its process ids."""

    snapshot: Snapshot
    programs: Mapping[int, str]
    """Those that still live, without the ones that may use a GPU."""


def gather(context: Context) -> GpuLeftoverFacts:
    """Raises NotApplicable while jobs are on the node, or where that is not known."""
    snapshot = snapshot_of(context)
    settings = context.settings
    jobs = jobs_here(Path(settings.network.slurmd_spool), settings.sysfs)
    if jobs is None:
        raise NotApplicable("it cannot be seen which jobs are on this node")
    if jobs:
        raise NotApplicable("jobs are on this node")
    pids = {pid for gpu in snapshot.gpus if gpu.details is not None for pid in gpu.details.pids}
    programs = {pid: name for pid in pids if (name := _name(settings.proc, pid))}
    allowed = settings.gpu.allowed_processes
    return GpuLeftoverFacts(snapshot, {pid: name for pid, name in programs.items() if not name.startswith(allowed)})


def _name(proc: Path, pid: int) -> str:
    """Empty: it has ended."""
    try:
        return " ".join((proc / str(pid) / "comm").read_text(errors="replace").split())
    except OSError:
        return ""


def judge(facts: GpuLeftoverFacts) -> tuple[Result, ...]:
    """A warning: an operator has to decide whether the process may be ended."""

    def judge_one(ref: GpuRef, details: GpuDetails) -> Result:
        if details.process_count.value is None:
            return absent(CHECK_ID, ref, details.process_count, "the list of processes")
        found = [pid for pid in details.pids if pid in facts.programs]
        if not found:
            return ok(CHECK_ID, ref)
        names = ", ".join(f"{facts.programs[pid]} ({pid})" for pid in found[:_NAMED])
        return warning(CHECK_ID, ref, "process", f"used by {names} while no job is here", processes=len(found))

    return each_details(CHECK_ID, facts.snapshot, judge_one)


CHECK = details_check(
    CHECK_ID,
    "No process holds a GPU of an idle node",
    judge,
    severity=Severity.WARNING,
    thresholds=(Threshold("readings in a row", RUNS, "readings", "GCM: 3 tries; an ending job needs a moment"),),
    hysteresis=(RUNS, RUNS),
    gather=gather,
)
