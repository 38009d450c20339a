"""List of all ways in which Holdfast can drain a node, end a process or stop a job, and the restraints on each.

One list: ``docs/safety.md`` shows it (``docs/generate.py``), ``tests/decisions/nodes/test_restraints.py`` walks it. Standard library
only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Restraint(StrEnum):
    """Restraint set by an operator or a brake: no action is to be taken."""

    OBSERVE = "observe"
    """`mode = "observe"`, the default."""
    PROPOSE = "propose"
    """`mode = "propose"`, until an operator accepts the step (`holdfast accept`)."""
    PAUSE = "pause"
    """`holdfast pause`."""
    BRAKE = "brake"
    """A brake has tripped and was not released."""
    SUPPRESSED = "suppressed"
    """`holdfast suppress` matches the finding: it opens no incident."""
    ACKNOWLEDGED = "acknowledged"
    """`holdfast incident ack`: an operator has taken the incident over."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way, and how it is held back."""

    name: str
    what: str
    """Effect if no restraint applies, for people."""
    asked: str
    """Place where the restraints are checked, for people."""
    held_by: frozenset[Restraint] = frozenset(Restraint)
    """Empty: it does nothing that a restraint could hold."""


_DECIDED = frozenset(Restraint) - {Restraint.SUPPRESSED}
"""A step decided before a suppression continues."""

WAYS = (
    Way("decision", "all steps of the [list below](#the-right-machine)", "by the guard, in the turn that decides"),
    Way("planned step", "the same, decided before", "by the actor, right before the step", _DECIDED),
    Way(
        "waiting order",
        "an agent's `end_stuck_job`, `end_leftover_step`, `reset_gpu`, `ask_group_to_leave`, checks on demand",
        "by the store, when the agent asks for its orders",
        _DECIDED - {Restraint.BRAKE, Restraint.PROPOSE},
    ),
    Way(
        "eviction",
        "a group of an elastic job is shut out of its rendezvous and exits",
        "by the controller, before each call of the quorum service",
        _DECIDED,
    ),
    Way(
        "`prolog.sh`, `epilog.sh`",
        'exit status 1, upon which Slurm drains the node and requeues the job; only with `[mode] prolog = "act"`',
        "by the controller, for each answer to a heartbeat; the answer is valid for 60 s on the node",
    ),
    Way(
        "`healthcheck.sh --drain`",
        "drains a node that has no Holdfast agent; for clusters without Holdfast's controller, so there is no brake",
        "on a node with an agent it drains nothing",
    ),
    Way(
        "custom checks, all checks",
        "a finding; what else the site's own command does is the site's",
        "–",
        frozenset(),
    ),
    Way(
        "`holdfast-agent check`",
        "an exit status, of which Slurm's HealthCheckProgram takes no notice",
        "–",
        frozenset(),
    ),
    Way(
        "`holdfast node drain`, `holdfast node release`",
        "an operator's order, as with scontrol: drains the node, or puts it back",
        "by the API: the operator's role; by the actor: no other drain is touched",
        frozenset(),
    ),
    Way(
        "RebootProgram, ResumeProgram",
        "the site's; Holdfast brings none, and `scontrol reboot` is a step",
        "–",
        frozenset(),
    ),
    Way("lifecycle scripts, systemd units", "start and restart Holdfast's own units", "–", frozenset()),
    Way("SPANK plug-in, Lua module", "change a job at its submission: requeue, comment, exclusions", "–", frozenset()),
)
