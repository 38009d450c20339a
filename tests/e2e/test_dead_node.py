"""A node that stopped reporting: dead, cut off, or stuck."""

from __future__ import annotations

import pytest

from holdfast.model.actions.action import IntentState, SendOrder, Verb
from holdfast.model.incidents.incident import IncidentState
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]
FAST = {"death": {"silent_after_heartbeats": 4.0, "reprobe_s": 2.0, "end_leftover_steps": True, "reboot_grace_s": 20.0}}


def make(make_drill: MakeDrill, **options: object) -> Drill:
    drill = make_drill(heartbeat_s=1.0, settings={**FAST, **options.pop("settings", {})}, **options)  # type: ignore[dict-item]
    drill.wait_for_witnesses()
    return drill


def test_a_node_without_power_is_dead_and_its_job_runs_elsewhere(make_drill: MakeDrill) -> None:
    """The emulated provider still shows its machine as running with passing checks: an operator decides whether to terminate it."""
    drill = make(make_drill)
    job_id = drill.train()
    dead = drill.job(job_id).nodes[1]
    drill.inject.power_loss(dead)
    assert dead not in drill.trains(job_id, restarts=1).nodes
    assert drill.incident_on(dead).dead
    assert "peer" in drill.incident_on(dead).headline
    eventually(lambda: drill.incident_on(dead).state is IncidentState.AWAITING_HUMAN, within_s=PATIENCE_S)
    assert (drill.launched(), drill.terminated()) == ([], [])
    assert drill.resumed_from(job_id)[-1] > 0


def test_a_node_whose_provider_shows_it_off_is_replaced_and_heals_without_anyone(make_drill: MakeDrill) -> None:
    drill = make(make_drill)
    job_id = drill.train()
    dead = drill.job(job_id).nodes[1]
    drill.inject.power_loss(dead, shown_off=True)
    assert dead not in drill.trains(job_id, restarts=1).nodes
    assert "the provider" in drill.incident_on(dead).headline
    drill.closed(1, within_s=2 * PATIENCE_S)
    assert (len(drill.launched()), len(drill.terminated())) == (1, 1)
    drill.nothing_left([job_id])


def test_an_agent_cut_off_from_the_controller_changes_nothing(make_drill: MakeDrill) -> None:
    drill = make(make_drill)
    job_id = drill.train()
    node = drill.job(job_id).nodes[1]
    drill.inject.cut_off(node)
    eventually(lambda: bool(drill.store.incidents(node=node)), within_s=PATIENCE_S)
    eventually(lambda: "a peer reaches it" in drill.store.incidents(node=node)[0].note, within_s=PATIENCE_S)
    assert drill.store.incidents(node=node)[0].state is IncidentState.SUSPECTED
    assert drill.run(job_id) == ("RUNNING", 0)
    assert not drill.node(node).out_of_service
    drill.inject.heal(node)
    eventually(lambda: not drill.store.incidents(only_open=True), within_s=PATIENCE_S)
    assert drill.faults() == ()


def test_a_training_node_cut_off_from_everybody_is_fenced_before_its_job_runs_elsewhere(make_drill: MakeDrill) -> None:
    """Its checkpoint library refuses the old run's writes, so no machine needs to be off first."""
    drill = make(make_drill)
    job_id = drill.train()
    node = drill.job(job_id).nodes[0]
    drill.inject.cut_off(node, scope="all")
    assert node not in drill.trains(job_id, restarts=1).nodes
    one_writer(drill, job_id)
    drill.inject.heal(node)
    drill.closed(1, within_s=2 * PATIENCE_S)
    one_writer(drill, job_id)
    assert (drill.launched(), drill.terminated()) == ([], []), "it reports again: validated and returned"


def one_writer(drill: Drill, job_id: int) -> None:
    """The new run started from a checkpoint, and no line of the old one reports a save after that."""
    old, _, new = drill.output(job_id).partition("resumed from step")
    step = int(new.split()[0])
    saved = [int(line.split()[-1]) for line in old.splitlines() if line.startswith("checkpoint step")]
    assert step >= max(saved)
    assert "resumed from step" not in new
    later = [int(line.split()[-1]) for line in new.splitlines() if line.startswith("checkpoint step")]
    assert later == sorted(set(later)), "two runs wrote"


def test_a_job_that_cannot_be_fenced_waits_and_no_machine_is_ended_for_it(make_drill: MakeDrill) -> None:
    """A job without the checkpoint library, on a node that trains on where no one sees it."""
    drill = make(make_drill)
    job_id = drill.sleeper("--nodes=2", "--ntasks-per-node=1", "--exclusive", "--gres=gpu:8")
    node = drill.job(job_id).nodes[1]
    drill.inject.cut_off(node, scope="all")
    eventually(lambda: any(i.dead for i in drill.faults()), within_s=PATIENCE_S, why=lambda: drill.account(job_id))
    eventually(lambda: bool(drill.intents("Notify", target="unfenced")), within_s=PATIENCE_S)
    assert drill.run(job_id) == ("RUNNING", 0)
    assert (drill.launched(), drill.terminated()) == ([], [])


@pytest.mark.parametrize(
    ("fault", "ended"),
    [
        # The survivors' own tasks wait for the stuck ones, and slurmd ends them after KillWait (30 s).
        pytest.param("task", "ended", id="task", marks=pytest.mark.soak),
        pytest.param("epilog", "epilogs", id="epilog"),
    ],
)
def test_a_job_that_its_faulty_node_does_not_let_go_is_freed(make_drill: MakeDrill, fault: str, ended: str) -> None:
    drill = make(make_drill, settings={"jobs": {"stuck_completing_s": 3.0}})
    job_id = drill.train()
    bad = drill.job(job_id).nodes[1]
    if fault == "task":
        drill.inject.stuck_task(bad)
    else:
        drill.inject.stuck_epilog(bad)
    drill.inject.xid(bad, 119, 3)
    assert bad not in drill.trains(job_id, restarts=1).nodes
    assert drill.resumed_from(job_id)[-1] > 0
    steps = drill.store.intents(incident_id=drill.incident_on(bad).id)
    orders = [i for i in steps if isinstance(i.action, SendOrder) and i.action.verb is Verb.END_JOB]
    assert [(o.state, bool(o.result[ended])) for o in orders] == [(IntentState.DONE, True)]
    assert not any(i.kind == "SetDown" for i in steps), "on Slurm 22.05 a DOWN breaks the job's next run"
    drill.closed(1)
    assert (len(drill.launched()), len(drill.terminated())) == (1, 1)
    drill.nothing_left([job_id])
