"""A fault, the job that it hurts, and everybody else on the cluster."""

from __future__ import annotations

import pytest

from holdfast.model.incident import RecoveryPhase
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = pytest.mark.slurm


def test_a_lost_gpu_heals_by_itself(drill: Drill) -> None:
    job_id = drill.train()
    before = drill.job(job_id)
    bad, faults, launched, gone = before.nodes[1], len(drill.faults()), len(drill.launched()), len(drill.terminated())
    drill.inject.xid(bad, 79, 3)
    drill.trains(job_id, restarts=1)
    drill.closed(faults + 1)
    after = drill.job(job_id)
    assert bad not in after.nodes
    assert set(before.nodes) - {bad} <= set(after.nodes)
    assert after.priority == before.priority
    assert drill.resumed_from(job_id)[-1] > 0
    assert (len(drill.launched()) - launched, len(drill.terminated()) - gone) == (1, 1)
    drill.nothing_left([job_id])
    assert bad in drill.spares()
    recovery = drill.recoveries(job_id)[-1]
    eventually(lambda: drill.recoveries(job_id)[-1].phase is RecoveryPhase.RESUMED, within_s=PATIENCE_S)
    assert recovery.restarts_before == 0
