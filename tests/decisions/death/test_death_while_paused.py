"""A node that seems dead while Holdfast is paused, and reports again."""

from __future__ import annotations

from holdfast.model.incidents.incident import RecoveryPhase
from support.simulated import Site


def test_a_down_that_was_withheld_leaves_no_recovery_waiting_for_it() -> None:
    site = Site(4)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)
    site.operate("pause")
    machine = site.machine(job.nodes[0])
    site.agents.state(machine, "checkpoint.register", job.job_id, 0, path="/ckpt", detail={"fenced": True})
    site.fault(machine.node)
    site.run(5)
    machine.cut_off = True
    machine.unreachable_by = {"n1", "n2", "n3", "n4"}
    site.run(60)
    assert site.incident(machine.node).dead
    assert site.recovery(job.job_id).phase is RecoveryPhase.WAITING
    machine.cut_off, machine.unreachable_by = False, set()
    site.run(60)
    site.operate("resume")
    site.run(60)
    assert job.restarts == 1
    assert site.recovery(job.job_id).phase not in (RecoveryPhase.STOPPING, RecoveryPhase.WAITING), site.story()
