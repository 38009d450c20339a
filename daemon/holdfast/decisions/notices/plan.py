"""Grouping of notices into messages: what is queued, what is known already, what is sent now. Pure.

The first notice of a topic is sent at once; those that follow within the next minutes share one message, and the pauses grow. So one
fault of one node is sent without delay, and a fault of hundreds of nodes in a few messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.model.notice import (
    Matter,
    Message,
    NoticeLevel,
    NoticePolicy,
    NoticeState,
    OpenMatter,
    Sent,
    Topic,
)
from holdfast.model.pauses import doubling_s

LONGEST_PAUSE_S = 600.0
"""Longest pause between two messages of one topic."""
FORGET_S = 86_400.0
"""A matter whose end is not known is forgotten after this long, so that it is sent again when it comes up again."""
MOST_WAITING = 5000
"""Most matters that wait for a message; further ones are only counted."""
MOST_OPEN = 5000
"""Most open matters that are remembered; the oldest are dropped first."""
BODIES_KEPT = 20
"""This many of the waiting matters of a topic keep their bodies: a message shows no more."""
_HOUR = timedelta(hours=1)  # rule undeclared-window: of the messages' own state


@dataclass(frozen=True, slots=True)
class Queued:
    """The matter waits for the next message."""


@dataclass(frozen=True, slots=True)
class AlreadyTold:
    """People know of the matter, and it is not time to repeat it."""

    message_id: str
    """Empty: it waits for a message already."""


TakenAs = Queued | AlreadyTold
Build = Callable[[str, datetime, NoticeLevel, Topic, Sequence[Matter], bool, int], Message]
"""Writes a message: id, time, level, topic, matters, whether they are over, how many further ones it is about."""


def same(one: Matter, other: Matter) -> bool:
    """Whether the two are one matter."""
    return (one.topic, one.target, one.level) == (other.topic, other.target, other.level)


def _follows(later: Matter, earlier: Matter) -> bool:
    """Whether it takes the place of the earlier one: the same matter, or a repetition about the same condition. Its end is one."""
    return same(later, earlier) or bool(later.condition and later.condition == earlier.condition)


def take(state: NoticeState, matter: Matter, policy: NoticePolicy, now: datetime) -> tuple[NoticeState, TakenAs]:
    """Queue one matter, unless it is known."""
    told = next((each for each in state.open if same(each.matter, matter)), None)
    if told is not None and not _to_repeat(told, policy, now):
        return state, AlreadyTold(told.message_id)
    if any(same(each, matter) for each in state.waiting):
        return state, AlreadyTold("")
    if len(state.waiting) >= MOST_WAITING:
        return replace(state, left_out=state.left_out + 1), Queued()
    alike = sum(each.topic is matter.topic for each in state.waiting)
    kept = matter if alike < BODIES_KEPT else replace(matter, body="")
    return replace(state, waiting=(*state.waiting, kept)), Queued()


def _to_repeat(told: OpenMatter, policy: NoticePolicy, now: datetime) -> bool:
    return policy.repeat_s > 0 and now - told.told_at >= timedelta(seconds=policy.repeat_s)


def end(state: NoticeState, is_over: Callable[[Matter], bool | None], now: datetime) -> NoticeState:
    """Take out what is over: people who were notified of it are notified of its end. ``is_over``: None where that cannot be known."""
    verdicts = [(each, is_over(each.matter)) for each in state.open]
    over = tuple(each.matter for each, ended in verdicts if ended)
    forgotten = now - timedelta(seconds=FORGET_S)
    left = tuple(each for each, ended in verdicts if ended is False or (ended is None and each.told_at > forgotten))
    waiting = tuple(each for each in state.waiting if not is_over(each))
    if len(left) == len(state.open) and len(waiting) == len(state.waiting):
        return state
    return replace(state, open=left, waiting=waiting, ended=(*state.ended, *over))


def remind(
    state: NoticeState, is_over: Callable[[Matter], bool | None], policy: NoticePolicy, now: datetime
) -> NoticeState:
    """Queue again what is still open after ``repeat_s``."""
    late = [each for each in state.open if _to_repeat(each, policy, now) and is_over(each.matter) is False]
    for each in late:
        still = each.matter if any(same(each.matter, w) for w in state.waiting) else None
        if still is None:
            again = replace(each.matter, body=f"It is still open; last sent at {each.told_at:%Y-%m-%d %H:%M} UTC.")
            state = replace(state, waiting=(*state.waiting, again))
    return state


@dataclass(frozen=True, slots=True)
class _Group:
    level: NoticeLevel
    topic: Topic
    matters: tuple[Matter, ...]
    over: bool


def make(
    state: NoticeState, policy: NoticePolicy, now: datetime, build: Build
) -> tuple[NoticeState, tuple[Message, ...]]:
    """The messages that are due now, and the state without what they say."""
    state = replace(state, sent=tuple(each for each in state.sent if now - each.at < _HOUR))
    messages: list[Message] = []
    for group in _groups(state, policy, now):
        number, more = state.made + 1, state.left_out if not group.over else 0
        message = build(f"m{number}", now, group.level, group.topic, group.matters, group.over, more)
        messages.append(message)
        state = _sent(state, group, message, now)
    return state, tuple(messages)


def _groups(state: NoticeState, policy: NoticePolicy, now: datetime) -> list[_Group]:
    found: list[_Group] = []
    for over, matters in ((False, state.waiting), (True, state.ended)):
        for level in NoticeLevel:
            mine = [each for each in matters if each.level is level]
            found += _of_level(state, policy, now, level, mine, over)
    return found


def _of_level(
    state: NoticeState, policy: NoticePolicy, now: datetime, level: NoticeLevel, mine: list[Matter], over: bool
) -> list[_Group]:
    """Groups of one level, one for each topic; a single one where too many messages were sent within the hour."""
    room = policy.most_per_hour - sum(each.level is level for each in state.sent)
    topics = list(dict.fromkeys(each.topic for each in mine))
    groups = [
        _Group(level, topic, tuple(each for each in mine if each.topic is topic), over)
        for topic in topics
        if _is_due(state, policy, now, level, topic, over)
    ]
    if len(groups) <= room:
        return groups
    if mine and _is_due(state, policy, now, level, Topic.SEVERAL, over):
        return [_Group(level, Topic.SEVERAL, tuple(mine), over)]
    return []


def _is_due(
    state: NoticeState, policy: NoticePolicy, now: datetime, level: NoticeLevel, topic: Topic, over: bool
) -> bool:
    alike = [each.at for each in state.sent if (each.level, each.topic, each.over) == (level, topic, over)]
    if not alike or topic is Topic.DIGEST:
        return True
    pause_s = doubling_s(policy.group_s, len(alike), LONGEST_PAUSE_S)
    return now - max(alike) >= timedelta(seconds=pause_s)


def _sent(state: NoticeState, group: _Group, message: Message, now: datetime) -> NoticeState:
    sent = (*state.sent, Sent(now, group.topic, group.level, group.over))
    state = replace(state, made=state.made + 1, sent=sent)
    if group.over:
        return replace(state, ended=_without(state.ended, group.matters))
    told = () if group.level is not NoticeLevel.NEEDS_SOMEBODY else group.matters
    known = tuple(each for each in state.open if not any(_follows(one, each.matter) for one in told))
    opened = (*known, *(OpenMatter(replace(one, body=""), now, message.id) for one in told))
    return replace(state, waiting=_without(state.waiting, group.matters), open=opened[-MOST_OPEN:], left_out=0)


def _without(matters: Iterable[Matter], gone: Sequence[Matter]) -> tuple[Matter, ...]:
    ids = {id(each) for each in gone}
    return tuple(each for each in matters if id(each) not in ids)


def next_at(state: NoticeState, policy: NoticePolicy, now: datetime) -> datetime | None:
    """When to look again for messages to be made; None: nothing waits."""
    if not state.waiting and not state.ended:
        return None
    return now + timedelta(seconds=min(policy.group_s, 5.0))
