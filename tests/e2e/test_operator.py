"""Operators' actions by hand are kept, before and during an incident."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.model.incidents.incident import IncidentState
from holdfast.ports import Operation
from holdfast.practice.cluster.site import SPARES
from support.practice import eventually
from support.site import PATIENCE_S, Drill

pytestmark = pytest.mark.slurm
_QUIET_S = 4.0
"""Long enough for every step that would follow: a whole recovery takes 5 s, of which the undrain comes 1 s after the validation."""


def drain_by_hand(drill: Drill, node: str, reason: str) -> None:
    drill.scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")


def mend_by_hand(drill: Drill, node: str) -> None:
    """The operator puts other hardware in and resumes the node."""
    machine = drill.practice.machine(node)
    machine.replace(machine.host.instance_id)
    drill.practice.wait_for_nodes()
    eventually(lambda: drill.node(node).responding and drill.node(node).out_of_service, within_s=PATIENCE_S)
    drill.scontrol("update", f"NodeName={node}", "State=RESUME")
    if not drill.spares():
        drill.scheduler.create_reservation(SPARES, (node,), users=("root",), duration_s=None)


def stays_theirs(drill: Drill, node: str, reason: str) -> None:
    with pytest.raises(pytest.fail.Exception):
        eventually(lambda: not drill.node(node).draining or drill.node(node).reason != reason, within_s=_QUIET_S)


def test_a_node_drained_by_hand_before_the_fault_stays_drained(drill: Drill) -> None:
    job_id = drill.train()
    bad, faults, gone = drill.job(job_id).nodes[1], len(drill.faults()), len(drill.terminated())
    drain_by_hand(drill, bad, "ticket 4711")
    drill.inject.xid(bad, 79, 3)
    assert bad not in drill.trains(job_id, restarts=1).nodes
    eventually(lambda: drill.incident_on(bad).state is IncidentState.AWAITING_HUMAN, within_s=PATIENCE_S)
    stays_theirs(drill, bad, "ticket 4711")
    assert len(drill.terminated()) == gone
    mend_by_hand(drill, bad)
    drill.closed(faults + 1)
    assert drill.incident_on(bad).note.startswith(
        "an operator or another tool put the node back into service: theirs now"
    )


def test_a_node_taken_over_by_hand_during_the_repair_stays_drained(drill: Drill) -> None:
    job_id = drill.train()
    bad, faults, gone = drill.job(job_id).nodes[1], len(drill.faults()), len(drill.terminated())
    drill.inject.xid(bad, 79, 3)
    eventually(lambda: drill.node(bad).reason.startswith("holdfast["), within_s=PATIENCE_S, every_s=0.01)
    drain_by_hand(drill, bad, "ticket 4712")
    assert bad not in drill.trains(job_id, restarts=1).nodes
    eventually(lambda: drill.incident_on(bad).state is IncidentState.AWAITING_HUMAN, within_s=PATIENCE_S)
    stays_theirs(drill, bad, "ticket 4712")
    assert len(drill.terminated()) == gone, "the machine that an operator looks at was terminated"
    mend_by_hand(drill, bad)
    drill.closed(faults + 1)


def test_a_healthy_node_drained_by_hand_is_nobodys_business(drill: Drill) -> None:
    node, faults = drill.practice.nodes[3], len(drill.faults())
    drain_by_hand(drill, node, "holdfast is not what drained this")
    stays_theirs(drill, node, "holdfast is not what drained this")
    assert len(drill.faults()) == faults
    drill.scontrol("update", f"NodeName={node}", "State=RESUME")


def _operate(drill: Drill, verb: str) -> None:
    drill.store.operate(Operation(verb, "drill", "", "switch work"), datetime.now(UTC))


def test_a_node_rebooted_and_resumed_by_hand_during_a_pause_keeps_its_job(drill: Drill) -> None:
    node, others = drill.practice.nodes[0], ",".join(drill.practice.nodes[1:])
    before, machine = len(drill.faults()), drill.practice.machine(node)
    _operate(drill, "pause")
    drill.inject.xid(node, 79, 3)
    eventually(lambda: len(drill.faults()) > before, within_s=PATIENCE_S)
    drill.inject.heal(node)
    machine.power_off()
    machine.reboot()
    eventually(lambda: drill.node(node).rebooted_unexpectedly, within_s=PATIENCE_S)
    drill.scontrol("update", f"NodeName={node}", "State=RESUME")
    job_id = drill.sleeper("-N1", "--gres=gpu:8", f"--exclude={others}")
    eventually(lambda: drill.incident_on(node).state is IncidentState.CLOSED, within_s=PATIENCE_S)
    _operate(drill, "resume")
    with pytest.raises(pytest.fail.Exception):
        eventually(lambda: drill.node(node).out_of_service or drill.run(job_id) != ("RUNNING", 0), within_s=_QUIET_S)
    drill.practice.command("scancel", str(job_id))
