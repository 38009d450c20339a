"""Where a replacement stands, read from its intents. Pure.

Step names carry the attempt of the ladder, so that a second machine is a second step and the first is never repeated."""

from __future__ import annotations

from datetime import timedelta

from holdfast.controller import facts
from holdfast.model.action import Intent, IntentState, Terminate
from holdfast.model.book import World
from holdfast.model.incident import Incident
from holdfast_checks.result import Severity


def launch_step(incident: Incident) -> str:
    return f"Launch/{incident.node}.{incident.repair_attempt}"


def validate_step(incident: Incident) -> str:
    return f"SendOrder/validate/{incident.node}.{incident.repair_attempt}"


def evidence_step(incident: Incident) -> str:
    return f"SendOrder/evidence/{incident.node}"


def undrain_step(incident: Incident) -> str:
    return f"Undrain/{incident.node}"


def launched(world: World, incident: Incident) -> Intent | None:
    """The launch of this attempt, once it has succeeded."""
    return facts.done(world.book.attempts(incident.id, launch_step(incident)))


def new_instance(world: World, incident: Incident) -> str | None:
    """Id of the machine that this attempt launched; None: the node keeps its machine (so far)."""
    launch = launched(world, incident)
    return str(launch.result["instance_id"]) if launch is not None else None


def leftovers(world: World, incident: Incident, *, ended: bool) -> tuple[str, ...]:
    """Machines that attempts of this incident's ladder launched in vain and that are not terminated yet.

    ``ended``: the incident is over, so its last attempt is, too. A machine that serves the node is none."""
    record = world.book.nodes.get(incident.node)
    serving = record.instance_id if record is not None else ""
    found = []
    for attempt in range(incident.repair_attempt + (1 if ended else 0)):
        launch = facts.done(world.book.attempts(incident.id, f"Launch/{incident.node}.{attempt}"))
        instance = str(launch.result["instance_id"]) if launch is not None else ""
        if instance and instance != serving and not _terminated(world, instance):
            found.append(instance)
    return tuple(found)


def _terminated(world: World, instance: str) -> bool:
    """By this incident or, once it had served, by a later one."""
    return any(
        isinstance(i.action, Terminate) and i.action.instance_id == instance and i.state is IntentState.DONE
        for i in world.book.intents.values()
    )


def serving_instance(world: World, incident: Incident) -> str:
    """The machine to be validated: the new one, or the node's own where nothing was replaced."""
    return new_instance(world, incident) or incident.instance_id


def validation(world: World, incident: Incident) -> Intent | None:
    """The validation of this attempt once it is settled, whatever its outcome."""
    latest = facts.last(world.book.attempts(incident.id, validate_step(incident)))
    return latest if latest is not None and latest.settled else None


def gpu_uuids(checked: Intent | None) -> frozenset[str]:
    """The GPUs that a validation named. They are a node's word: nonsense names none."""
    said = checked.result.get("gpu_uuids") if checked is not None else None
    return frozenset(u for u in said if isinstance(u, str)) if isinstance(said, list | tuple) else frozenset()


def failure(world: World, incident: Incident) -> str | None:
    """Why this attempt has failed; None: it has not."""
    launch = facts.failed_for_good(world.book.attempts(incident.id, launch_step(incident)))
    if launch is not None:
        return f"launch failed: {launch.outcome}"
    done = launched(world, incident)
    instance = serving_instance(world, incident)
    checked = validation(world, incident)
    if checked is None:
        if done is None and world.book.attempts(incident.id, launch_step(incident)):
            return None  # no machine yet: a lack of capacity is no fault of a machine
        since = done.finished_at if done is not None else incident.state_since
        limit_s = world.policy.repair.launch_timeout_s
        if since is not None and world.now - since > timedelta(seconds=limit_s):
            return f"machine {instance or incident.node} was not validated within {limit_s:.0f} s"
        return None
    verdict = facts.done((checked,))
    if verdict is None:
        return f"validation failed: {checked.outcome}"
    return _same_hardware(world, incident, checked) or _new_findings(world, incident, instance)


def _same_hardware(world: World, incident: Incident, checked: Intent) -> str | None:
    record = world.book.nodes.get(incident.node)
    if new_instance(world, incident) is None or record is None or record.instance_id == new_instance(world, incident):
        return None
    again = record.gpu_uuids & gpu_uuids(checked)
    return f"the same hardware came back: {', '.join(sorted(again))}" if again else None


def _new_findings(world: World, incident: Incident, instance: str) -> str | None:
    for finding in world.book.findings.values():
        if finding.node != incident.node or finding.cleared_at is not None or finding.severity is Severity.WARNING:
            continue
        new = new_instance(world, incident) is not None
        since = incident.state_since
        if finding.instance_id == instance and (new or (since is not None and finding.received_at > since)):
            machine = "new" if new else "same"
            return f"the {machine} machine has a fault: {finding.check} {finding.code}: {finding.summary}"
    return None


def quiet_since_validation(world: World, incident: Incident) -> bool:
    """Validated, and the quiet time has passed without a finding."""
    checked = validation(world, incident)
    if checked is None or checked.finished_at is None or failure(world, incident) is not None:
        return False
    return world.now - checked.finished_at >= timedelta(seconds=world.policy.repair.quiet_s)
