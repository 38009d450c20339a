"""Has the repaired or new machine proved itself? Read from its intents and findings. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.controller import facts, proving, replacement, rungs, stillborn
from holdfast.controller.ladder import Rung
from holdfast.controller.proving import Progress
from holdfast.model.action import Intent, IntentState, Replace, StopStart
from holdfast.model.book import World
from holdfast.model.incident import Incident, IncidentState
from holdfast_checks.result import Severity


def validate_step(incident: Incident) -> str:
    return f"SendOrder/validate/{incident.node}.{incident.repair_attempt}"


def candidate(world: World, incident: Incident) -> str:
    """The machine to be validated: the one launched beside the old one, or the node's own."""
    return replacement.new_instance(world, incident) or incident.serving_id


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
    checked = validation(world, incident)
    if incident.state is IncidentState.REPAIRING:
        return rungs.failure(world, incident) or stillborn.failure(world, incident)
    if checked is None:
        return _too_late(world, incident)
    verdict = facts.done((checked,))
    if verdict is None:
        return f"validation failed: {checked.outcome}"
    return _same_hardware(world, incident, checked) or _new_findings(world, incident) or _unproved(world, incident)


def _unproved(world: World, incident: Incident) -> str | None:
    """What else the machine failed to show."""
    for part in (proving.deep(world, incident), proving.network(world, incident)):
        if part.progress is Progress.FAILED:
            return f"validation failed: {part.text}"
    return None


def proved_at(world: World, incident: Incident) -> datetime | None:
    """When it had passed everything: its checks, the deep check, and the pair probe where one is needed; None: not yet, or it failed."""
    if incident.validated_at is not None:
        return incident.validated_at
    checked = validation(world, incident)
    if checked is None or checked.state is not IntentState.DONE or checked.finished_at is None:
        return None
    parts = (proving.deep(world, incident), proving.network(world, incident))
    if any(part.progress is not Progress.PASSED for part in parts):
        return None
    return max([checked.finished_at, *(part.at for part in parts if part.at is not None)])


def _too_late(world: World, incident: Incident) -> str | None:
    limit_s = world.policy.repair.launch_timeout_s
    since = incident.state_since
    if since is not None and world.now - since > timedelta(seconds=limit_s):
        return f"machine {candidate(world, incident) or incident.node} was not validated within {limit_s:.0f} s"
    return None


def _same_hardware(world: World, incident: Incident, checked: Intent) -> str | None:
    """A new machine, or a new host, has other GPUs than the one that had the fault."""
    again = _gpus_before(world, incident) & gpu_uuids(checked)
    return f"the same hardware came back: {', '.join(sorted(again))}" if again else None


def _gpus_before(world: World, incident: Incident) -> frozenset[str]:
    """GPUs that may not come back on this rung; none where the same machine is meant to come back."""
    if not incident.rung or rungs.rung_of(incident) in (Rung.RESET_GPU, Rung.REBOOT, Rung.WATCH):
        return frozenset()
    tries = rungs.attempts(world, incident)
    action = tries[0].action if tries else None
    if isinstance(action, Replace | StopStart):
        return action.gpu_uuids
    record = world.book.nodes.get(incident.node)
    new = replacement.new_instance(world, incident)
    return record.gpu_uuids if record is not None and new not in (None, record.instance_id) else frozenset()


def _new_findings(world: World, incident: Incident) -> str | None:
    instance, since = candidate(world, incident), incident.state_since
    new = instance != incident.instance_id
    for finding in world.book.findings.values():
        if finding.node != incident.node or finding.cleared_at is not None or finding.severity is Severity.WARNING:
            continue
        if finding.instance_id == instance and (new or (since is not None and finding.received_at > since)):
            machine = "new" if new else "same"
            return f"the {machine} machine has a fault: {finding.check} {finding.code}: {finding.summary}"
    return None


def quiet_since_validation(world: World, incident: Incident) -> bool:
    """Validated, and the quiet time has passed without a finding."""
    at = proved_at(world, incident)
    if at is None or failure(world, incident) is not None:
        return False
    return world.now - at >= timedelta(seconds=world.policy.repair.quiet_s)
