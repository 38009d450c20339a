"""slurmctld forgets the drain of a faulty node, on a real Slurm; and an operator's resume next to a plain restart still counts."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from holdfast.model.errors import Rejected
from holdfast.model.incidents.incident import Incident, IncidentState
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.soak, pytest.mark.timeout(400)]

ONLY_RESETS = {"repair": {"rungs": ["reset_gpu"]}}
"""A fault that requires another machine waits for an operator."""
SAVED_S = 6.0
"""slurmctld writes its states some seconds late."""


def awaits_operator(drill: Drill, node: str) -> Incident:
    drill.inject.xid(node, 79, 3)
    incident = drill.incident_on(node)
    eventually(lambda: state(drill, incident) is IncidentState.AWAITING_HUMAN, within_s=PATIENCE_S)
    return incident


def state(drill: Drill, incident: Incident) -> IncidentState:
    found = drill.store.incident(incident.id)
    assert found is not None
    return found.state


def drained(drill: Drill, node: str, times: int) -> None:
    """That many drains in all, and the controller has seen the last: a resume before that would be taken for another loss."""
    eventually(lambda: len(drill.intents("Drain", target=node)) == times, within_s=PATIENCE_S)
    eventually(lambda: drill.node(node).draining, within_s=PATIENCE_S)
    eventually(lambda: drill.store.incidents(node=node)[0].drain_lost_at is None, within_s=PATIENCE_S)


def restart(drill: Drill, *, cold: bool = False) -> None:
    drill.practice.stop_slurmctld()
    drill.practice.start_slurmctld(cold=cold)


def resume(drill: Drill, node: str) -> None:
    """Slurm refuses for a node that has not registered since the start, and clears the drain all the same (seen on 22.05)."""
    with suppress(Rejected):
        drill.scontrol("update", f"NodeName={node}", "State=RESUME")


def said(drill: Drill, incident: Incident, words: str) -> bool:
    return any(words in event.text for event in drill.store.events(incident_id=incident.id))


def test_a_cold_start_and_a_node_that_leaves_slurm_conf(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=4, spares=1, heartbeat_s=2.0, settings=ONLY_RESETS)
    incident = awaits_operator(drill, "n1")
    time.sleep(SAVED_S)

    restart(drill)
    drill.practice.wait_for_nodes()
    drained(drill, "n1", 1)
    assert state(drill, incident) is IncidentState.AWAITING_HUMAN

    restart(drill, cold=True)
    drained(drill, "n1", 2)
    assert said(drill, incident, "slurmctld has forgotten the drain of n1")
    assert state(drill, incident) is IncidentState.AWAITING_HUMAN

    time.sleep(SAVED_S)
    conf = drill.practice.slurm_conf
    whole = conf.read_text()
    lines = whole.splitlines(keepends=True)
    conf.write_text(
        "".join(line for line in lines if not line.startswith("NodeName=n1 ")).replace("Nodes=n1,", "Nodes=")
    )
    restart(drill)
    eventually(lambda: said(drill, incident, "Slurm no longer shows n1"), within_s=PATIENCE_S)
    time.sleep(SAVED_S)
    conf.write_text(whole)
    restart(drill)
    drained(drill, "n1", 3)
    assert state(drill, incident) is IncidentState.AWAITING_HUMAN

    resume(drill, "n1")
    eventually(lambda: state(drill, incident) is IncidentState.CLOSED, within_s=PATIENCE_S)
    assert len(drill.intents("Drain", target="n1")) == 3


def test_an_operators_resume_right_before_and_right_after_a_plain_restart(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=4, spares=1, heartbeat_s=2.0, settings=ONLY_RESETS)
    first = awaits_operator(drill, "n1")
    drill.sleeper("--nodelist=n3", consent=False)
    time.sleep(SAVED_S)
    resume(drill, "n1")
    restart(drill)
    eventually(lambda: state(drill, first) is IncidentState.CLOSED, within_s=PATIENCE_S)

    second = awaits_operator(drill, "n2")
    time.sleep(SAVED_S)
    restart(drill)
    resume(drill, "n2")
    eventually(lambda: state(drill, second) is IncidentState.CLOSED, within_s=PATIENCE_S)
    assert len(drill.intents("Drain")) == 2
