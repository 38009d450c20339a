"""Many faults at once, and a job that breaks one node after another."""

from __future__ import annotations

import pytest

from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import RecoveryPhase
from holdfast.practice.cluster.client import get
from support.practice import eventually
from support.site import PATIENCE_S, MakeDrill

pytestmark = pytest.mark.slurm


def test_eight_of_sixteen_nodes_at_once(make_drill: MakeDrill) -> None:
    """Shipped defaults: at most 3 drains in 10 minutes. One cause on many nodes is not repaired node by node."""
    drill = make_drill(nodes=16, spares=1, gpus=8, heartbeat_s=5.0, settings={"profile": ""})
    flag = drill.practice.folder / "jobs" / "fail-now"
    script = f'[ -n "$SLURM_RESTART_COUNT" ] && exec sleep 3600; while [ ! -e {flag} ]; do sleep 0.2; done; exit 1'
    failing = drill.practice.sbatch(script, "--nodes=2", "--exclusive", "--comment=holdfast", "--gres=gpu:8")
    eventually(lambda: drill.job(failing).state == "RUNNING", within_s=PATIENCE_S)
    bystanders = [drill.sleeper("--nodes=2", "--ntasks-per-node=1", "--exclusive", "--gres=gpu:8") for _ in range(3)]
    suspects = sorted({n for j in (failing, *bystanders) for n in drill.job(j).nodes})
    assert len(suspects) == 8
    for node in suspects:
        drill.inject.xid(node, 79, 3)
    eventually(lambda: len(drill.faults()) == 8, within_s=PATIENCE_S)
    eventually(lambda: bool(drill.events(EventKind.BRAKE_TRIPPED)), within_s=PATIENCE_S)
    stopped_first = sum(drill.job(j).restarts for j in bystanders)
    flag.touch()
    eventually(lambda: drill.run(failing) == ("RUNNING", 1), within_s=PATIENCE_S)
    assert not set(drill.job(failing).nodes) & set(suspects)
    states = {j: drill.run(j) for j in bystanders}
    assert sum(restarts for _, restarts in states.values()) == stopped_first
    assert stopped_first <= 3, "no more jobs may be stopped than nodes may be drained before the brake"
    assert sum(drill.node(n).draining for n in suspects) <= 3
    nodes = {n["name"]: n for n in get(drill.site, "/v1/nodes")["nodes"]}
    held = [n for n in suspects if not drill.node(n).draining]
    assert all("brake" in nodes[n]["why"] for n in held)
    assert "brake" in drill.words()
    assert len(drill.launched()) <= 3, "only what was drained before the brake is repaired"


def test_a_job_that_breaks_two_nodes_in_a_row_is_not_followed(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=6, spares=2, heartbeat_s=2.0)
    job_id = drill.train()
    first = drill.job(job_id).nodes[1]
    drill.inject.xid(first, 109, 3)
    second = drill.trains(job_id, restarts=1).nodes[1]
    assert second != first
    drill.inject.xid(second, 109, 5)
    eventually(lambda: any(r.phase is RecoveryPhase.HELD for r in drill.recoveries(job_id)), within_s=PATIENCE_S)
    eventually(lambda: drill.job(job_id).state == "PENDING", within_s=PATIENCE_S)
    eventually(lambda: not any(drill.node(n).draining for n in (first, second)), within_s=PATIENCE_S)
    held = drill.job(job_id)
    assert (held.state, held.priority) == ("PENDING", 0)
    assert "the job is the suspect" in held.admin_comment
    assert held.restarts == 2, "stopped once for each fault, and not once more"
