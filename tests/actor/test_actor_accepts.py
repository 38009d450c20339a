"""The actor's own check of node sets and accepts: whatever the store plans, by its own settings and Slurm's own answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.actor.accepts import forbidden
from holdfast.model.actions.action import Drain, HoldJob, Intent, IntentState, Notify, Reboot, Requeue
from holdfast.model.errors import Unavailable
from holdfast.model.event import EventKind
from holdfast.model.operators.proposals import proposal_id
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import JobKey
from support.simulated import Site
from support.simulated.site import POLICY

NEVER = replace(POLICY, nodes=(NodeSet(name="ours", nodes="n1", never_touch=True),))
BY_PARTITION = replace(POLICY, nodes=(NodeSet(name="prod", partitions=("main",), never_touch=True),))


def planned(site: Site, action: Any, state: IntentState = IntentState.PLANNED) -> Intent:
    kind, node = type(action).__name__, getattr(action, "node", "7r0")
    return Intent(f"inc1/{kind}/{node}/1", "inc1", action, "drill", 1, state, site.clock.now())


@pytest.mark.parametrize("policy", [NEVER, replace(POLICY, mode=Mode.PROPOSE), replace(POLICY, mode=Mode.OBSERVE)])
def test_what_the_settings_do_not_allow_is_not_begun_whatever_the_store_plans(policy: Policy) -> None:
    site = Site(2)
    for action in (Drain("n1", "holdfast[inc1]: x"), Reboot("n1", "i-0001", "b", "t", via_slurm=False)):
        outcome = forbidden(policy, site.book, planned(site, action), site.slurm)
        assert outcome is not None
        assert outcome.state is IntentState.FAILED


def test_act_without_tables_asks_slurm_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(2)
    monkeypatch.setattr(site.slurm, "all_nodes", None)
    assert forbidden(POLICY, site.book, planned(site, Drain("n1", "x")), site.slurm) is None


def test_a_step_that_was_begun_is_finished_and_messages_are_sent() -> None:
    site = Site(2)
    begun = planned(site, Drain("n1", "x"), IntentState.STARTED)
    assert forbidden(NEVER, site.book, begun, site.slurm) is None
    assert forbidden(NEVER, site.book, planned(site, Notify("x", "y")), site.slurm) is None


def test_which_partition_a_node_is_in_is_asked_of_slurm_itself() -> None:
    site = Site(2)
    (partition,) = site.slurm.node("n1").partitions
    policy = replace(POLICY, nodes=(NodeSet(name="prod", partitions=(partition,), never_touch=True),))
    assert forbidden(policy, site.book, planned(site, Drain("n1", "x")), site.slurm) is not None
    policy = replace(POLICY, nodes=(NodeSet(name="prod", partitions=("nowhere",), never_touch=True),))
    assert forbidden(policy, site.book, planned(site, Drain("n1", "x")), site.slurm) is None


def test_while_slurm_does_not_answer_nothing_is_begun_for_which_it_has_to_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(2)

    def away() -> None:
        raise Unavailable("slurmctld does not answer")

    monkeypatch.setattr(site.slurm, "all_nodes", away)
    outcome = forbidden(BY_PARTITION, site.book, planned(site, Drain("n1", "x")), site.slurm)
    assert outcome is not None
    assert outcome.retryable


def test_a_running_job_is_stopped_only_if_none_of_its_nodes_is_never_touched() -> None:
    site = Site(2)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    key = JobKey("practice", job.job_id, site.clock.now())
    assert forbidden(NEVER, site.book, planned(site, Requeue(key, 0)), site.slurm) is not None


def test_a_store_that_plans_a_drain_of_a_node_never_touched_gets_none() -> None:
    """The controller has other settings than the actor, or was taken over."""
    site = Site(4)
    site.actor.policy = NEVER
    site.fault("n1", sticky=True)
    site.fault("n2", sticky=True)
    site.run(60)
    done = [e for e in site.store.events(kinds=(EventKind.ACTION_DONE,)) if e.detail["kind"] == "Drain"]
    assert [e.node for e in done] == ["n2"]
    mine = site.store.intents(incident_id=site.incident("n1").id)
    assert {i.outcome for i in mine if i.kind == "Drain"} == {"node set 'ours': never_touch: recorded, not done"}
    assert [s for s in site.notices.sent if "never_touch" in s], "an operator is notified, as it fails again and again"


def test_planned_in_act_and_not_begun_in_propose() -> None:
    site = Site(4)
    site.actor.mode = Mode.OBSERVE  # it waits, as an actor that was away
    site.fault("n1", sticky=True)
    site.run(1)
    assert "Drain" in [i.kind for i in site.store.due_intents()]
    site.policy = replace(POLICY, mode=Mode.PROPOSE)
    site.start_controller()
    site.actor.mode = Mode.ACT  # the actor was not started again
    site.turn()
    site.run(60)
    assert not any(n.drain for n in site.slurm.nodes.values())
    (record,) = site.incident("n1").proposals
    site.operate("accept", proposal_id(site.incident("n1").id, record.number), for_s=600)
    site.run(60)
    assert site.slurm.nodes["n1"].drain


@pytest.mark.parametrize(
    "action", [lambda key: Requeue(key, 0), lambda key: HoldJob(key, "held")], ids=["requeue", "hold"]
)
def test_a_heterogeneous_job_is_stopped_only_if_no_component_is_on_a_node_never_touched(action: Any) -> None:
    site = Site(3)
    leader, other = site.slurm.submit_together(1, 1, exclusive=True)
    assert leader.nodes != other.nodes
    policy = replace(POLICY, nodes=(NodeSet(name="ours", nodes=other.nodes[0], never_touch=True),))
    for job in (leader, other):
        intent = planned(site, action(JobKey("practice", job.job_id, site.clock.now())))
        assert forbidden(policy, site.book, intent, site.slurm) is not None, job.job_id
