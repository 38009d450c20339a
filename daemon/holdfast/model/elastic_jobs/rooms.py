"""An elastic job's rendezvous as the controller sees it. Standard library only; the service's own nouns are ``quorum/nouns.py``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.elastic_jobs.elastic import member, start_name
from holdfast.model.elastic_jobs.room_names import RoomName

_MEMBER = re.compile(r"(\d{1,7})~(\d{1,10})\.(\d{1,9})(?:\.\d{1,9})?(?::.*)?")


@dataclass(frozen=True, slots=True)
class RoomRules:
    """Rules of a rendezvous; those not listed here stay at the service's default."""

    min_groups: int
    max_groups: int
    heartbeat_timeout_s: float = 5.0
    join_timeout_s: float = 60.0
    groups: int = 0
    """Groups 0 … groups-1 may come in, by starts that are named as Slurm counts; 0: any name will do."""


@dataclass(frozen=True, slots=True)
class OpenRoom:
    """Credentials with which a job joins."""

    url: str
    token: str = field(repr=False)
    """Its secret: never logged, never stored."""


@dataclass(frozen=True, slots=True)
class RoomView:
    """One rendezvous as the service showed it."""

    name: str
    known: tuple[str, ...]
    """Full names of all groups that may still hold up a quorum: that reported recently, or were in the last quorum and are not known to be
    gone."""
    members: tuple[str, ...] = ()
    """Full names, of the last quorum."""
    gone: frozenset[str] = frozenset()
    """Fences: starts (``GROUP~START``) that never come back; of a service of an earlier release also full names."""
    unwritten: str = ""
    """Reason why the service cannot store the rendezvous now; empty: it can."""

    @property
    def name_of_job(self) -> RoomName | None:
        """Its parsed name; None: no elastic job's, a person opened it by hand."""
        return RoomName.parse(self.name)


@dataclass(frozen=True, slots=True)
class RoomRecord:
    """Event in a rendezvous, as the service recorded it."""

    id: int
    room: str
    at: datetime
    kind: str
    """joined, lost, back, evicted, left, replaced, quorum, done, closed, omitted."""
    who: str = ""
    reason: str = ""
    quorum_id: int = 0
    step: int = 0
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRun:
    """One run, in Slurm, of a group: what ends together."""

    group: int
    job_id: int
    restarts: int

    @property
    def selector(self) -> str:
        """Name by which the service is notified of it; covers restarts inside this run."""
        return member(self.group, start_name(self.job_id, self.restarts))


def run_of(member: str) -> GroupRun | None:
    """The run in a member's name (``GROUP~JOB.RESTARTS[.n][:uuid]``); None: a name that Holdfast did not give."""
    match = _MEMBER.fullmatch(member)
    return GroupRun(*(int(part) for part in match.groups())) if match else None
