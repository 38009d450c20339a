"""A real job of ``-N 2-4`` loses a node on a real Slurm and restarts on two, which its comment allows, not on three."""

from __future__ import annotations

import pytest

from support.practice import eventually
from support.site import PATIENCE_S, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.soak]


def test_a_job_of_a_range_starts_again_at_a_legal_size(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=4, spares=0, heartbeat_s=2.0)
    eventually(lambda: all(drill.node(n).base_state == "IDLE" for n in drill.practice.nodes), within_s=PATIENCE_S)
    words = ("--nodes=2-4", "--exclusive", "--ntasks-per-node=2", "--comment=holdfast sizes=2+4")
    job_id = drill.practice.sbatch("srun sleep 3600", *words)
    eventually(lambda: drill.job(job_id).state == "RUNNING", within_s=PATIENCE_S)
    assert len(drill.job(job_id).nodes) == 4
    bad = drill.job(job_id).nodes[1]
    drill.inject.xid(bad, 79, gpu=3)
    eventually(lambda: drill.run(job_id) == ("RUNNING", 1), within_s=PATIENCE_S)
    job = drill.job(job_id)
    assert len(job.nodes) == 2
    assert bad not in job.nodes
    (release,) = drill.intents("Release")
    assert "on 2 nodes" in release.reason
