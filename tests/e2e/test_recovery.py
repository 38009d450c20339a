"""A fault, the job that it affects, and all other jobs on the cluster."""

from __future__ import annotations

import pytest

from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast.model.jobs.opt_in import CONSENT_WORD
from holdfast.practice.faults.xids import kernel_line
from holdfast.practice.nvml import state as nvml
from support.practice import eventually
from support.site import PATIENCE_S, Drill

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
    eventually(lambda: drill.recoveries(job_id)[-1].phase is RecoveryPhase.RESUMED, within_s=PATIENCE_S)
    assert drill.recoveries(job_id)[-1].restarts_before == 0


def test_on_a_shared_node_only_the_holder_of_the_gpu_is_stopped(drill: Drill) -> None:
    first, second = (drill.train(nodes=1, gpus=4) for _ in range(2))
    (bad,) = drill.job(first).nodes
    assert drill.job(second).nodes == (bad,)
    victim, neighbour = (first, second) if 3 in drill.job(first).gpu_indices[bad] else (second, first)
    faults = len(drill.faults())
    drill.inject.xid(bad, 79, 3)
    assert bad not in drill.trains(victim, restarts=1).nodes
    incident = drill.incident_on(bad)
    eventually(lambda: drill.incident_on(bad).state is IncidentState.CONTAINED, within_s=PATIENCE_S)
    assert drill.run(neighbour) == ("RUNNING", 0)
    assert not drill.recoveries(neighbour)
    assert drill.job(neighbour).nodes == (bad,), incident.note
    drill.practice.command("scancel", str(neighbour))
    drill.closed(faults + 1)
    drill.nothing_left([victim])


def test_jobs_that_may_not_be_stopped_run_on_and_are_told(drill: Drill) -> None:
    unasked = drill.sleeper("--gres=gpu:2", consent=False)
    pinned = drill.sleeper("--gres=gpu:2", "--no-requeue")
    (bad,) = drill.job(unasked).nodes
    assert drill.job(pinned).nodes == (bad,)
    faults = len(drill.faults())
    for gpu in {*drill.job(unasked).gpu_indices[bad], *drill.job(pinned).gpu_indices[bad]}:
        drill.inject.xid(bad, 79, gpu)
    eventually(lambda: "did not opt in" in drill.job(unasked).admin_comment, within_s=PATIENCE_S)
    eventually(lambda: "cannot be requeued" in drill.job(pinned).admin_comment, within_s=PATIENCE_S)
    assert drill.node(bad).draining
    for job_id in (unasked, pinned):
        assert drill.run(job_id) == ("RUNNING", 0)
    drill.practice.command("scancel", str(unasked), str(pinned))
    drill.closed(faults + 1)


def test_a_job_that_did_not_opt_in_stays_as_it_is_when_it_fails(drill: Drill) -> None:
    """The site's JobRequeue=1 is not the owner's consent: only the owner knows whether the job may run again."""
    flag = drill.practice.folder / "jobs" / "fail-now"
    script = f"while [ ! -e {flag} ]; do sleep 0.1; done; rm {flag}; exit 1"
    job_id = drill.practice.sbatch(script, "--gres=gpu:8")
    eventually(lambda: drill.job(job_id).state == "RUNNING", within_s=PATIENCE_S)
    (bad,) = drill.job(job_id).nodes
    faults = len(drill.faults())
    drill.inject.xid(bad, 79, 0)
    eventually(lambda: "did not opt in" in drill.job(job_id).admin_comment, within_s=PATIENCE_S)
    flag.touch()
    eventually(lambda: drill.run(job_id) == ("FAILED", 0), within_s=PATIENCE_S)
    drill.closed(faults + 1)
    assert drill.run(job_id) == ("FAILED", 0)


def test_a_user_cannot_forge_a_fault(drill: Drill) -> None:
    node = drill.spares()[0]
    state = nvml.read(drill.practice.machine(node).host.nvml_state)
    line, faults = kernel_line(79, state.gpus[3].pci), len(drill.faults())
    drill.inject.kernel_message(node, line, facility=1)
    drill.inject.kernel_message(node, f"python[4711]: {line}")
    drill.inject.kernel_message(node, kernel_line(79, "00000000:F7:00.0"))
    drill.inject.xid(node, 79, 5)
    drill.closed(faults + 1)
    incidents = drill.faults()
    assert len(incidents) == faults + 1
    assert incidents[-1].gpu_minors == frozenset({5})
    findings = [e for e in drill.store.events(incident_id=incidents[-1].id) if "gpu.xid" in e.text]
    assert all(state.gpus[3].uuid not in e.text for e in findings)


def test_with_the_queue_full_the_job_keeps_its_place(drill: Drill) -> None:
    job_id = drill.train()
    before, faults = drill.job(job_id), len(drill.faults())
    others = drill.inject.fill_queue(20)
    spare = drill.spares()
    bad = before.nodes[2]
    drill.inject.xid(bad, 79, 3)
    after = drill.trains(job_id, restarts=1)
    assert set(after.nodes) == set(before.nodes) - {bad} | set(spare)
    drill.closed(faults + 1)
    assert {drill.job(j).restarts for j in others} == {0}
    assert sum(drill.job(j).state == "RUNNING" for j in others) == 1


def test_the_users_own_exclusions_come_back(drill: Drill) -> None:
    kept_out = next(n for n in drill.practice.nodes if n not in drill.spares())
    job_id = drill.train(f"--exclude={kept_out}")
    before, faults = drill.job(job_id), len(drill.faults())
    bad = before.nodes[1]
    drill.inject.xid(bad, 79, 3)
    after = drill.trains(job_id, restarts=1)
    assert not {bad, kept_out} & set(after.nodes)
    assert {bad, kept_out} <= set(after.excluded_nodes) <= {bad, kept_out, *drill.spares()}
    drill.closed(faults + 1)
    second = after.nodes[1]
    drill.inject.power_loss(second, shown_off=True)
    last = drill.trains(job_id, restarts=2)
    assert set(last.excluded_nodes) == {second, kept_out}, "the first node serves again: nothing keeps the job off it"
    drill.closed(faults + 2)


def test_a_fault_under_a_component_restarts_the_heterogeneous_job_once(drill: Drill) -> None:
    parts = "#SBATCH --nodes=1 --gres=gpu:8\n#SBATCH hetjob\n#SBATCH --nodes=2 --gres=gpu:8"
    leader = drill.practice.sbatch(
        f"#!/bin/sh\n{parts}\nexec srun --het-group=0,1 sleep 3600\n", f"--comment={CONSENT_WORD}"
    )
    ids = (leader, leader + 1)
    eventually(lambda: [drill.run(i) for i in ids] == [("RUNNING", 0)] * 2, within_s=PATIENCE_S)
    bad, faults = drill.job(leader + 1).nodes[1], len(drill.faults())
    drill.inject.xid(bad, 79, 3)
    eventually(lambda: [drill.run(i) for i in ids] == [("RUNNING", 1)] * 2, within_s=PATIENCE_S)
    assert all(bad not in drill.job(i).nodes for i in ids)
    kept = set(drill.spares()) | {bad}  # a spare that was not needed stays the pool's
    assert all({bad} <= set(drill.job(i).excluded_nodes) <= kept for i in ids)
    assert len(drill.intents("Requeue", target=f"/{leader}r0")) == 1
    drill.closed(faults + 1)
    drill.nothing_left(ids)
