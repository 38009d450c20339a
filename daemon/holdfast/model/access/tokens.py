"""Bearer tokens of the API: lifetime, and notes for people. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.model.policies.lookback import (
    TOKEN_ENDS_SOON_S,
    TOKEN_LIFE_S,
    TOKEN_OLD_S,
    TOKEN_UNUSED_S,
    TOKEN_USE_EVERY_S,
)

AGENT = "agent"
"""The role of a node's token; every other role is a person's, or a program's of theirs."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    hash: str
    """SHA-256 of the token, lower-case hex."""
    role: str
    subject: str
    """Principal that it is bound to: an agent's node, a user's uid, an operator's name."""
    created_at: datetime
    expires_at: datetime | None
    """None: never."""
    revoked: bool
    last_used_at: datetime | None = None
    """At most an hour behind. None: not since its use is recorded."""
    recorded_since: datetime | None = None
    """Since when its use is recorded. None: since it was made; a time: it was made by a release that recorded none."""

    @property
    def node(self) -> str | None:
        """Whose agent's it is; None: a person's, or a program's of theirs."""
        return self.subject if self.role == AGENT else None

    def valid(self, now: datetime) -> bool:
        return not self.revoked and (self.expires_at is None or now < self.expires_at)

    def use_is_due(self, now: datetime, every_s: float = TOKEN_USE_EVERY_S) -> bool:
        """Whether a use at this time is to be recorded: not each one is, that would be a write for every request."""
        return self.last_used_at is None or now - self.last_used_at >= timedelta(seconds=every_s)


class Mark(StrEnum):
    """Notes for people about a valid token."""

    OLD = "old"
    """A node's, made long ago."""
    UNUSED = "unused"
    ENDS_SOON = "ends soon"
    NEVER_ENDS = "never ends"
    """A person's without an end. A node's ends when the node has a newer one."""


def marks(row: TokenRow, now: datetime) -> tuple[Mark, ...]:
    """Nothing of a token that is not valid."""
    if not row.valid(now):
        return ()
    agent = row.role == AGENT
    tests = (
        (Mark.OLD, agent and now - row.created_at > timedelta(seconds=TOKEN_OLD_S)),
        (Mark.UNUSED, now - _last_seen(row) > timedelta(seconds=TOKEN_UNUSED_S)),
        (
            Mark.ENDS_SOON,
            row.expires_at is not None and row.expires_at - now < timedelta(seconds=TOKEN_ENDS_SOON_S),
        ),
        (Mark.NEVER_ENDS, row.expires_at is None and not agent),
    )
    return tuple(mark for mark, holds in tests if holds)


def _last_seen(row: TokenRow) -> datetime:
    return row.last_used_at or row.recorded_since or row.created_at


def end_of(role: str, now: datetime, days: float | None, *, never: bool) -> datetime | None:
    """End of a token that is made now; None: never. By default a person's token ends, and a node's does not."""
    if days is not None:
        return now + timedelta(days=days)
    return None if never or role == AGENT else now + timedelta(seconds=TOKEN_LIFE_S)
