"""Verdict on a silent node from evidence, and the actions that each verdict allows. Pure: two functions and a table.

Silence is the suspicion, not evidence. Evidence *for* death is power that is off, or a living peer of the node's own failure domain that
cannot reach it now, had reached it before, and reaches another node at that moment. Any sign of life *against* it is a veto."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class PowerOff:
    """The provider or the BMC shows the node's machine off or terminated."""

    at: datetime
    state: str


@dataclass(frozen=True, slots=True)
class LivingPeer:
    """A peer of the node's failure domain cannot reach it, though it had before, and reaches another node at that moment."""

    at: datetime
    peer: str


@dataclass(frozen=True, slots=True)
class TcpAnswered:
    """A connection to the node was accepted or refused: its kernel lives."""

    at: datetime
    by: str
    """``the head node``, or a peer's name."""


@dataclass(frozen=True, slots=True)
class SlurmHeard:
    """slurmctld has been in contact with its slurmd since the agent fell silent."""

    at: datetime


@dataclass(frozen=True, slots=True)
class StepsAdvance:
    """Its job's steps still advance on the job's other nodes: a synchronous job cannot advance without it."""

    at: datetime
    job_id: int


@dataclass(frozen=True, slots=True)
class AgentSpoke:
    """Its agent has reported again."""

    at: datetime


@dataclass(frozen=True, slots=True)
class SeenRunning:
    """The provider shows the machine running and its checks passing, read after the silence began. Too slow and too weak to prove life, but
    enough to forbid ending the machine."""

    at: datetime


For = PowerOff | LivingPeer
Veto = TcpAnswered | SlurmHeard | StepsAdvance | AgentSpoke
DeathEvidence = For | Veto | SeenRunning


class DeathVerdict(StrEnum):
    SILENT = "silent"
    """The agent does not report, and nothing else is known."""
    SUSPECT = "suspect"
    """There is evidence for its death, and a sign of life against it."""
    TWO_WITNESSES = "two_witnesses"
    """The controller's silence and one living peer of its failure domain."""
    DEAD = "dead"
    """Its power is off, or two living peers of its failure domain agree."""


PEERS_FOR_DEATH = 2
"""Living peers that must agree where nothing shows the power off."""


def judge(evidence: Iterable[DeathEvidence]) -> DeathVerdict:
    """The verdict about a silent node. A sign of life outweighs everything but power that was seen off after it."""
    found = tuple(evidence)
    off_at = max((e.at for e in found if isinstance(e, PowerOff)), default=None)
    peers = {e.peer for e in found if isinstance(e, LivingPeer)}
    alive = [e for e in found if isinstance(e, TcpAnswered | SlurmHeard | StepsAdvance | AgentSpoke)]
    if off_at is None and not peers:
        return DeathVerdict.SILENT
    if any(off_at is None or e.at > off_at for e in alive):
        return DeathVerdict.SUSPECT
    if off_at is not None or len(peers) >= PEERS_FOR_DEATH:
        return DeathVerdict.DEAD
    return DeathVerdict.TWO_WITNESSES


class Consequence(StrEnum):
    """Actions that may be taken on a silent node."""

    AVOID = "avoid"
    """Never chosen: no spare, no place for a recovered job; a mark on the page."""
    DRAIN = "drain"
    """It takes no new work; what runs there runs on."""
    SET_DOWN = "set_down"
    """DOWN under a job that consents and is fenced: Slurm requeues it."""
    SET_DOWN_LATE = "set_down_late"
    """DOWN under a fenced job without consent, as Slurm would at SlurmdTimeout; ours only where SlurmdTimeout is 0, after 300 s."""
    REBOOT = "reboot"
    END_MACHINE = "end_machine"
    """Launch its successor, terminate, stop and start, replace."""


class When(StrEnum):
    """Under which condition a consequence is allowed."""

    AT_ONCE = "at once"
    BELOW_BRAKE = "below the brake on deaths, or with its power off"
    LATER = "with its power off; else alone, `death.reboot_grace_s` after its last sign of life"
    LATER_UNLESS_RUNNING = "as above, and never while the provider shows it running with its checks passing"
    NEVER = "never"


_AVOID = {Consequence.AVOID: When.AT_ONCE}
_WITNESSED = {
    **_AVOID,
    Consequence.DRAIN: When.BELOW_BRAKE,
    Consequence.REBOOT: When.LATER,
    Consequence.END_MACHINE: When.LATER_UNLESS_RUNNING,
}
ALLOWS: Mapping[DeathVerdict, Mapping[Consequence, When]] = {
    DeathVerdict.SILENT: _AVOID,
    DeathVerdict.SUSPECT: _AVOID,
    DeathVerdict.TWO_WITNESSES: _WITNESSED,
    DeathVerdict.DEAD: {
        **_WITNESSED,
        Consequence.SET_DOWN: When.BELOW_BRAKE,
        Consequence.SET_DOWN_LATE: When.BELOW_BRAKE,
    },
}
"""Consequences that each verdict allows; one that is absent is never allowed. Shown in ``docs/safety.md``."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Inputs of the conditions of :class:`When`."""

    power_off: bool
    braked: bool
    """It is one of several deaths at once."""
    lifeless_s: float
    """Since its last sign of life of any kind."""
    running: bool
    """The provider shows it running, its checks passing (:class:`SeenRunning`)."""
    alone: bool
    """No other node stopped answering within ten minutes of it."""


def allowed(verdict: DeathVerdict, what: Consequence, now: Circumstances, grace_s: float) -> bool:
    """Whether the verdict allows it in these circumstances. ``grace_s``: ``death.reboot_grace_s``."""
    late = now.power_off or (now.alone and not now.braked and now.lifeless_s >= grace_s)
    match ALLOWS[verdict].get(what, When.NEVER):
        case When.AT_ONCE:
            return True
        case When.BELOW_BRAKE:
            return now.power_off or not now.braked
        case When.LATER:
            return late
        case When.LATER_UNLESS_RUNNING:
            return late and not now.running
        case When.NEVER:
            return False
