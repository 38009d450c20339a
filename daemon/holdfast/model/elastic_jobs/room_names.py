"""Names of the rendezvous of elastic jobs: the only module that writes and parses them. Pure; standard library only.

``job-ID-TIME``: the job id of the base array and its submit time. Slurm reuses job ids once its state was wiped, so an id alone could lead
a new job, perhaps of another user, into the rendezvous of an old one. Earlier releases named it ``job-ID``; such a name remains in use
until its job ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"job-(\d{1,10})(?:-(\d{1,12}))?", re.ASCII)


def job_label(base_array_id: int) -> str:
    """Name of an elastic job in texts for people and in the steps for its size. Ids are reused, so it is no name of a rendezvous."""
    return f"job-{base_array_id}"


@dataclass(frozen=True, slots=True)
class RoomName:
    """The name of one elastic job's rendezvous."""

    base_array_id: int
    submitted_s: int | None = None
    """Submit time of the base array as Unix time; None: the name of an earlier release, which has none."""

    @property
    def text(self) -> str:
        """The name at the quorum service."""
        label = job_label(self.base_array_id)
        return label if self.submitted_s is None else f"{label}-{self.submitted_s}"

    @staticmethod
    def parse(name: str) -> RoomName | None:
        """None: no elastic job's; a person opened it by hand."""
        match = _NAME.fullmatch(name)
        return RoomName(int(match[1]), int(match[2]) if match[2] else None) if match else None


@dataclass(frozen=True, slots=True)
class KnownRoom:
    """Rendezvous of an elastic job, as the controller remembers it: the submit time that Slurm shows changes with a requeue."""

    base_array_id: int
    uid: int
    submitted_s: int
    """Submit time of the base array as Unix time, as far as it is known."""
    exact: bool
    """False: no element was seen that was never requeued, so the job may have been submitted earlier."""
    old_name: bool = False
    """The rendezvous was opened by an earlier release, under the job id alone."""

    @property
    def name(self) -> RoomName:
        return RoomName(self.base_array_id, None if self.old_name else self.submitted_s)

    @property
    def room(self) -> str:
        """The name at the quorum service."""
        return self.name.text


@dataclass(frozen=True, slots=True)
class KnownRooms:
    """Persisted form of the rendezvous."""

    rooms: tuple[KnownRoom, ...] = ()
