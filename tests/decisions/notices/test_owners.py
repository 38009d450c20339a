"""Mails to jobs' owners: one at once, then one for each pause, none twice, and no user's about another's job."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast.decisions.notices import outbox, owners
from holdfast.model.notice import Matter, Message, NoticeLevel, Topic
from holdfast.model.owner_mail import OwnerMails
from support.simulated.clock import EPOCH

PAUSE_S = 900.0


def later(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def matter(number: int, *, held: bool = False) -> Matter:
    level = NoticeLevel.NEEDS_SOMEBODY if held else NoticeLevel.HEALED
    topic = Topic.JOB_HELD if held else Topic.JOB_RECOVERED
    return Matter(topic, f"t{number}", f"your job {number} runs again", level, body=f"why of {number}")


def run(*given: tuple[float, str, int], until_s: float) -> tuple[OwnerMails, list[tuple[float, Message]]]:
    """``given``: when, to whom and of which job. The mails, and when each was made; the clock goes by the second minute."""
    state, made = OwnerMails(), list[tuple[float, Message]]()
    now_s = 0.0
    while now_s <= until_s:
        for at_s, user, number in given:
            if now_s - 30 < at_s <= now_s:
                state = owners.take(state, user, matter(number), later(now_s))
        state, messages = owners.make(state, PAUSE_S, later(now_s), "hpc")
        made += [(now_s, each) for each in messages]
        now_s += 30
    return state, made


def test_a_job_that_fails_each_minute_is_one_mail_for_each_pause() -> None:
    _, made = run(*((60.0 * n, "ada", n) for n in range(60)), until_s=3600)
    assert [at for at, _ in made] == [0, 900, 1800, 2700, 3600]
    assert sum(m.stands_for for _, m in made) == 60
    assert made[0][1].subject == "hpc: your job 0 runs again"
    assert made[1][1].subject == "hpc: 15 notes about your jobs: your job 1 runs again, and 14 more"


def test_no_user_waits_for_another_and_none_reads_of_anothers_job() -> None:
    state, made = run((0, "ada", 1), (0, "bob", 2), (30, "eve", 3), until_s=60)
    assert [(at, m.body) for at, m in made] == [(0, "why of 1"), (0, "why of 2"), (30, "why of 3")]
    assert [[w.address for w in p.waits] for p in state.mails.outbox] == [["ada"], ["bob"], ["eve"]]


def test_nothing_is_taken_twice_within_a_week() -> None:
    state = owners.take(OwnerMails(), "ada", matter(1), EPOCH)
    assert owners.take(state, "ada", matter(1), later(6 * 86_400)) == state
    assert len(owners.take(state, "ada", matter(1), later(8 * 86_400)).waiting) == 2


def test_one_users_flood_is_bounded_and_keeps_no_other_out() -> None:
    state = OwnerMails()
    for number in range(300):
        state = owners.take(state, "ada", matter(number), EPOCH)
    state = owners.take(state, "bob", matter(999), EPOCH)
    assert len(state.waiting) == owners.MOST_OF_A_USER + 1
    _, messages = owners.make(state, PAUSE_S, EPOCH)
    assert [m.stands_for for m in messages] == [100, 1]
    assert len(messages[0].body) <= 8000


def test_a_held_job_makes_the_mail_one_that_asks_for_something() -> None:
    state = owners.take(owners.take(OwnerMails(), "ada", matter(1), EPOCH), "ada", matter(2, held=True), EPOCH)
    _, (message,) = owners.make(state, PAUSE_S, EPOCH)
    assert (message.level, message.topic) == (NoticeLevel.NEEDS_SOMEBODY, Topic.SEVERAL)
    assert message.subject == "2 notes about your jobs: your job 2 runs again, and 1 more"


def test_a_mailbox_that_fails_comes_after_those_that_were_not_tried() -> None:
    state, _ = run((0, "ada", 1), (0, "bob", 2), until_s=0)
    mails, _ = outbox.answered(state.mails, "o1", "ada", "451", EPOCH)
    state = OwnerMails(mails=mails)
    assert [w.address for _, w in owners.due(state, later(3600))] == ["bob", "ada"]


@pytest.mark.parametrize(
    ("user", "address"),
    [
        ("ada", "ada@site.example"),
        ("ada.b_c-1", "ada.b_c-1@site.example"),
        ("", None),
        ("-x", None),
        ("ada,bob", None),
        ("ada@evil.example", None),
        ("ada\n", None),
        ("a" * 65, None),
    ],
)
def test_only_a_plain_name_becomes_an_address(user: str, address: str | None) -> None:
    assert owners.address_of("{user}@site.example", user) == address
