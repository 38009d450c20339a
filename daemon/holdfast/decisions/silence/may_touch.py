"""Permission to reboot or terminate the machine of a silent node. Pure. Asked by the ladder, and once more by the guard of each step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.decisions.common import node_agents
from holdfast.decisions.death import evidence
from holdfast.decisions.death.verdict import (
    Circumstances,
    Consequence,
    DeathVerdict,
    PowerOff,
    SeenRunning,
    allowed,
    judge,
)
from holdfast.decisions.silence import common_cause
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.slurm.cluster import ClusterView


class TouchReason(Enum):
    """Reasons why a silent node's machine may not be touched."""

    ALIVE = "alive"
    """A sign of life."""
    ONE_CAUSE = "one_cause"
    """The brake on deaths: another node fell silent with it."""
    GRACE = "grace"
    """Its last sign of life is not long enough ago."""
    RUNNING = "running"
    """The provider shows it running, its checks passing: whether it is ended is for a person to say."""
    VERDICT = "verdict"
    """The verdict never allows it."""


@dataclass(frozen=True, slots=True)
class TouchRefusal:
    """Reason why a step is not allowed."""

    why: TouchReason
    text: str
    """For people."""


_AT_THE_MACHINE = (Consequence.REBOOT, Consequence.END_MACHINE)
"""For these power that is off must have lasted."""


def about_silence(world: World, incident: Incident) -> bool:
    """Whether the incident's machine is accused by silence alone: what is done to it goes by the verdict's table."""
    silent = incident.dead or incident.kind is IncidentKind.SILENCE
    return silent and node_agents.agent_of(world, incident.node, incident.serving_id or None) is None


def why_not(
    world: World, view: ClusterView, incident: Incident, what: Consequence, held: common_cause.SilentGroup | None
) -> TouchRefusal | None:
    """Reason why this may not be done to the silent node now; None: it may. ``held``: the group of :func:`common_cause.holds` by
    :func:`common_cause.keeping_machines`."""
    found = evidence.gather(world, view, incident)
    off = any(isinstance(e, PowerOff) for e in found)
    suspicion = incident.state is IncidentState.SUSPECTED
    stands = DeathVerdict.DEAD if incident.dead else DeathVerdict.SILENT if suspicion else DeathVerdict.TWO_WITNESSES
    if judge(found) is DeathVerdict.SUSPECT or (not off and evidence.alive(found)):
        return TouchRefusal(TouchReason.ALIVE, "it shows a sign of life: nothing is done to its machine")
    passing = off and what in _AT_THE_MACHINE and not evidence.off_lasts(world, incident)
    lifeless_s = (world.now - evidence.last_alive(world, incident, found)).total_seconds()
    now = Circumstances(
        power_off=off and not passing,
        braked=held is not None and not held.machines_only and not off,
        lifeless_s=lifeless_s,
        running=not off and any(isinstance(e, SeenRunning) for e in found),
        alone=held is None or off,
    )
    grace_s = world.policy.death.reboot_grace_s
    if allowed(stands, what, now, grace_s):
        return None
    if not now.alone and held is not None:
        return TouchRefusal(TouchReason.ONE_CAUSE, held.reason)
    if lifeless_s < grace_s:
        seen = "was seen off once, and may come back" if passing else "is not seen off"
        text = f"its power {seen}: its machine is left alone until {grace_s:.0f} s after its last sign of life"
        return TouchRefusal(TouchReason.GRACE, text)
    if now.running:
        return TouchRefusal(
            TouchReason.RUNNING, "the provider shows its machine running with its checks passing: it is not ended"
        )
    return TouchRefusal(TouchReason.VERDICT, f"the verdict {stands.value} does not allow it")
