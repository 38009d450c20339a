"""What Holdfast does now, and what waits for an operator: tables, and one fault on the simulated cluster from its first turn to its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.decisions.overview import at_work, in_flight, next_due, overview, waits
from holdfast.model.actions.action import Drain, Intent, IntentState, Launch, Notify
from holdfast.model.book import Book, Brake, BrakeKind, World
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.notice import Message, NoticeLevel, PendingAddress, PendingMessage, Topic
from holdfast.model.operators.maintenance import Window
from holdfast.model.operators.proposals import ProposalRecord, ProposalState, Question, StepKind
from holdfast.model.parts import Condition, PartName, PartState
from holdfast.model.policies.policy import Mode, Policy
from support.simulated.site import Site
from support.store_nouns import NOW, incident, later

ACT = Policy(mode=Mode.ACT)


WINDOW = Window("w1", ("n1",), NOW, later(3600), "ann", "firmware")


def world(*incidents: Incident, policy: Policy = ACT, **book: Any) -> World:
    return World(later(60), policy, Book(incidents={i.id: i for i in incidents}, **book), None)


def intent(number: int, state: IntentState, **changed: Any) -> Intent:
    action = changed.pop("action", Drain("n1", "x"))
    return Intent(f"inc1/Drain/n1/{number}", "inc1", action, "why", 1, state, later(number), **changed)


SENTENCES = [
    (world(), "Nothing needs you."),
    (world(policy=Policy(mode=Mode.OBSERVE)), "Nothing needs you; in mode observe nothing is done."),
    (world(incident()), "Healing n1: taking it out of service. Nothing needs you."),
    (
        world(incident(), incident("inc2", node="n2")),
        "Healing n1: taking it out of service, and 1 more incident. Nothing needs you.",
    ),
    (world(incident(state=IncidentState.WATCHING)), "Nothing needs you."),
    (world(incident(acknowledged=True)), "Nothing needs you."),
    (world(paused="ann: storage"), "1 thing needs you."),
    (world(incident(state=IncidentState.AWAITING_HUMAN), paused="ann"), "2 things need you."),
    (world(incident(), paused="ann"), "1 thing needs you; 1 incident held back."),
    (world(incident(), policy=Policy(mode=Mode.OBSERVE)), "Nothing needs you; in mode observe nothing is done."),
    (world(incident(), windows=(WINDOW,)), "Nothing needs you; 1 incident held back."),
    (
        world(incident(), incident("inc2", node="n2"), windows=(WINDOW,)),
        "Healing n2: taking it out of service; 1 incident held back. Nothing needs you.",
    ),
    (None, "Nothing needs you; the control loop has not turned yet: what Holdfast does is not known."),
]


@pytest.mark.parametrize(("seen", "sentence"), SENTENCES)
def test_the_sentence(seen: World | None, sentence: str) -> None:
    assert overview(seen, {}, ()).sentence == sentence


def test_what_waits_is_answered_by_a_command() -> None:
    held = incident("inc9", kind=IncidentKind.HELD_JOB, state=IncidentState.WATCHING, job="c/4711@1767225600r2")
    asks = incident("inc2", state=IncidentState.AWAITING_HUMAN, note="no capacity")
    brake = Brake(BrakeKind.DRAINS, NOW, "9 drains in 10 minutes")
    released = Brake(BrakeKind.JOB_STOPS, NOW, "old", released_at=NOW)
    seen = world(held, asks, paused="ann", brakes={"drains": brake, "job_stops": released})
    failed = PartState(PartName.ACTOR, Condition.FAILED, "no sign of life", "systemctl start holdfast-actor")
    mild = PartState(PartName.DISK, Condition.WARNING, "900 MiB free")
    assert [(w.kind, w.answer) for w in waits(seen, (failed, mild))] == [
        ("part", "systemctl start holdfast-actor"),
        ("paused", "holdfast resume"),
        ("brake", "holdfast release drains"),
        ("incident", "holdfast incident show inc2"),
        ("held_job", "scontrol release 4711"),
    ]
    assert [w.kind for w in waits(None, (failed,))] == ["part"]
    assert not at_work(seen), "a held job is no work of Holdfast's"


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (PartName.STORE, "1 thing needs you; nothing is done now: store failed."),
        (PartName.ACTOR, "1 thing needs you; nothing is done now: actor failed."),
        (PartName.NOTIFIER, "Healing n1: taking it out of service. 1 thing needs you."),
    ],
)
def test_no_one_reads_that_a_node_is_healed_while_no_step_is_taken(part: PartName, sentence: str) -> None:
    assert overview(world(incident()), {}, (PartState(part, Condition.FAILED, "away"),)).sentence == sentence


def test_a_node_in_other_hands_is_held_back_and_says_why() -> None:
    (doing,) = at_work(world(incident(), windows=(WINDOW,)))
    assert (doing.what, doing.held, doing.step) == ("held back", True, "")
    assert "maintenance by ann" in doing.reason


def test_open_proposals_and_messages_that_were_refused_wait_for_an_operator() -> None:
    question = Question(StepKind.DRAIN, "n1")
    asked = ProposalRecord(1, question, ProposalState.OPEN, "drain n1", "fatal", NOW, NOW, later(60), "n1")
    dismissed = replace(asked, number=2, status=ProposalState.DISMISSED)
    snoozed = replace(asked, number=3, status=ProposalState.SNOOZED)
    mine = replace(incident(), proposals=(asked, dismissed, snoozed))
    refused = PendingAddress("urls[0] mailto://…", NOW, attempts=2, error="550")
    first_try = PendingAddress("urls[1] json://…", NOW)
    message = Message("m7", NOW, NoticeLevel.NEEDS_SOMEBODY, Topic.SPARES_SHORT, "the spare pool is short", "")
    outbox = (PendingMessage(message, (refused, first_try)), PendingMessage(message, (first_try,)))
    found = [(w.kind, w.subject, w.what, w.answer) for w in waits(world(mine), (), outbox)]
    assert found == [
        (
            "proposal",
            "n1",
            "accept or dismiss: drain n1: fatal",
            "holdfast accept inc1.1   # or dismiss, snooze",
        ),
        (
            "notice",
            "message",
            "not delivered to urls[0] mailto://…: the spare pool is short",
            "holdfast notices   # holdfast runbook notifier-fails",
        ),
    ]


@pytest.mark.parametrize(
    ("status", "by", "held"),
    [
        (ProposalState.OPEN, "", "waits for an answer (holdfast proposals --all): drain n1"),
        (ProposalState.SNOOZED, "ann", "snoozed by ann (holdfast proposals --all): drain n1"),
        (ProposalState.DISMISSED, "ann", "dismissed by ann (holdfast proposals --all): drain n1"),
        (ProposalState.ACCEPTED, "ann", ""),
        (ProposalState.WITHDRAWN, "", ""),
    ],
)
def test_an_incident_whose_step_is_not_accepted_is_held_back(status: ProposalState, by: str, held: str) -> None:
    question = Question(StepKind.DRAIN, "n1")
    record = ProposalRecord(1, question, status, "drain n1", "fatal", NOW, NOW, later(60), "n1", by=by)
    (doing,) = at_work(world(replace(incident(), proposals=(record,))))
    assert (doing.held, doing.reason if held else "") == (bool(held), held)


def test_the_step_in_flight_is_the_newest_and_a_message_only_for_want_of_another() -> None:
    planned, started = intent(1, IntentState.PLANNED), intent(2, IntentState.STARTED)
    message = intent(3, IntentState.PLANNED, action=Notify("subject", "body"))
    assert in_flight((planned, started, message)) is started
    assert in_flight((message,)) is message
    assert in_flight((intent(4, IntentState.DONE), intent(5, IntentState.WITHHELD))) is None


def test_a_launch_that_found_no_capacity_is_due_again_after_its_pause() -> None:
    repairing = incident(state=IncidentState.REPAIRING, rung="replace", state_since=NOW)
    key = "inc1/Launch/n1.0/1"
    failed = Intent(
        key, "inc1", Launch("n1", "i-1", "t"), "", 1, IntentState.FAILED, NOW, finished_at=later(10), retryable=True
    )
    seen = world(repairing, intents={key: failed})
    tried = next_due(seen, repairing)
    if tried == (None, ""):
        pytest.fail(f"the step of the rung is spelled otherwise: {key}")
    assert tried == (later(10) + timedelta(seconds=ACT.repair.backoff_s), "attempt 2 of the step")
    validating = incident(state=IncidentState.VALIDATING, state_since=NOW)
    assert next_due(world(validating), validating)[0] == NOW + timedelta(seconds=ACT.repair.validate_timeout_s)
    assert next_due(world(incident()), incident()) == (None, "")
    goes = incident(goes_at=later(120))
    assert next_due(world(goes), goes) == (later(120), "the provider takes the machine away")


def test_a_fault_is_followed_until_nothing_needs_anyone() -> None:
    site = Site(4, spares=("n4",))
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(5)
    site.fault("n1")
    said = []
    for _ in range(400):
        site.run(1)
        assert site.loop.world is not None
        seen = overview(site.loop.world, {}, ())
        said += [d.state for d in seen.doing if d.state not in said]
        assert not seen.waiting
    assert [s for s in said if s in ("contained", "repairing", "validating")] == [
        "contained",
        "repairing",
        "validating",
    ]
    assert (seen.sentence, seen.nodes) == ("Nothing needs you.", {"in_service": 4})


def test_groups_of_nodes_without_slurm_are_unknown() -> None:
    seen = replace(world(incident()), view=None)
    assert overview(seen, {"n7": ["heard"]}, ()).nodes == {"unknown": 2}
