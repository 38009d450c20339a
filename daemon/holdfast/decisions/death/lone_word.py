"""Lone witness: a single peer that reaches a silent node against all other evidence. Pure.

Its agent may be wrong or lie, and would protect a dead node for ever. For a while its report counts: it may be true, and the node cut off
from all others. After the time in which a silent machine is left alone anyway, a second sign of life is needed if there is no other: the
head node fails to reach it, Slurm has lost it and so runs no job there, and two other peers that reach another node fail too. Meanwhile the
other peers are asked in turn, and each that reached it within that time is such a second sign."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.decisions.death.verdict import (
    PEERS_FOR_DEATH,
    AgentSpoke,
    DeathEvidence,
    LivingPeer,
    SlurmHeard,
    StepsAdvance,
    TcpAnswered,
)


@dataclass(frozen=True, slots=True)
class OtherEvidence:
    """Other evidence about the node."""

    head_failed: bool
    """The head node itself has tried to reach it since it fell silent, and got no answer."""
    slurm_lost_it: bool
    """Slurm has lost contact with it, and shows it so."""
    reached_by: frozenset[str]
    """All that reached it within ``patience_s``, as they are named in the evidence."""
    silent_s: float
    patience_s: float
    """``death.reboot_grace_s``."""


def without_a_lone_word(evidence: Iterable[DeathEvidence], around: OtherEvidence) -> tuple[DeathEvidence, ...]:
    """The evidence, without the one peer that reaches the node where everything else speaks against it."""
    found = tuple(evidence)
    answered = [e for e in found if isinstance(e, TcpAnswered)]
    others = any(isinstance(e, SlurmHeard | StepsAdvance | AgentSpoke) for e in found)
    against = {e.peer for e in found if isinstance(e, LivingPeer)}
    if len(around.reached_by | {e.by for e in answered}) != 1 or others or len(against) < PEERS_FOR_DEATH:
        return found
    if not answered or not (around.head_failed and around.slurm_lost_it) or around.silent_s < around.patience_s:
        return found
    return tuple(e for e in found if e not in answered)
