"""Mails to the owners of jobs: what waits for each user, and what was sent. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.notice import Matter, NoticeState

OWNERS_NOTE = "owner_notices"
"""Note of the store that holds :class:`OwnerMails`."""


@dataclass(frozen=True, slots=True)
class OwnerMatter:
    """What one user is to read about one of their jobs."""

    user: str
    matter: Matter


@dataclass(frozen=True, slots=True)
class OwnerMails:
    """State of the mails to owners, kept in the store: a restart repeats none and loses none."""

    waiting: tuple[OwnerMatter, ...] = ()
    mailed_at: Mapping[str, datetime] = field(default_factory=dict)
    """User → when their last mail was made."""
    taken: Mapping[str, datetime] = field(default_factory=dict)
    """Target of a matter → when it was taken: none is taken twice."""
    mails: NoticeState = field(default_factory=NoticeState)
    """Outbox, number of mails and their totals."""
