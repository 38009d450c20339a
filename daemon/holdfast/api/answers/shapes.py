"""The JSON of what the API shows: one class per noun, made from the core's own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from holdfast.api.answers.proposal_shapes import ProposalShape
from holdfast.api.answers.shape import Essential, Open, Shape
from holdfast.model.actions.action import IntentState
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import Ground, IncidentKind, IncidentState, RecoveryPhase
from holdfast_checks.result import Remedy, Severity, Verdict

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_ID = 2**63 - 1


def utc(value: datetime) -> datetime:
    """UTC; a time without an offset is UTC, one before 1970 means 1970."""
    if value.year <= EPOCH.year:
        return EPOCH
    if value.year > 9000:
        raise ValueError("must be before the year 9000")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Since = Annotated[datetime, AfterValidator(utc)]


class ReplacementShape(Shape):
    """An operator's order to replace a node's machine."""

    by: str = Field(description="Name of the operator's token.")
    at: datetime
    reason: str
    ticket: str
    instance_id: str = Field(description="The machine that the order is about.")


class IncidentShape(Shape):
    """One fault on one node from first evidence to closure."""

    id: Annotated[str, Essential()] = Field(examples=["0h3k5d2m8x1q"])
    node: Annotated[str, Essential()]
    instance_id: str
    boot_id: str
    kind: Open[IncidentKind] = Field(
        description="What it is about. `silence` becomes `fault` when the node reports again with one, and nothing else "
        "changes it; `check` may change."
    )
    state: Annotated[Open[IncidentState], Essential()]
    severity: Open[Severity]
    remedy: Open[Remedy]
    check: str = Field(examples=["gpu.xid"])
    headline: str = Field(examples=["gpu.xid 79 GPU-6d8f7f2e: GPU has fallen off the bus"])
    fault_at: datetime
    opened_at: datetime
    state_since: datetime | None
    closed_at: datetime | None
    gpu_minors: Annotated[list[int] | None, Field(description="GPUs at fault; null: the node as a whole.")]
    acknowledged: bool
    dead: bool
    goes_at: Annotated[
        datetime | None, Field(description="When the provider takes the machine away; null: it does not.")
    ]
    machine: str = Field(description="Machine that took the node's name over meanwhile; empty: `instance_id` has it.")
    job: str = Field(description="Run of the job that it is about; empty: it is about none.")
    suspects: list[str] = Field(description="That job's nodes, of which one may be at fault.")
    rung: str = Field(description="Rung of the repair ladder; empty: no repair was begun.")
    repair_attempt: int
    validated_at: datetime | None = Field(description="When the repaired or new machine was proved; null: not yet.")
    order: ReplacementShape | None = Field(
        default=None,
        description="Operator's order to replace the machine that opened or directs it; null: there was none.",
    )
    order_dropped: str = Field(
        default="", description="Why that order is not carried out (any more); empty: it is, or was."
    )
    note: str = Field(description="Why the incident is in this state, and what happens next.")


class JobKeyShape(Shape):
    cluster: str
    job_id: Annotated[int, Essential()]
    submit_time: datetime


class RecoveryShape(Shape):
    """The way of one job run back to work."""

    id: str
    job: JobKeyShape
    restarts_before: int
    incident_id: str
    phase: Annotated[Open[RecoveryPhase], Essential()]
    user: str
    uid: int
    nodes_before: list[str]
    partition: str
    gpus: int
    created_at: datetime
    consent: str = Field(description="Why its run may be stopped, or need not be, in words.", examples=["job option"])
    ground: Open[Ground] | None = Field(
        default=None, description="The same for programs; null: not decided yet, or not known."
    )
    spare: str | None
    hold: str | None
    checkpoint_step: int | None
    checkpoint_at: datetime | None = Field(default=None, description="When it was written; null: not known.")
    checkpoint_known: bool = Field(
        default=False, description="The run had saved nothing newer than that (where both are null: nothing at all)."
    )
    stopped_step: int | None = Field(
        description="Last step that the run reported, or by the times of its checkpoints is taken to have reached."
    )
    resumed_step: int | None
    note: str


class ActionShape(Shape):
    """One step outside, with its reason and what became of it."""

    key: str
    incident_id: str
    kind: Annotated[str, Essential()] = Field(examples=["Drain"])
    target: str
    state: Annotated[Open[IntentState], Essential()]
    reason: str
    planned_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str
    retryable: bool


class EventShape(Shape):
    """One line of the append-only record."""

    id: int
    at: datetime
    kind: Annotated[Open[EventKind], Essential()]
    incident_id: str | None
    node: str | None
    job: str | None
    text: str
    detail: Mapping[str, Any]


class FindingShape(Shape):
    """A check's result that was not OK."""

    check: Annotated[str, Essential()]
    component: str
    code: str
    verdict: Open[Verdict]
    severity: Open[Severity]
    remedy: Open[Remedy]
    summary: str
    fault_at: datetime
    received_at: datetime
    cleared_at: datetime | None
    evidence: Mapping[str, Any]
    gpu_uuid: str | None
    gpu_minor: int | None
    pci: str | None
    repeats: int
    last_seen_at: datetime
    consequence: bool = Field(description="Of another fault: it joins an incident and never opens one.")
    would_severity: Annotated[
        Open[Severity] | None,
        Field(description="Of a check that only observes: what it would be; null: it counts in full."),
    ]
    would_remedy: Annotated[Open[Remedy] | None, Field(description="What it would call for, likewise.")]


