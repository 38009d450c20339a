"""Identity of a replica group's member, and the proof that it knows the job's token. Pure.

torchft's Manager joins as ``NAME:UUID``: NAME comes from the job, UUID is new for every Manager. In a rendezvous with a token NAME is
``GROUP~START~PROOF~GROUP``: the group's index, the mark of this start of the group (its incarnation), and an HMAC over both with the
job's token; the index once more, because torchft takes a group's rank from the digits at the end. The protocol of stock Managers
carries nothing else that a job could choose."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

LONGEST = 256
_PROOF_DIGITS = 32
"""Length of a proof. 128 bits: too many to guess, short enough for a log line."""
_OBSERVE = "!observe"
_AGAIN = re.compile(r"(\d+\.\d+|[^.]*[^.\d][^.]*)\.\d+", re.ASCII)
"""A start inside a Slurm start: the outer start (``JOB.RESTARTS`` or any word), followed by a number."""


class Forged(ValueError):
    """The one-line error for a job that may not join this rendezvous."""


@dataclass(frozen=True, slots=True, order=True)
class GroupIdentity:
    """One incarnation of a replica group."""

    group: str
    start: str
    """Unique per start of the group; empty where the job uses torchft without Holdfast's names."""
    uuid: str

    def __str__(self) -> str:
        name = self.started if self.start else self.group
        return f"{name}:{self.uuid}" if name else self.uuid

    @property
    def started(self) -> str:
        """Name of the group and its start, without the Manager."""
        return f"{self.group}~{self.start}"

    @property
    def fence(self) -> str:
        """What is refused once this member is gone: the whole start where it is known, with every restart inside it
        (``GROUP~JOB.RESTARTS`` covers ``GROUP~JOB.RESTARTS.n``), so that nothing of it comes back; else only this Manager."""
        match = _AGAIN.fullmatch(self.start)
        return f"{self.group}~{match[1] if match else self.start}" if self.start else str(self)

    @property
    def alone(self) -> str:
        """Fence of this start alone, not of other restarts in the same outer start: the first of those counts as number 0."""
        name = self.started
        return f"{name}.0" if self.fence == name else name

    def answers_to(self, selector: str) -> bool:
        """Whether a selector matches this member: by its group, its start, the outer start, or its full name."""
        return selector in (self.group, self.fence, self.alone, str(self)) and bool(selector)


def room_token(key: bytes, room: str, opening: str = "") -> str:
    """Token of a rendezvous, derived from the service's key: no secret is stored with the rendezvous. ``opening``: a value that is
    new each time a rendezvous of this name is opened, so that an earlier token is not valid for a later one."""
    return hmac.new(key, f"quorum room {room} {opening}".encode(), sha256).hexdigest()  # word: part of every secret


def proof(token: str, group: str, start: str) -> str:
    """Proof that a job appends to its name: shows that it knows the token without revealing it."""
    return hmac.new(token.encode(), f"{group}~{start}".encode(), sha256).hexdigest()[:_PROOF_DIGITS]


def replica_name(token: str, group: str, start: str) -> str:
    """The ``replica_id`` that a job hands to torchft's Manager."""
    return f"{group}~{start}~{proof(token, group, start)}~{group}"


def identify(wire_id: str, token: str | None) -> GroupIdentity:
    """Identity in a ``replica_id``. ``token`` None: members are known by their addresses, and their names are trusted. Raises Forged."""
    if not wire_id or len(wire_id) > LONGEST or not wire_id.isprintable():
        raise Forged(f"a replica id has 1 to {LONGEST} printable characters")
    name, colon, uuid = wire_id.rpartition(":")
    if token is None:
        return GroupIdentity(name, "", uuid)
    parts = name.split("~")
    if not colon or len(parts) != 4 or not all(parts) or parts[0] != parts[3]:
        raise Forged(
            "this room needs a replica_id of the form GROUP~INCARNATION~PROOF~GROUP: start the job with holdfast run"
        )
    group, start, shown, _group = parts
    if not hmac.compare_digest(shown.encode(), proof(token, group, start).encode()):
        raise Forged(f"the token of group {group} is not this job's: HOLDFAST_QUORUM_TOKEN is wrong or of another job")
    return GroupIdentity(group, start, uuid)


def split_observe(wire_id: str) -> tuple[str, bool]:
    """Suffix for observers: a request as ``ID!observe`` returns the last quorum at once, and the caller does not join."""
    return (wire_id.removesuffix(_OBSERVE), True) if wire_id.endswith(_OBSERVE) else (wire_id, False)


class Farewell(StrEnum):
    """What a heartbeat as ``ID!WORD`` means; torchft's protocol has no message for it."""

    LEAVE = "leave"
    """Left gracefully, after a finished step."""
    DONE = "done"
    """Left for good: all steps of the training are done."""


def split_farewell(wire_id: str) -> tuple[str, Farewell | None]:
    """The member that a heartbeat is for, and its suffix."""
    for word in Farewell:
        if wire_id.endswith(f"!{word}"):
            return wire_id.removesuffix(f"!{word}"), word
    return wire_id, None
