"""Mails to jobs' owners: one at once, then one for each pause, none twice, and no user's about another's job."""

from __future__ import annotations

from dataclasses import replace
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


def run(*given: tuple[float, str, int], until_s: float) -> list[tuple[float, str, Message]]:
    """``given``: when, to whom and of which job. When each mail was taken by its mailbox; the clock goes by the second minute."""
    state, read = OwnerMails(), list[tuple[float, str, Message]]()
    now_s = 0.0
    while now_s <= until_s:
        for at_s, user, number in given:
            if now_s - 30 < at_s <= now_s:
                state, _ = owners.take(state, user, matter(number), later(now_s))
        state, _ = owners.make(state, PAUSE_S, later(now_s), "hpc")
        for message, to in owners.due(state, later(now_s)):
            mails, _ = outbox.answered(state.mails, message.id, to.address, None, later(now_s))
            state, read = replace(state, mails=mails), [*read, (now_s, to.address, message)]
        now_s += 30
    return read


def test_a_job_that_fails_each_minute_is_one_mail_for_each_pause() -> None:
    read = run(*((60.0 * n, "ada", n) for n in range(60)), until_s=3600)
    assert [at for at, _, _ in read] == [0, 900, 1800, 2700, 3600]
    assert sum(m.stands_for for _, _, m in read) == 60
    assert read[0][2].subject == "hpc: your job 0 runs again"
    assert read[1][2].subject == "hpc: 15 notes about your jobs: your job 1 runs again, and 14 more"


def test_no_user_waits_for_another_and_none_reads_of_anothers_job() -> None:
    read = run((0, "ada", 1), (0, "bob", 2), (30, "eve", 3), until_s=60)
    assert [(at, user, m.body) for at, user, m in read] == [
        (0, "ada", "why of 1"),
        (0, "bob", "why of 2"),
        (30, "eve", "why of 3"),
    ]


def took(*given: tuple[str, Matter], state: OwnerMails | None = None, at_s: float = 0.0) -> OwnerMails:
    state = state or OwnerMails()
    for user, each in given:
        state, _ = owners.take(state, user, each, later(at_s))
    return state


def test_nothing_is_taken_twice_within_a_week() -> None:
    state = took(("ada", matter(1)))
    assert owners.take(state, "ada", matter(1), later(6 * 86_400)) == (state, owners.TakenBefore())
    assert len(took(("ada", matter(1)), state=state, at_s=8 * 86_400).waiting) == 2


def test_one_users_flood_is_bounded_counted_and_keeps_no_other_out() -> None:
    state = took(*(("ada", matter(n)) for n in range(300)))
    assert state.mails.totals == {"healed/given_up": 200}
    assert owners.take(state, "ada", matter(300), EPOCH)[1] == owners.TooManyWait()
    state, taken = owners.take(state, "bob", matter(999), EPOCH)
    assert taken == owners.Waits()
    assert len(state.waiting) == owners.MOST_OF_A_USER + 1
    _, messages = owners.make(state, PAUSE_S, EPOCH)
    assert [m.stands_for for m in messages] == [100, 1]
    assert len(messages[0].body) <= 8000


def test_more_owners_than_the_outbox_has_room_for_wait_and_none_is_lost() -> None:
    state, read, made = took(*((f"u{n}", matter(n)) for n in range(500))), list[str](), list[int]()
    for turn in range(5):
        state, messages = owners.make(state, PAUSE_S, later(5 * turn))
        made.append(len(messages))
        assert len(state.mails.outbox) <= outbox.MOST_PENDING
        assert set(state.mailed_at) == set(read) | {w.address for p in state.mails.outbox for w in p.waits}
        for message, to in owners.due(state, later(5 * turn))[:150]:
            mails, _ = outbox.answered(state.mails, message.id, to.address, None, later(5 * turn))
            state, read = replace(state, mails=mails), [*read, to.address]
    assert made == [200, 150, 150, 0, 0]
    assert (read, state.waiting) == ([f"u{n}" for n in range(500)], ())


def test_mailboxes_that_refuse_have_one_mail_each_in_the_outbox_and_push_out_no_other() -> None:
    state, number = took(("ada", matter(0))), 0
    for at_s in range(0, 43_200, 450):
        for user in ("eve", "mal", "bad"):
            number += 1
            state, _ = owners.take(state, user, matter(number), later(at_s))
        state, _ = owners.make(state, PAUSE_S, later(at_s))
        for message, to in owners.due(state, later(at_s)):
            mails, _ = outbox.answered(state.mails, message.id, to.address, "452 mailbox full", later(at_s))
            state = replace(state, mails=mails)
    assert sorted(w.address for p in state.mails.outbox for w in p.waits) == ["ada", "bad", "eve", "mal"]
    mails, _ = outbox.answered(state.mails, "o2", "eve", None, later(43_200))
    _, messages = owners.make(replace(state, mails=mails), PAUSE_S, later(43_200))
    assert [m.stands_for for m in messages] == [95], "what came up meanwhile shares the next mail"


def test_a_held_job_makes_the_mail_one_that_asks_for_something() -> None:
    state = took(("ada", matter(1)), ("ada", matter(2, held=True)))
    _, (message,) = owners.make(state, PAUSE_S, EPOCH)
    assert (message.level, message.topic) == (NoticeLevel.NEEDS_SOMEBODY, Topic.SEVERAL)
    assert message.subject == "2 notes about your jobs: your job 2 runs again, and 1 more"


def test_a_mailbox_that_fails_comes_after_those_that_were_not_tried() -> None:
    state, _ = owners.make(took(("ada", matter(1)), ("bob", matter(2))), PAUSE_S, EPOCH)
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
