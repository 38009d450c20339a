"""May the machine of a silent node be rebooted or ended now? Pure. Asked by the ladder, and once more by the guard of each step."""

from __future__ import annotations

from holdfast.controller import facts
from holdfast.controller.death import brake, evidence
from holdfast.controller.death.verdict import (
    Circumstances,
    Consequence,
    PowerOff,
    SeenRunning,
    Verdict,
    allowed,
    judge,
)
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.incident import Incident, IncidentKind, IncidentState


def about_silence(world: World, incident: Incident) -> bool:
    """Whether the incident's machine is accused by silence alone: what is done to it goes by the verdict's table."""
    silent = incident.dead or (incident.kind is IncidentKind.SILENCE and not incident.repair_attempt)
    return silent and facts.agent_of(world, incident.node, incident.serving_id or None) is None


def why_not(
    world: World, view: ClusterView, incident: Incident, what: Consequence, held: brake.Group | None
) -> str | None:
    """Why this may not be done to the silent node now; None: it may. ``held``: the group of :func:`brake.holds`."""
    found = evidence.gather(world, view, incident)
    off = any(isinstance(e, PowerOff) for e in found)
    suspicion = incident.state is IncidentState.SUSPECTED
    stands = Verdict.DEAD if incident.dead else Verdict.SILENT if suspicion else Verdict.TWO_WITNESSES
    if judge(found) is Verdict.SUSPECT or (not off and evidence.alive(found)):
        return "it shows a sign of life: nothing is done to its machine"
    now = Circumstances(
        power_off=off,
        braked=held is not None and not off,
        silent_s=evidence.silent_s(world, incident),
        running=not off and any(isinstance(e, SeenRunning) for e in found),
    )
    grace_s = world.policy.death.reboot_grace_s
    if allowed(stands, what, now, grace_s):
        return None
    if now.braked and held is not None:
        return f"{held.text}: one cause, nothing is done to them until their power is off"
    if now.silent_s < grace_s:
        return f"its power is not seen off: its machine is left alone until it has been silent for {grace_s:.0f} s"
    if now.running:
        return "the provider shows its machine running with its checks passing: it is not ended"
    return f"the verdict {stands.value} does not allow it"
