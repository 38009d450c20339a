"""An elastic job's quorum room as the controller sees it. Standard library only; the service's own nouns are ``quorum/nouns.py``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.elastic import member, start_name
from holdfast.model.room_names import RoomName

_MEMBER = re.compile(r"(\d{1,7})~(\d{1,10})\.(\d{1,9})(?:\.\d{1,9})?(?::.*)?")


@dataclass(frozen=True, slots=True)
class RoomRules:
    """How a room decides; what is not named here stays at the service's own default."""

    min_groups: int
    max_groups: int
    heartbeat_timeout_s: float = 5.0
    join_timeout_s: float = 60.0
    groups: int = 0
    """Groups 0 … groups-1 may come in, by starts that are named as Slurm counts; 0: any name will do."""


@dataclass(frozen=True, slots=True)
class OpenRoom:
    """What a job needs to come in."""

    url: str
    token: str = field(repr=False)
    """Its secret: never logged, never stored."""


@dataclass(frozen=True, slots=True)
class RoomView:
    """One room as the service showed it."""

    name: str
    known: tuple[str, ...]
    """Full names of all who may still hold up a quorum: heard of late, or of the last quorum and not known to be gone."""
    members: tuple[str, ...] = ()
    """Full names, of the last quorum."""
    gone: frozenset[str] = frozenset()
    """Fences: starts (``GROUP~START``) that never come back; of a service of an earlier release also full names."""
    unwritten: str = ""
    """Why the service cannot write the room down now; empty: it can."""

    @property
    def name_of_job(self) -> RoomName | None:
        """Its name, read; None: no elastic job's, a person opened it by hand."""
        return RoomName.parse(self.name)


@dataclass(frozen=True, slots=True)
class RoomRecord:
    """Something that happened in a room, as the service recorded it."""

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
        """How the service is told of it; covers what was started again inside this run."""
        return member(self.group, start_name(self.job_id, self.restarts))


def run_of(member: str) -> GroupRun | None:
    """The run that a member's name (``GROUP~JOB.RESTARTS[.n][:uuid]``) tells of; None: a name that Holdfast did not give."""
    match = _MEMBER.fullmatch(member)
    return GroupRun(*(int(part) for part in match.groups())) if match else None
