"""Nodes that operators have taken over, on a real Slurm: no action is taken on them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.model.incidents.incident import IncidentState
from holdfast.model.operators.maintenance import Window
from holdfast.ports import Operation
from holdfast.practice.cluster.reboot import LONGER
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]
FAST = {"death": {"silent_after_heartbeats": 2.5, "reprobe_s": 2.0}, "maintenance": {"grace_s": 5.0}}
_LONG_S = 20.0
"""A node without power is dead after 5 s here, and its replacement serves after 10 more."""


@pytest.fixture
def drill(make_drill: MakeDrill) -> Drill:
    return make_drill(heartbeat_s=1.0, settings=FAST)


def _reserve(drill: Drill, node: str) -> None:
    words = ("ReservationName=vendor", f"Nodes={node}", "Users=root", "Flags=MAINT,IGNORE_JOBS", "StartTime=now")
    drill.scontrol("create", "reservation", *words, "Duration=1:00:00")


def _untouched(drill: Drill, node: str) -> None:
    with pytest.raises(pytest.fail.Exception):
        eventually(lambda: bool(drill.faults() or drill.terminated() or drill.launched()), within_s=_LONG_S)
    assert not drill.node(node).draining


def test_a_node_without_power_in_a_maint_reservation_is_left_alone(drill: Drill) -> None:
    node = drill.practice.nodes[2]
    _reserve(drill, node)
    eventually(lambda: "MAINTENANCE" in drill.node(node).flags, within_s=PATIENCE_S)
    drill.inject.power_loss(node)
    _untouched(drill, node)
    assert drill.store.incidents(node=node) == ()


def test_a_fault_in_a_maint_reservation_waits_and_counts_no_more_afterwards(drill: Drill) -> None:
    node = drill.practice.nodes[2]
    _reserve(drill, node)
    drill.inject.xid(node, 79, 3)
    eventually(lambda: bool(drill.store.incidents(node=node)), within_s=PATIENCE_S)
    eventually(lambda: "MAINT reservation vendor" in drill.incident_on(node).note, within_s=PATIENCE_S)
    with pytest.raises(pytest.fail.Exception):
        eventually(lambda: drill.node(node).out_of_service or bool(drill.launched()), within_s=_LONG_S)
    assert drill.incident_on(node).state is IncidentState.OPEN


def test_a_node_that_an_operator_reboots_is_left_alone(drill: Drill) -> None:
    node = drill.practice.nodes[2]
    Path(drill.practice.folder, LONGER).write_text(str(_LONG_S))
    seen: set[str] = set()
    drill.scontrol("reboot", node)

    def rebooted() -> bool:
        shown = drill.node(node)
        seen.update({shown.base_state, *shown.flags})
        return not shown.rebooting and shown.responding and "REBOOT_ISSUED" in seen

    eventually(rebooted, within_s=4 * _LONG_S)
    assert (drill.terminated(), drill.launched(), drill.faults()) == ([], [], ()), seen
    eventually(lambda: not drill.store.incidents(only_open=True), within_s=PATIENCE_S)
    assert drill.node(node).base_state == "IDLE"


def test_a_window_of_holdfasts_own_is_a_reservation_in_slurm_until_it_is_ended(drill: Drill) -> None:
    """Maintenance of a working node with a job on it and of a spare."""
    job_id = drill.train()
    node, spare = drill.job(job_id).nodes[0], drill.spares()[0]
    now = datetime.now(UTC)
    window = Window("0h3k5d2m8x1q", (node, spare), now, now + timedelta(hours=4), "ops", "swap the switch")
    drill.store.operate(Operation("maintain", "ops", f"{node},{spare}", "swap the switch", window=window), now)
    eventually(lambda: _kept(drill, window) == {node, spare}, within_s=PATIENCE_S)
    assert "MAINT" in drill.scheduler.reservation(window.reservation).flags
    drill.inject.xid(node, 79, 3)
    eventually(lambda: bool(drill.store.incidents(node=node)), within_s=PATIENCE_S)
    eventually(lambda: "maintenance by ops" in drill.incident_on(node).note, within_s=PATIENCE_S)
    with pytest.raises(pytest.fail.Exception):
        eventually(lambda: drill.node(node).draining or drill.run(job_id) != ("RUNNING", 0), within_s=_LONG_S)
    end = Operation("end_maintenance", "ops", spare, nodes=(spare,))
    drill.store.operate(end, datetime.now(UTC))
    eventually(lambda: _kept(drill, window) == {node}, within_s=PATIENCE_S)
    drill.store.operate(Operation("end_maintenance", "ops", node, nodes=(node,)), datetime.now(UTC))
    eventually(lambda: not _kept(drill, window), within_s=PATIENCE_S)
    assert drill.spares() == (spare,)


def _kept(drill: Drill, window: Window) -> set[str]:
    shown = drill.scheduler.all_reservations().get(window.reservation)
    return set(shown.nodes) if shown is not None else set()
