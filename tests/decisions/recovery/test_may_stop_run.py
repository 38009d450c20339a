"""The one rule for stopping or requeuing a run, as tables: each refusal, their order, and what none of them touches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.decisions.common.consent import FAILED, NODE_LOST, Consent
from holdfast.decisions.common.may_stop_run import (
    DeadNode,
    FaultyRun,
    GroupAsked,
    GroupToShrink,
    LeftoverTasks,
    LostNode,
    MayNotStop,
    MayStop,
    RunFacts,
    RunOnDeadNode,
    SlowGroup,
    StopRefusal,
    StuckNode,
    may_stop_run,
)
from holdfast.decisions.common.node_drains import DrainedBy
from holdfast.model.incidents.incident import Ground

OPTED_IN = Consent(Ground.OPT_IN, "job option")
LOSES = RunOnDeadNode(completing=False, consents=True, never_ended_by_slurm=False, unfenced=False)
LOST = LostNode(run=LOSES, one_cause=None, other_job=None, taken_out=None)
RUN = FaultyRun(failed=False, in_hands=False, cannot=None, consent=OPTED_IN, lost=None)
ENDED = replace(RUN, failed=True)
DEAD = DeadNode(drained_by=None, down=False, slurm_settled=True, runs=(LOSES,))
DENIES = replace(LOSES, consents=False)


@pytest.mark.parametrize(
    ("facts", "ground"),
    [
        (RUN, OPTED_IN),
        (ENDED, FAILED),
        (replace(ENDED, in_hands=True), FAILED),  # it has ended: the operator's work on its node is not touched
        (replace(RUN, lost=LOST), NODE_LOST),
        (replace(RUN, consent=None, lost=replace(LOST, run=replace(DENIES, never_ended_by_slurm=True))), NODE_LOST),
        (LOST, None),
        (LOSES, None),
        (replace(DENIES, completing=True), None),
        (replace(DENIES, never_ended_by_slurm=True), None),
        (DEAD, None),
        (replace(DEAD, drained_by=DrainedBy.OURS), None),
        (replace(DEAD, drained_by=DrainedBy.SLURM, down=True, runs=()), None),
        (replace(DEAD, drained_by=DrainedBy.SLURM, down=True, runs=(DENIES,)), None),  # Slurm has ended it
        (LeftoverTasks(agent=True, drained_by_us=True), None),
        (StuckNode(order_in_vain=True, alone=True), None),
        (GroupToShrink(settled=True, recovering=False), None),
        (GroupAsked(not_reached=True, overdue=False), None),
        (GroupAsked(not_reached=False, overdue=True), None),
        (SlowGroup(legal_without=True, acknowledged=False), None),
    ],
)
def test_a_run_may_be_stopped(facts: RunFacts, ground: Consent | None) -> None:
    assert may_stop_run(facts) == MayStop(ground)


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (replace(RUN, in_hands=True), StopRefusal.IN_HANDS),
        (replace(RUN, in_hands=True, cannot="salloc", consent=None), StopRefusal.IN_HANDS),
        (replace(RUN, cannot="salloc"), StopRefusal.CANNOT),
        (replace(ENDED, cannot="salloc", consent=None), StopRefusal.CANNOT),
        (replace(RUN, consent=None), StopRefusal.NO_CONSENT),
        (replace(ENDED, consent=None), StopRefusal.NOT_AGAIN),
        (replace(RUN, lost=replace(LOST, run=DENIES, one_cause="8 nodes")), StopRefusal.NO_CONSENT),
        (replace(RUN, lost=replace(LOST, one_cause="8 nodes", other_job="9")), StopRefusal.ONE_CAUSE),
        (replace(LOST, other_job="9", run=replace(LOSES, unfenced=True)), StopRefusal.UNFENCED),
        (replace(LOST, other_job="9", taken_out="root"), StopRefusal.OTHER_JOB),
        (replace(LOST, taken_out="root", run=replace(LOSES, unfenced=True)), StopRefusal.UNFENCED),
        (replace(LOST, taken_out="root"), StopRefusal.TAKEN_OUT),
        (DENIES, StopRefusal.NO_CONSENT),
        (replace(DENIES, unfenced=True), StopRefusal.NO_CONSENT),
        (replace(LOSES, unfenced=True), StopRefusal.UNFENCED),
        (replace(DENIES, completing=True, unfenced=True), StopRefusal.UNFENCED),
        (replace(DEAD, drained_by=DrainedBy.FOREIGN), StopRefusal.TAKEN_OUT),
        (replace(DEAD, drained_by=DrainedBy.FOREIGN, down=True), StopRefusal.TAKEN_OUT),
        (replace(DEAD, drained_by=DrainedBy.OURS, down=True), StopRefusal.DOWN),
        (replace(DEAD, drained_by=DrainedBy.SLURM, down=True, slurm_settled=False), StopRefusal.SLURM_SETTLING),
        (replace(DEAD, runs=()), StopRefusal.NO_JOB),
        (replace(DEAD, runs=(LOSES, DENIES)), StopRefusal.NO_CONSENT),
        (replace(DEAD, runs=(LOSES, replace(LOSES, unfenced=True))), StopRefusal.UNFENCED),
        (LeftoverTasks(agent=False, drained_by_us=True), StopRefusal.NO_AGENT),
        (LeftoverTasks(agent=True, drained_by_us=False), StopRefusal.TAKEN_OUT),
        (StuckNode(order_in_vain=False, alone=True), StopRefusal.ORDER_FIRST),
        (StuckNode(order_in_vain=True, alone=False), StopRefusal.OTHER_JOB),
        (GroupToShrink(settled=False, recovering=False), StopRefusal.CHANGED),
        (GroupToShrink(settled=True, recovering=True), StopRefusal.RECOVERING),
        (GroupAsked(not_reached=False, overdue=False), StopRefusal.TIME_LEFT),
        (SlowGroup(legal_without=False, acknowledged=False), StopRefusal.TOO_FEW),
        (SlowGroup(legal_without=True, acknowledged=True), StopRefusal.ACKNOWLEDGED),
    ],
)
def test_a_run_may_not_be_stopped(facts: RunFacts, kind: StopRefusal) -> None:
    answer = may_stop_run(facts)
    assert isinstance(answer, MayNotStop)
    assert answer.kind is kind


def test_the_fact_behind_a_refusal_is_kept_for_people() -> None:
    assert may_stop_run(replace(RUN, cannot="salloc")) == MayNotStop(StopRefusal.CANNOT, "salloc")
    assert may_stop_run(replace(LOST, other_job="9")) == MayNotStop(StopRefusal.OTHER_JOB, "9")
