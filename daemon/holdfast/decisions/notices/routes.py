"""Routes of messages: which address takes which message, and when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo

from holdfast.model.notice import Message, NoticeLevel, Topic

_NEXT_DAY = timedelta(days=1)  # rule undeclared-window: of the calendar


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Time of day at which only what needs an operator is sent."""

    start: time
    end: time
    zone: tzinfo

    def until(self, now: datetime) -> datetime | None:
        """Their end; None: they do not hold now."""
        local = now.astimezone(self.zone)
        at = local.timetz().replace(tzinfo=None)
        inside = self.start <= at < self.end if self.start <= self.end else at >= self.start or at < self.end
        if not inside:
            return None
        end = local.replace(hour=self.end.hour, minute=self.end.minute, second=0, microsecond=0)
        return (end if end > local else end + _NEXT_DAY).astimezone(now.tzinfo)


@dataclass(frozen=True, slots=True)
class RouteRule:
    """What a route takes. An empty set: everything."""

    levels: frozenset[NoticeLevel] = frozenset({NoticeLevel.NEEDS_SOMEBODY})
    topics: frozenset[Topic] = frozenset()
    nodes: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    quiet: QuietHours | None = None


def takes(rule: RouteRule, message: Message, partitions: Mapping[str, frozenset[str] | None]) -> bool:
    """Whether the route takes the message. ``partitions``: of its nodes; None: not known, which keeps no message back."""
    if rule.levels and message.level not in rule.levels:
        return False
    topics = {message.topic, *(matter.topic for matter in message.matters)}
    if rule.topics and not topics & rule.topics:
        return False
    if not (rule.nodes or rule.partitions) or not message.nodes:
        return True
    return any(_takes_node(rule, name, partitions.get(name)) for name in message.nodes)


def _takes_node(rule: RouteRule, name: str, partitions: frozenset[str] | None) -> bool:
    if name in rule.nodes:
        return True
    return bool(rule.partitions) and (partitions is None or bool(partitions & rule.partitions))


def ready_at(rule: RouteRule, message: Message, now: datetime) -> datetime:
    """When the route may deliver it."""
    urgent = message.level is NoticeLevel.NEEDS_SOMEBODY and not message.over
    if urgent or rule.quiet is None:
        return now
    return rule.quiet.until(now) or now
