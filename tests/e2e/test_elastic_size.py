"""The size of an elastic job on a real Slurm: preempted groups come back when their nodes are idle, and sizes stay legal."""

from __future__ import annotations

import pytest

from holdfast.practice.cluster.slurmconf import FLEXIBLE
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.soak]

GROUP = "srun sleep 600 || exit 85"
BACK_S = 25.0
"""Far less than the 120 s that Slurm makes a requeued job wait, on a busy machine too."""


def _submit(drill: Drill, sizes: str, least: int, most: int) -> tuple[int, int]:
    sbatch = drill.practice.sbatch
    comment = f"holdfast elastic={sizes}"
    base = sbatch(GROUP, f"--array=0-{least - 1}", "-N1", "--exclusive", f"--comment={comment}")
    eventually(lambda: len(_running(drill, base)) == least, within_s=PATIENCE_S)
    flexible = f"--comment={comment} of={base}"
    return base, sbatch(GROUP, f"--array={least}-{most - 1}", "-N1", "--exclusive", f"--partition={FLEXIBLE}", flexible)


def _running(drill: Drill, *arrays: int) -> list[int]:
    listing = drill.practice.command("squeue", "-h", "-r", "-t", "R", "-o", "%F %K").split()
    pairs = zip(listing[::2], listing[1::2], strict=True)
    return sorted(int(task) for array, task in pairs if int(array) in arrays)


def test_a_preempted_group_comes_back_when_its_node_is_idle(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=4, spares=0, heartbeat_s=2.0, elastic=True)
    arrays = _submit(drill, "2:4", 2, 4)
    eventually(lambda: _running(drill, *arrays) == [0, 1, 2, 3], within_s=PATIENCE_S)
    high = drill.practice.sbatch("sleep 600", "-N2", "--exclusive")
    eventually(lambda: drill.run(high)[0] == "RUNNING", within_s=PATIENCE_S)
    assert _running(drill, *arrays) == [0, 1]
    drill.practice.command("scancel", str(high))
    took_s = eventually(lambda: _running(drill, *arrays) == [0, 1, 2, 3], within_s=BACK_S)
    print(f"back at full size {took_s:.1f} s after the other job's end")  # noqa: T201


def test_sizes_stay_legal(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=4, spares=0, heartbeat_s=2.0, elastic=True)
    drill.scontrol("update", "NodeName=n4", "State=DRAIN", "Reason=fan")
    arrays = _submit(drill, "2:4:2", 2, 4)
    # One may start before Holdfast has read Slurm; it cannot be used, and leaves.
    eventually(lambda: bool(drill.intents("DelayStart")), within_s=PATIENCE_S)
    eventually(lambda: _running(drill, *arrays) == [0, 1], within_s=PATIENCE_S)
    drill.scontrol("update", "NodeName=n4", "State=RESUME")
    eventually(lambda: _running(drill, *arrays) == [0, 1, 2, 3], within_s=PATIENCE_S)
    assert drill.job(arrays[0]).restarts == 0
