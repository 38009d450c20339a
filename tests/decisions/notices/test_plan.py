"""Grouping, repetition and limits of messages to people, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.decisions.notices import over, plan, texts
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Launch
from holdfast.model.book import Book, Brake, BrakeKind
from holdfast.model.incidents.incident import IncidentKind, IncidentState
from holdfast.model.notice import Matter, Message, NoticeLevel, NoticePolicy, NoticeState, Topic
from support.store_nouns import incident

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
POLICY = NoticePolicy()
WRITER = texts.MessageWriter(texts.NoticeLinks("docs", "https://hf.example/incidents/"))


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def matter(node: str, topic: Topic = Topic.AWAITING_HUMAN, level: NoticeLevel = NoticeLevel.NEEDS_SOMEBODY) -> Matter:
    return Matter(topic, node, f"{node} needs an operator: no rung is left", level, "why", f"id{node}", (node,), NOW)


def queued(state: NoticeState, matters: Sequence[Matter], at: datetime = NOW) -> NoticeState:
    for each in matters:
        state, _ = plan.take(state, each, POLICY, at)
    return state


def made(state: NoticeState, at: datetime, policy: NoticePolicy = POLICY) -> tuple[NoticeState, tuple[Message, ...]]:
    return plan.make(state, policy, at, WRITER)


@pytest.mark.parametrize(
    ("count", "subject"),
    [
        (1, "n0 needs an operator: no rung is left"),
        (2, "2 nodes need an operator: n0, n1"),
        (200, "200 nodes need an operator: n0, n1, n2, n3, n4, n5, n6, n7 and 192 more"),
    ],
)
def test_what_is_due_together_is_one_message(count: int, subject: str) -> None:
    state, (message,) = made(queued(NoticeState(), [matter(f"n{n}") for n in range(count)]), NOW)
    assert (message.subject, message.stands_for) == (subject, count)
    assert (len(state.open), state.waiting) == (count, ())
    assert len(message.body.splitlines()) < 40


def test_a_message_says_what_why_what_next_what_to_do_and_where() -> None:
    _, (message,) = made(queued(NoticeState(), [matter("n1")]), NOW)
    assert message.body.splitlines() == [
        "why",
        "Next, Holdfast: nothing: the node stays out of service until you act.",
        "You can: holdfast incident show idn1; once it is fit: scontrol update nodename=n1 state=resume; "
        "for another machine: holdfast incident retry idn1",
        "Runbook: holdfast runbook awaiting-human",
        "Incident: https://hf.example/incidents/idn1",
    ]


@pytest.mark.parametrize(
    ("base", "topic", "line"),
    [
        ("docs", Topic.BRAKE, "Runbook: holdfast runbook brake"),
        ("docs", Topic.OTHER, "Runbook: holdfast runbook"),
        (
            "https://docs.example/hf/",
            Topic.BRAKE,
            "Runbook: holdfast runbook brake (https://docs.example/hf/runbooks/brake.md)",
        ),
    ],
)
def test_the_runbook_is_named_once_by_its_command(base: str, topic: Topic, line: str) -> None:
    writer = texts.MessageWriter(texts.NoticeLinks(base))
    _, (message,) = plan.make(queued(NoticeState(), [matter("n1", topic)]), POLICY, NOW, writer)
    assert [each for each in message.body.splitlines() if "unbook" in each] == [line]


def test_a_held_job_is_named_in_what_can_be_done() -> None:
    held = incident("id9", kind=IncidentKind.HELD_JOB, job="c/4711@1767225600r2")
    writer = texts.MessageWriter(book=Book(incidents={"id9": held}))
    told = replace(matter("n1", Topic.JOB_HELD), incident_id="id9")
    _, (message,) = plan.make(queued(NoticeState(), [told]), POLICY, NOW, writer)
    assert "You can: scontrol release 4711; holdfast incident show id9" in message.body


def test_the_end_says_how_it_ended() -> None:
    state, _ = made(queued(NoticeState(), [matter("n1")]), NOW)
    state = plan.end(state, lambda _: True, later(60))
    closed = incident("idn1", state=IncidentState.CLOSED, note="root put it back; its fault is still there")
    writer = texts.MessageWriter(book=Book(incidents={"idn1": closed}))
    _, (message,) = plan.make(state, POLICY, later(60), writer)
    assert message.body == "Incident idn1 is closed: root put it back; its fault is still there"


def test_news_that_waits_for_its_message_has_no_end() -> None:
    """The second node that was healed within a minute was never sent: its incident is closed."""
    healed = matter("n2", Topic.HEALED, NoticeLevel.HEALED)
    book = Book(incidents={"idn2": incident("idn2", state=IncidentState.CLOSED)})
    state, _ = made(queued(NoticeState(), [matter("n1", Topic.HEALED, NoticeLevel.HEALED)]), NOW)
    state = plan.end(queued(state, [healed], later(5)), lambda each: over.is_over(book, each), later(10))
    assert [each.target for each in state.waiting] == ["n2"]
    assert [m.subject for m in made(state, later(60))[1]] == [healed.subject]


def test_the_same_is_not_told_again_until_it_is_over_or_repeat_s() -> None:
    state, _ = made(queued(NoticeState(), [matter("n1")]), NOW)
    for seconds, verdict in ((60, plan.AlreadyTold("m1")), (POLICY.repeat_s, plan.Queued())):
        assert plan.take(state, matter("n1"), POLICY, later(seconds))[1] == verdict
    ended = plan.end(state, lambda _: True, later(60))
    assert (ended.open, [each.target for each in ended.ended]) == ((), ["n1"])
    assert plan.take(ended, matter("n1"), POLICY, later(61))[1] == plan.Queued()


def test_what_is_open_for_long_is_repeated_once_a_day() -> None:
    state, _ = made(queued(NoticeState(), [matter("n1")]), NOW)
    for _ in range(2):
        state = plan.remind(state, lambda _: False, POLICY, later(POLICY.repeat_s))
    state, messages = made(state, later(POLICY.repeat_s))
    assert len(messages) == 1
    assert "still open" in messages[0].body
    assert plan.remind(state, lambda _: False, POLICY, later(POLICY.repeat_s + 60)) == state
    never = replace(POLICY, repeat_s=0.0)
    assert plan.remind(state, lambda _: False, never, later(1e7)) == state


def test_a_storm_that_lasts_for_an_hour_sends_few_messages_and_leaves_no_node_out() -> None:
    state, messages = NoticeState(), list[Message]()
    for second in range(0, 3600, 5):
        state = queued(state, [matter(f"n{second}")], later(second))
        state, some = made(state, later(second))
        messages += some
    state, rest = made(state, later(4300))
    assert len(messages) <= 10
    assert sum(each.stands_for for each in [*messages, *rest]) == 720


def test_the_first_of_another_topic_does_not_wait() -> None:
    state, _ = made(queued(NoticeState(), [matter("n1")]), NOW)
    state, messages = made(queued(state, [matter("n2"), matter("n2", Topic.STEP_FAILING)], later(1)), later(1))
    assert [each.topic for each in messages] == [Topic.STEP_FAILING]
    assert [each.topic for each in state.waiting] == [Topic.AWAITING_HUMAN]


def test_beyond_the_hours_limit_all_topics_share_a_message() -> None:
    topics = [t for t in Topic if t not in (Topic.SEVERAL, Topic.DIGEST)]
    few = replace(POLICY, most_per_hour=5)
    state, messages = made(queued(NoticeState(), [matter("n1", topic) for topic in topics]), NOW, few)
    assert [(m.topic, m.stands_for) for m in messages] == [(Topic.SEVERAL, len(topics))]
    assert state.waiting == ()


def test_levels_are_not_mixed() -> None:
    both = [matter("n1"), matter("n2", Topic.HEALED, NoticeLevel.HEALED)]
    state, messages = made(queued(NoticeState(), both), NOW)
    assert [m.level for m in messages] == [NoticeLevel.NEEDS_SOMEBODY, NoticeLevel.HEALED]
    assert [each.matter.target for each in state.open] == ["n1"], "what is healed has no end"


def test_the_end_of_many_is_one_message_to_people_who_know_of_them() -> None:
    state, _ = made(queued(NoticeState(), [matter(f"n{n}") for n in range(30)]), NOW)
    state = queued(state, [matter("late")], later(1))
    state = plan.end(state, lambda _: True, later(2))
    state, (message,) = made(state, later(2))
    assert (message.over, message.stands_for) == (True, 30)
    assert message.subject.startswith("over: 30 nodes need an operator: n0, ")
    assert (state.open, state.waiting, state.ended) == ((), (), ()), "what was not sent ends without a message"


def test_a_matter_whose_end_is_not_known_is_forgotten_after_a_day() -> None:
    state, _ = made(queued(NoticeState(), [matter("n1")]), NOW)
    assert plan.end(state, lambda _: None, later(plan.FORGET_S - 1)) == state
    assert plan.end(state, lambda _: None, later(plan.FORGET_S)).open == ()


def test_a_flood_is_bounded_and_counted() -> None:
    state = queued(NoticeState(), [matter("n0")])
    state = replace(state, waiting=state.waiting * plan.MOST_WAITING)
    state = queued(state, [matter("more")])
    assert (len(state.waiting), state.left_out) == (plan.MOST_WAITING, 1)
    _, (message,) = made(state, NOW)
    assert message.stands_for == plan.MOST_WAITING + 1


INCIDENT = replace(incident(), id="id1", state=IncidentState.AWAITING_HUMAN)
WAITED = steps.notify_budget(steps.launch("n1", 0))
TAKEN = Intent("id1/Launch/n1.0/1", "id1", Launch("n1", "id1-0"), "", 1, IntentState.PLANNED, NOW)
FAILED = replace(TAKEN, state=IntentState.FAILED)
TRIPPED = Brake(BrakeKind.DRAINS, NOW, "many drains")


@pytest.mark.parametrize(
    ("topic", "target", "book", "ended"),
    [
        (Topic.AWAITING_HUMAN, "t", Book(incidents={"id1": INCIDENT}), False),
        (Topic.AWAITING_HUMAN, "t", Book(incidents={"id1": replace(INCIDENT, state=IncidentState.REPAIRING)}), True),
        (Topic.AWAITING_HUMAN, "t", Book(incidents={"id1": replace(INCIDENT, state=IncidentState.CLOSED)}), True),
        (Topic.AWAITING_HUMAN, "t", Book(), True),
        (Topic.STEP_FAILING, "t", Book(incidents={"id1": replace(INCIDENT, state=IncidentState.REPAIRING)}), False),
        (Topic.HANGS_LIMITED, "t", Book(incidents={"id1": INCIDENT}), None),
        (Topic.BUDGET_SPENT, WAITED.target, Book(incidents={"id1": INCIDENT}), False),
        (Topic.BUDGET_SPENT, WAITED.target, Book(incidents={"id1": INCIDENT}, intents={TAKEN.key: TAKEN}), True),
        (Topic.BUDGET_SPENT, WAITED.target, Book(incidents={"id1": INCIDENT}, intents={"k": FAILED}), False),
        (Topic.BUDGET_SPENT, WAITED.target, Book(), True),
        (Topic.BRAKE, steps.notify_brake("drains", NOW).target, Book(brakes={BrakeKind.DRAINS: TRIPPED}), False),
        (
            Topic.BRAKE,
            steps.notify_brake("drains", NOW).target,
            Book(brakes={BrakeKind.DRAINS: replace(TRIPPED, released_at=later(9))}),
            True,
        ),
        (Topic.BRAKE, steps.notify_brake("drains", later(-99)).target, Book(brakes={BrakeKind.DRAINS: TRIPPED}), True),
    ],
)
def test_when_a_matter_is_over(topic: Topic, target: str, book: Book, ended: bool | None) -> None:
    assert over.is_over(book, Matter(topic, target, "s", incident_id="id1")) is ended


def test_of_a_matter_without_an_incident_no_end_is_known() -> None:
    assert over.is_over(Book(), Matter(Topic.SPARES_SHORT, "t", "s")) is None


@pytest.mark.parametrize("topic", Topic)
def test_a_message_of_any_topic_can_be_written(topic: Topic) -> None:
    """One that cannot be would hold back all that are due with it."""
    _, (message,) = made(queued(NoticeState(), [matter("n0", topic)]), later(3600))
    assert f"Runbook: {texts.runbook_command(topic)}\n" in message.body
