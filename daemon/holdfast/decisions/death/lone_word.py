"""What one peer says against everybody else: that it reaches a silent node. Pure.

Its agent may be wrong or lie, and would keep a dead node as it is for ever. Nothing is done on that for a while: the word may be true, and
the node cut off from all others. After the time in which a silent machine is left alone anyway it takes a second sign of life, if nothing
else has any: not the head node, not Slurm, which then runs no job there, and not two other peers that reach another node. Meanwhile the
others are asked in turn, and each that reached it within that time is such a second one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.decisions.death.verdict import (
    PEERS_FOR_DEATH,
    AgentSpoke,
    Evidence,
    LivingPeer,
    SlurmHeard,
    StepsAdvance,
    TcpAnswered,
)


@dataclass(frozen=True, slots=True)
class Around:
    """What else is known of the node."""

    head_failed: bool
    """The head node itself has tried to reach it since it fell silent, and got no answer."""
    slurm_lost_it: bool
    """Slurm has heard nothing of it, and shows it so."""
    reached_by: frozenset[str]
    """All that reached it within ``patience_s``, as they are named in the evidence."""
    silent_s: float
    patience_s: float
    """``death.reboot_grace_s``."""


def without_a_lone_word(evidence: Iterable[Evidence], around: Around) -> tuple[Evidence, ...]:
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
