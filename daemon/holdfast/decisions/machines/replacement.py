"""Replacement with a trial: progress of a machine launched in addition to the old one, read from its intents. Pure.

Step names carry the attempt of the ladder, so that a second machine is a second step and the first is never repeated."""

from __future__ import annotations

from holdfast.decisions.common import attempted_steps
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Launch, Replace, Terminate
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident


def launched(world: World, incident: Incident) -> Intent | None:
    """The launch of this attempt, once it has succeeded."""
    return attempted_steps.done(world.book.attempts(incident.id, steps.launch(incident.node, incident.repair_attempt)))


def new_instance(world: World, incident: Incident) -> str | None:
    """Id of the machine that this attempt launched; None: the node keeps its machine (so far)."""
    launch = launched(world, incident)
    return str(launch.result["instance_id"]) if launch is not None else None


def leftovers(world: World, incident: Incident, *, ended: bool) -> tuple[str, ...]:
    """Machines from failed attempts of this incident's ladder that are not terminated yet.

    ``ended``: the incident is over, so its last attempt is, too. Not included: a machine that serves the node, and the last one launched if
    Holdfast has ended the machine before it, since the node has no other."""
    record = world.book.nodes.get(incident.node)
    serving = record.instance_id if record is not None else ""
    going_on = None if ended else steps.launch(incident.node, incident.repair_attempt)
    made = [_made_by(i) for i in _launches(world, incident) if i.step != going_on]
    kept = {serving} | ({made[-1]} if ended and made and has_taken_over(world, incident) else set())
    return tuple(m for m in made if m and m not in kept and not terminated(world, m))


def has_taken_over(world: World, incident: Incident) -> bool:
    """Holdfast has ended the machine with the fault, since what it launched in its place was validated: the node has no other machine."""
    return bool(_launches(world, incident)) and terminated(world, incident.instance_id)


def made(world: World, incident: Incident) -> frozenset[str]:
    """Every machine that an attempt of this incident's ladder launched, or had exchanged in place."""
    return frozenset(map(_made_by, _launches(world, incident))) | frozenset(
        _made_by(i)
        for i in world.book.intents_of(incident.id)
        if isinstance(i.action, Replace) and i.state is IntentState.DONE
    )


def was_launched(world: World, instance_id: str) -> bool:
    """Launched for a replacement by any incident, whatever became of it."""
    launches = (i for i in world.book.intents.values() if isinstance(i.action, Launch))
    return any(i.result.get("instance_id") == instance_id for i in launches)


def launching(world: World, node: str) -> bool:
    """Whether a launch for the node has started and is not over: a machine that reports may be the new one."""
    launches = (i for i in world.book.intents.values() if isinstance(i.action, Launch) and i.action.node == node)
    return any(i.state is IntentState.STARTED for i in launches)


def _launches(world: World, incident: Incident) -> list[Intent]:
    """Those that succeeded, oldest first."""
    own = world.book.intents_of(incident.id)
    done = [i for i in own if isinstance(i.action, Launch) and i.state is IntentState.DONE]
    return sorted(done, key=lambda i: i.planned_at)


def _made_by(intent: Intent) -> str:
    return str(intent.result.get("instance_id", ""))


def terminated(world: World, instance: str) -> bool:
    """Whether Holdfast has ended the machine: by this incident or, once it had served, by a later one."""
    return any(
        isinstance(i.action, Terminate) and i.action.instance_id == instance and i.state is IntentState.DONE
        for i in world.book.intents.values()
    )
