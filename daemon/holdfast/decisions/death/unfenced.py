"""Notification about a node that does not answer while an old run on it could still write. Pure.

The node may still be training, unseen: the message lists the evidence for and against that with its times, and asks the operator to check
the machine before switching anything off."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from holdfast.decisions.common import slurm_view
from holdfast.decisions.death.known import Known, known
from holdfast.decisions.death.verdict import DeathVerdict
from holdfast.model.actions.action import Notify
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.slurm.cluster import ClusterView

_ASKED_S = 60.0
"""From a controller's start: by then it has tried the nodes that are silent, if it can (they are known as such after 30 s)."""


def asked(world: World, incident: Incident) -> bool:
    """Whether this controller has had the time to ask about the node: right after a start nothing of it is known."""
    since = world.listening_since
    early = since is not None and world.now - since < timedelta(seconds=_ASKED_S)
    return not early or incident.node in world.head


def page(world: World, view: ClusterView, incident: Incident, waits: Iterable[str]) -> Notify:
    """The message. ``waits``: ids, as people know them, of the jobs that wait for the end of their old run."""
    node, seen = incident.node, known(world, view, incident)
    names = ",".join(waits)
    body = (
        f"Job {names} waits to be restarted: its old run on {node} could still write, as its checkpoint library does not refuse that. "
        f"Holdfast ends no machine for this.\n"
        f"Known of {node} (times are UTC): silent to the controller since {seen.silent_since:%H:%M:%S}; {seen.text}. "
        f"{_verdict(incident, seen)}\n"
        f"{_look(seen)} If it runs, repair its network or its agent: it then reports and is returned. Only if it hangs or has no power: "
        f"make sure that it is off, then: scontrol update nodename={node} state=down reason='confirmed off'. {_otherwise(world, seen)}"
    )
    return Notify(
        f"{node} does not answer and cannot be fenced: job {names} waits",
        body,
        NoticeLevel.NEEDS_SOMEBODY,
        Topic.CANNOT_FENCE,
    )


def _verdict(incident: Incident, seen: Known) -> str:
    """``dead`` only where the verdict is, or was, that; what a later one rests on may have become too old to count."""
    if seen.verdict is DeathVerdict.DEAD:
        return f"Verdict: {seen.verdict.value}."
    return f"Verdict of now: {seen.verdict.value}; before that {incident.headline}."


def _look(seen: Known) -> str:
    look = "Check the machine itself (BMC, console) before any power-off: it may be training."
    if seen.alive:
        return f"It shows a sign of life: do not power it off. {look}"
    if seen.provider is not None and seen.provider.state == "running":
        return f"Its provider shows it running: nothing says that its power is off. {look}"
    return look


def _otherwise(world: World, seen: Known) -> str:
    timeout_s = world.background.slurmd_timeout_s
    if timeout_s == 0:
        return "Otherwise the job waits: SlurmdTimeout is 0, so Slurm never sets the node DOWN."
    shown_s = slurm_view.SLURMD_TIMEOUT_S if timeout_s is None else timeout_s
    heard = (
        "Slurm still gets answers from it: it is set DOWN only"
        if seen.slurm.responding
        else "Otherwise Slurm sets it DOWN"
    )
    return f"{heard} once slurmctld has had no answer from it for SlurmdTimeout ({shown_s:.0f} s)."