NextCursor = Annotated[
    str | None, Field(description="Pass as `cursor`, with the same filters, to read on; null: there is no more.")
]


class IncidentsShape(Shape):
    incidents: Annotated[list[IncidentShape], Essential()]
    next_cursor: NextCursor = None


class EventsShape(Shape):
    events: Annotated[list[EventShape], Essential()]
    next_after_id: int = Field(description="Pass as `after_id` to read on.")
    next_cursor: NextCursor = None


class ActionsShape(Shape):
    actions: Annotated[list[ActionShape], Essential()]
    next_cursor: NextCursor = None


class SpreadShape(Shape):
    """Durations in seconds; percentiles from 50 samples on, else all values."""

    count: Annotated[int, Essential()]
    mean: Annotated[float, Essential()]
    p50: Annotated[float, Essential()]
    p90: float | None
    p99: float | None
    max: Annotated[float, Essential()]
    values: list[float]


class JobLossShape(Shape):
    job: str
    stopped_at: datetime
    running_at: datetime | None
    resumed_at: datetime | None
    gpus: int
    lost_work_s: float | None
    lost_steps: int | None
    lost_gpu_hours: float | None


class TimingsShape(Shape):
    """Timings of one incident, seconds (docs/metrics.md)."""

    incident_id: str
    node: str
    phases: dict[str, float]
    time_to_detect_s: float | None
    time_to_running_s: float | None
    time_to_resumed_s: float | None
    time_to_return_s: float | None
    lost_work_s: float | None
    lost_steps: int | None
    lost_gpu_hours: float | None
    jobs: list[JobLossShape]


class MetricsShape(Shape):
    """A window of incidents (docs/metrics.md)."""

    since: datetime
    until: datetime
    incidents: Annotated[int, Essential()]
    mttd: SpreadShape | None
    mttr: SpreadShape | None
    mttr_resumed: SpreadShape | None
    time_to_return: SpreadShape | None
    phases: dict[str, SpreadShape]
    lost_work_s: float | None
    lost_steps: int | None
    lost_gpu_hours: float | None
    each: list[TimingsShape]


class IncidentStory(Shape):
    """One incident with everything that happened."""

    incident: IncidentShape
    findings: list[FindingShape]
    timeline: list[EventShape]
    actions: list[ActionShape]
    recoveries: list[RecoveryShape]
    timings: TimingsShape | None
    proposals: list[ProposalShape] = Field(
        default=[], description="Steps that waited for an operator's accept, the oldest first."
    )
