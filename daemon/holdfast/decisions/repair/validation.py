"""Validation result of a repaired or new machine, read from its intents and findings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.common import attempted_steps
from holdfast.decisions.machines import replacement
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.repair import failed_launches, repair_progress, validation_orders
from holdfast.decisions.repair.ladder import Rung
from holdfast.decisions.repair.validation_orders import ValidationProgress
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Replace, StopStart
from holdfast.model.agents import answers
from holdfast.model.book import World
from holdfast.model.event import FailedPart
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast_checks.result import Severity


def candidate(world: World, incident: Incident) -> str:
    """The machine to be validated: the one launched in addition to the old one, or the node's own."""
    return replacement.new_instance(world, incident) or incident.serving_id


def validation(world: World, incident: Incident) -> Intent | None:
    """The validation of this attempt once it is settled, whatever its outcome; one that found a job on the node is asked for again."""
    step = steps.validate(incident.node, incident.repair_attempt)
    latest = attempted_steps.last(world.book.attempts(incident.id, step))
    if latest is None or not latest.settled or answers.held_by_job(latest.result):
        return None
    return latest


def gpu_uuids(checked: Intent | None) -> frozenset[str]:
    """The GPUs that a validation named."""
    return answers.gpu_uuids(checked.result) if checked is not None else frozenset()


@dataclass(frozen=True, slots=True)
class ValidationFailure:
    """Reason why an attempt of the ladder failed."""

    what: FailedPart
    text: str
    """For people."""


def failure(world: World, incident: Incident) -> ValidationFailure | None:
    """Reason why this attempt failed; None: it has not."""
    if incident.state is IncidentState.REPAIRING:
        why = repair_progress.failure(world, incident) or failed_launches.failure(world, incident)
        return ValidationFailure(FailedPart.RUNG, why) if why is not None else None
    checked = validation(world, incident)
    if checked is None:
        proved = incident.validated_at is not None  # by the job that runs on it
        return _new_findings(world, incident) if proved else _too_late(world, incident)
    if checked.state is not IntentState.DONE:
        return ValidationFailure(FailedPart.CHECKS, f"validation failed: {checked.outcome}")
    return _same_hardware(world, incident, checked) or _new_findings(world, incident) or _unproved(world, incident)


def _unproved(world: World, incident: Incident) -> ValidationFailure | None:
    """Other parts of the validation that the machine failed."""
    for part in (validation_orders.deep(world, incident), validation_orders.network(world, incident)):
        if part.progress is ValidationProgress.FAILED:
            return ValidationFailure(FailedPart.PROOF, f"validation failed: {part.text}")
    return None


def undecided(world: World, incident: Incident) -> str | None:
    """Reason why it is unknown whether the machine is fit: the failure may be another machine's fault. None: it is known."""
    checked = validation(world, incident)
    if checked is None or checked.state is not IntentState.DONE:
        return None
    part = validation_orders.network(world, incident)
    return part.text if part.progress is ValidationProgress.UNDECIDED else None


def proved_at(world: World, incident: Incident) -> datetime | None:
    """When it had passed everything: its checks, the deep check, and the pair probe where one is needed; None: not yet, or it failed."""
    if incident.validated_at is not None:
        return incident.validated_at
    checked = validation(world, incident)
    if checked is None or checked.state is not IntentState.DONE or checked.finished_at is None:
        return None
    parts = (validation_orders.deep(world, incident), validation_orders.network(world, incident))
    if any(part.progress is not ValidationProgress.PASSED for part in parts):
        return None
    return max([checked.finished_at, *(part.at for part in parts if part.at is not None)])


def _too_late(world: World, incident: Incident) -> ValidationFailure | None:
    limit_s = world.policy.repair.launch_timeout_s
    since = hands_off.since_window(world, incident, incident.state_since)
    if since is not None and world.now - since > timedelta(seconds=limit_s):
        machine = candidate(world, incident) or incident.node
        return ValidationFailure(FailedPart.LATE, f"machine {machine} was not validated within {limit_s:.0f} s")
    return None


def _same_hardware(world: World, incident: Incident, checked: Intent) -> ValidationFailure | None:
    """A new machine, or a new host, has other GPUs than the one that had the fault."""
    again = _gpus_before(world, incident) & gpu_uuids(checked)
    if not again:
        return None
    return ValidationFailure(FailedPart.SAME_HARDWARE, f"the same hardware came back: {', '.join(sorted(again))}")


def _gpus_before(world: World, incident: Incident) -> frozenset[str]:
    """GPUs that may not come back on this rung; none where the same machine is meant to come back."""
    if not incident.rung or repair_progress.rung_of(incident) in (Rung.RESET_GPU, Rung.REBOOT, Rung.WATCH):
        return frozenset()
    tries = repair_progress.attempts(world, incident)
    action = tries[0].action if tries else None
    if isinstance(action, Replace | StopStart):
        return action.gpu_uuids
    record = world.book.nodes.get(incident.node)
    new = replacement.new_instance(world, incident)
    return record.gpu_uuids if record is not None and new not in (None, record.instance_id) else frozenset()


def _new_findings(world: World, incident: Incident) -> ValidationFailure | None:
    instance, since = candidate(world, incident), incident.state_since
    new = instance != incident.instance_id
    for finding in world.book.findings.values():
        if finding.node != incident.node or finding.cleared_at is not None or finding.severity is Severity.WARNING:
            continue
        if finding.instance_id == instance and (new or (since is not None and finding.received_at > since)):
            machine = "new" if new else "same"
            text = f"the {machine} machine has a fault: {finding.check} {finding.code}: {finding.summary}"
            return ValidationFailure(FailedPart.NEW_FINDING, text)
    return None


def quiet_since_validation(world: World, incident: Incident) -> bool:
    """Validated, and the quiet time has passed without a finding."""
    at = proved_at(world, incident)
    if at is None or failure(world, incident) is not None:
        return False
    return world.now - at >= timedelta(seconds=world.policy.repair.quiet_s)
