"""Mails to the owners of jobs: what is queued, and which users get a mail now. Pure.

The first matter of a user is sent at once; those that follow wait for the pause and share a mail. No user waits for another's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.decisions.notices import outbox
from holdfast.model.notice import Matter, Message, NoticeLevel, PendingAddress, Topic
from holdfast.model.owner_mail import OwnerMails, OwnerMatter

MOST_OF_A_USER, MOST_WAITING = 100, 5000
"""Most matters that wait, of one user and in all; further ones are given up: ``holdfast why`` says the same, and AdminComment where the
job runs or waits."""
REMEMBERED_S = 7 * 86_400.0
"""A matter is not taken again within this."""
_REMEMBERED_MOST = 20_000
_LISTED = 10
_SUBJECT_MOST, _BODY_MOST = 150, 8000
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Waits:
    """It is in the user's next mail."""


@dataclass(frozen=True, slots=True)
class TakenBefore:
    """It was taken within a week."""


@dataclass(frozen=True, slots=True)
class TooManyWait:
    """It is given up, and counted: too many others wait."""


Taken = Waits | TakenBefore | TooManyWait


def address_of(template: str, user: str) -> str | None:
    """The user's address; None: the name would not be a safe part of one."""
    return template.replace("{user}", user) if _USER.fullmatch(user) else None


def take(state: OwnerMails, user: str, matter: Matter, now: datetime) -> tuple[OwnerMails, Taken]:
    """Queue one matter, unless it was taken before or too many wait."""
    forgotten = now - timedelta(seconds=REMEMBERED_S)
    taken = {target: at for target, at in state.taken.items() if at > forgotten}
    if matter.target in taken:
        return state, TakenBefore()
    taken = dict([*taken.items(), (matter.target, now)][-_REMEMBERED_MOST:])
    state = replace(state, taken=taken)
    if len(state.waiting) >= MOST_WAITING or sum(each.user == user for each in state.waiting) >= MOST_OF_A_USER:
        return replace(state, mails=outbox.counted(state.mails, matter.level.value, "given_up")), TooManyWait()
    return replace(state, waiting=(*state.waiting, OwnerMatter(user, matter))), Waits()


def make(state: OwnerMails, pause_s: float, now: datetime, cluster: str = "") -> tuple[OwnerMails, tuple[Message, ...]]:
    """The mails that are due now, in the outbox under their user's name, and the messages that they are.

    No more than the outbox has room for, and none for a user whose last one is still in it: the others wait."""
    recent = now - timedelta(seconds=pause_s)
    mailed = {user: at for user, at in state.mailed_at.items() if at > recent}
    pending = {w.address for each in state.mails.outbox for w in each.waits}
    due = [u for u in dict.fromkeys(each.user for each in state.waiting) if u not in mailed and u not in pending]
    chosen = due[: max(0, outbox.MOST_PENDING - len(state.mails.outbox))]
    messages: list[Message] = []
    mails = state.mails
    for user in chosen:
        mine = [each.matter for each in state.waiting if each.user == user]
        mails = replace(mails, made=mails.made + 1)
        message = _message(f"o{mails.made}", mine, now, cluster)
        mails = outbox.counted(outbox.post(mails, message, {user: now}), message.level.value, "made")
        messages.append(message)
        mailed[user] = now
    waiting = tuple(each for each in state.waiting if each.user not in chosen)
    return replace(state, waiting=waiting, mailed_at=mailed, mails=mails), tuple(messages)


def due(state: OwnerMails, now: datetime) -> tuple[tuple[Message, PendingAddress], ...]:
    """Deliveries to be tried now; those that have failed less often come first: a mailbox that hangs holds up no other for long."""
    return tuple(sorted(outbox.due(state.mails, now), key=lambda each: each[1].attempts))


def _message(number: str, matters: Sequence[Matter], now: datetime, cluster: str) -> Message:
    prefix = f"{cluster}: " if cluster else ""
    first = next((each for each in matters if each.level is NoticeLevel.NEEDS_SOMEBODY), matters[0])
    subject = first.subject
    if len(matters) > 1:
        subject = f"{len(matters)} notes about your jobs: {first.subject}, and {len(matters) - 1} more"
    texts = [each.body or each.subject for each in matters[:_LISTED]]
    texts += [f"- {each.subject}" for each in matters[_LISTED:]]
    body = "\n\n".join(texts)[:_BODY_MOST]
    topic = first.topic if len({each.topic for each in matters}) == 1 else Topic.SEVERAL
    carried = tuple(replace(each, body="") for each in matters)
    return Message(
        number, now, first.level, topic, f"{prefix}{subject}"[:_SUBJECT_MOST], body, len(matters), matters=carried
    )
