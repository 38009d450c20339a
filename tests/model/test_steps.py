"""The texts of steps and keys are stored for as long as a store lives: each is as it was in the previous release (commit 7b55535)."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.actions import steps
from holdfast.model.actions.action import ACTION_TYPES, Drain, Intent, IntentState
from holdfast.model.actions.steps import Step, StepKey
from holdfast.model.book import Book
from holdfast.model.slurm.cluster import JobKey

AT = datetime(2026, 7, 1, 12, 30, 15, 600_000, tzinfo=UTC)
JOB = JobKey("c", 4711, AT)
HOUR, WEEK = 495_012, 2_946

TEXTS = [
    (steps.drain("n1"), "Drain/n1"),
    (steps.set_down("n1"), "SetDown/n1"),
    (steps.undrain("n1"), "Undrain/n1"),
    (steps.promote_spare("n1"), "PromoteSpare/n1"),
    (steps.release_spare("n1", HOUR), "PromoteSpare/n1.495012"),
    (steps.adopt_spare("n1"), "AdoptSpare/n1"),
    (steps.adopt_idle_node("n1", HOUR), "AdoptSpare/n1.495012"),
    (steps.adopt_cleared_node("n1", "0h3k5d2m8x1q"), "AdoptSpare/n1.0h3k5d2m8x1q"),
    (steps.hold_nodes(JOB, 2), "HoldNodes/4711r2"),
    (steps.drop_hold("holdfast-0h3k5d2m8x1q-4711", HOUR), "DropHold/holdfast-0h3k5d2m8x1q-4711.495012"),
    (steps.drain_for_operator("0h3k5d2m8x1q", "n1"), "DrainForOperator/n1.0h3k5d2m8x1q"),
    (steps.release_for_operator("0h3k5d2m8x1q", "n1"), "ReleaseForOperator/n1.0h3k5d2m8x1q"),
    (steps.take_over_drain("0h3k5d2m8x1q", "n1"), "TakeOverDrain/n1.0h3k5d2m8x1q"),
    (steps.notify_order("0h3k5d2m8x1q"), "Notify/order.0h3k5d2m8x1q"),
    (steps.notify_order_waits("0h3k5d2m8x1q"), "Notify/order_waits.0h3k5d2m8x1q"),
    (steps.keep_window("0h3k5d2m8x1q", 0xBEEF, HOUR), "KeepWindow/0h3k5d2m8x1q.0000beef.495012"),
    (steps.requeue(JOB, 2), "Requeue/4711r2"),
    (steps.requeue_rest(JOB, 2), "Requeue/4711r2.rest"),
    (steps.release(JOB, 2, 0xBEEF), "Release/4711r2.0000beef"),
    (steps.allow_nodes(JOB, 2, 0xBEEF, HOUR), "AllowNodes/4711r2.0000beef.495012"),
    (steps.hold_job(JOB, 2), "HoldJob/4711r2"),
    (steps.tell_owner(JOB, 2), "TellOwner/4711r2"),
    (steps.take_note_back(JOB, 2), "TellOwner/4711r2.back"),
    (steps.tell_owner_of_hands(JOB, 2), "TellOwner/4711r2.hands"),
    (steps.tell_owner_of_recovery(JOB, 2, from_where=False), "TellOwner/4711r2.recovered"),
    (steps.tell_owner_of_recovery(JOB, 2, from_where=True), "TellOwner/4711r2.resumed"),
    (steps.launch("n1", 3), "Launch/n1.3"),
    (steps.replace("n1", 3), "Replace/n1.3"),
    (steps.reboot("n1", 3), "Reboot/n1.3"),
    (steps.stop_start("n1", 3), "StopStart/n1.3"),
    (steps.terminate("i-7"), "Terminate/i-7"),
    (steps.terminate(""), "Terminate/"),
    (steps.assign("i-7"), "Assign/i-7"),
    (steps.report_fault("i-7"), "ReportFault/i-7"),
    (steps.check_instance("i-7"), "CheckInstance/i-7"),
    (steps.validate("n1", 3), "SendOrder/validate/n1.3"),
    (steps.deep_check("n1", 3), "SendOrder/deep/n1.3"),
    (steps.check_spare("deep", "n1", HOUR), "SendOrder/check.deep/n1.495012"),
    (steps.reset_gpu("n1", 3), "SendOrder/reset_gpu/n1.3"),
    (steps.collect_evidence("n1"), "SendOrder/evidence/n1"),
    (steps.collect_stacks("n1", JOB, 2), "SendOrder/stacks/n1.4711r2"),
    (steps.read_output(JOB, 2), "SendOrder/output/4711r2@1782909015"),
    (steps.leave_job_note(JOB, 2), "SendOrder/job_note/4711r2"),
    (steps.probe_peer("n1"), "SendOrder/probe/n1"),
    (steps.probe_pair("n1", "5"), "SendOrder/pair/n1.5"),
    (steps.save("n1", JOB, 2), "SendOrder/save/4711r2.n1"),
    (steps.survey("n1", JOB, 2), "SendOrder/survey/4711r2.n1"),
    (steps.end_job("n1", JOB, 2), "SendOrder/end_job/n1.4711r2"),
    (steps.end_step("n1", JOB, 2), "SendOrder/end_step/n1.4711r2"),
    (steps.leave("n1", JOB, 2), "SendOrder/leave/n1.4711r2"),
    (steps.leave_room("job-40", "n1", JOB, 2, HOUR), "SendOrder/job-40.leave.4711r2.n1.495012"),
    (
        steps.leave_room("job-40", "n1", JOB, 2, HOUR, serving=JOB),
        f"SendOrder/job-40.leave.4711r2.n1.for-4711-{JOB.submitted_s}.495012",
    ),
    (
        steps.requeue_group("job-40", JOB, 2, HOUR, serving=JOB),
        f"Requeue/job-40.4711r2.for-4711-{JOB.submitted_s}.495012",
    ),
    (steps.requeue_group("job-40", JOB, 2, HOUR), "Requeue/job-40.4711r2.495012"),
    (steps.release_group("job-40", JOB, 2, HOUR), "Release/job-40.4711r2.495012"),
    (steps.delay_start("job-40", JOB, 2, HOUR), "DelayStart/job-40.4711r2.495012"),
    (steps.set_throttle("job-40", 41, 3, HOUR), "SetThrottle/job-40.41=3.495012"),
    (steps.set_throttle("job-40", 41, None, HOUR), "SetThrottle/job-40.41=None.495012"),
    (steps.notify_brake("job_stops", AT), "Notify/brake.job_stops.1782909015"),
    (steps.notify_failing(steps.requeue(JOB, 2)), "Notify/failing.Requeue/4711r2"),
    (steps.notify_unfenced(), "Notify/unfenced"),
    (steps.notify_not_shown(), "Notify/not_shown"),
    (steps.notify_no_machine(), "Notify/launch"),
    (steps.notify_awaiting_human(3), "Notify/awaiting_human.3"),
    (steps.notify_frozen(AT, 2), "Notify/frozen.1782909015.2"),
    (steps.notify_owner(JOB, 2, "held"), "Notify/owner.4711r2.held"),
    (steps.notify_file_system("fs1:/export", AT), "Notify/file_system.2964b66a.1782909015"),
    (steps.notify_dispute(), "Notify/dispute"),
    (steps.notify_hang(), "Notify/hangs"),
    (steps.notify_one_cause(), "Notify/one_cause"),
    (steps.notify_cannot_tell(), "Notify/cannot_tell"),
    (steps.notify_held_job(), "Notify/held_job"),
    (steps.notify_capacity_end(), "Notify/capacity_end"),
    (steps.notify_short_of_spares(AT), "Notify/spares.1782909015"),
    (steps.notify_stays_down(), "Notify/stays_down"),
    (steps.notify_orphan("i-7", WEEK), "Notify/orphan.i-7.2946"),
    (steps.notify_silent("10.2.3.0/24", AT), "Notify/silent.10.2.3.0_24.1782909015"),
    (steps.notify_silent("the cluster", AT), "Notify/silent.the_cluster.1782909015"),
    (steps.notify_silent("n1", AT, 2), "Notify/silent.n1.1782909015.2"),
    (steps.notify_silent("the cluster", AT, 2, 5), "Notify/silent.the_cluster.1782909015.2.5"),
    (steps.notify_proposals(2, AT), "Notify/proposal.2.1782909015"),
    (steps.notify_proposal_expired(2), "Notify/proposal_expired.2"),
    (steps.notify_own_stops(1000), "Notify/own_stops.1000"),
    (steps.notify_own_stops(None), "Notify/own_stops.all"),
    (steps.notify_budget(steps.launch("n1", 0)), "Notify/budget." + steps.launch("n1", 0).text),
]
CONSTRUCTORS = {
    name
    for name, each in inspect.getmembers(steps, inspect.isfunction)
    if inspect.signature(each).return_annotation == "Step"
}


@pytest.mark.parametrize(("step", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_a_steps_text_never_changes(step: Step, text: str) -> None:
    assert step.text == text
    assert step.kind in ACTION_TYPES
    key = StepKey("0h3k5d2m8x1q", step, 2)
    assert key.text == f"0h3k5d2m8x1q/{text}/2"
    assert StepKey.parse(key.text) == key


def test_every_constructor_is_pinned() -> None:
    source = inspect.getsource(inspect.getmodule(test_every_constructor_is_pinned) or steps)
    assert {name for name in CONSTRUCTORS if f"(steps.{name}(" not in source} == set()
    assert len(CONSTRUCTORS) >= 49


NAMES = st.text(st.characters(codec="ascii", exclude_characters="/"), min_size=1)


@given(NAMES, NAMES, st.text(), st.integers(0, 1000))
def test_what_is_read_back_is_what_was_written(incident: str, kind: str, target: str, attempt: int) -> None:
    """Also of a target with slashes: a provider may have any instance ids."""
    key = StepKey(incident, Step(kind, target), attempt)
    assert StepKey.parse(key.text) == key


@pytest.mark.parametrize(
    "text", ["", "inc1", "inc1/Drain", "inc1/Drain/n1/", "inc1/Drain/n1/x", "inc1//1", "/Drain/n1/1", "inc1/Drain/n1/²"]
)
def test_a_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no key of a step"):
        StepKey.parse(text)


def test_attempts_are_those_of_this_very_step() -> None:
    """Not of one whose target begins as this one's does: ids of machines are the provider's."""
    intents = [
        Intent(StepKey(incident, step, number).text, incident, Drain("n1", ""), "", 1, state, AT)
        for incident in ("inc1", "inc2")
        for step in (steps.terminate("rack"), steps.terminate("rack/1"))
        for number, state in ((10, IntentState.FAILED), (2, IntentState.FAILED), (0, IntentState.WITHHELD))
    ]
    book = Book(intents={i.key: i for i in intents})
    assert [i.key for i in book.attempts("inc1", steps.terminate("rack"))] == [
        "inc1/Terminate/rack/2",
        "inc1/Terminate/rack/10",
    ]


def test_a_step_of_an_elastic_job_is_known_again_in_another_hour() -> None:
    one, later = (steps.requeue_group("job-4", JOB, 2, hour) for hour in (HOUR, HOUR + 1))
    assert steps.same_but_hour(one, later)
    assert not steps.same_but_hour(one, steps.requeue_group("job-4", JOB, 3, HOUR))
    assert not steps.same_but_hour(one, steps.release_group("job-4", JOB, 2, HOUR))
    assert not steps.same_but_hour(
        steps.leave_room("job-4", "n1", JOB, 2, HOUR), steps.leave_room("job-4", "n1.site", JOB, 2, HOUR)
    )
    assert steps.resizes(one, "job-4")
    assert not steps.resizes(steps.requeue_group("job-40", JOB, 2, HOUR), "job-4")
