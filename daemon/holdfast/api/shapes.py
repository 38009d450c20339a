"""The JSON of what the API shows: one class per noun, made from the core's own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from holdfast.model.action import IntentState
from holdfast.model.event import EventKind
from holdfast.model.incident import IncidentState, RecoveryPhase
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


class Shape(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class IncidentShape(Shape):
    """One fault on one node from first evidence to closure."""

    id: str = Field(examples=["0h3k5d2m8x1q"])
    node: str
    instance_id: str
    boot_id: str
    state: IncidentState
    severity: Severity
    remedy: Remedy
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
    repair_attempt: int
    note: str = Field(description="Why it stands where it stands.")


class JobKeyShape(Shape):
    cluster: str
    job_id: int
    submit_time: datetime


class RecoveryShape(Shape):
    """The way of one job run back to work."""

    id: str
    job: JobKeyShape
    restarts_before: int
    incident_id: str
    phase: RecoveryPhase
    user: str
    uid: int
    nodes_before: list[str]
    partition: str
    gpus: int
    created_at: datetime
    consent: str
    spare: str | None
    hold: str | None
    checkpoint_step: int | None
    stopped_step: int | None
    resumed_step: int | None
    note: str


class ActionShape(Shape):
    """One step outside, with its reason and what became of it."""

    key: str
    incident_id: str
    kind: str = Field(examples=["Drain"])
    target: str
    state: IntentState
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
    kind: EventKind
    incident_id: str | None
    node: str | None
    job: str | None
    text: str
    detail: Mapping[str, Any]


class FindingShape(Shape):
    """A check's result that was not OK."""

    check: str
    component: str
    code: str
    verdict: Verdict
    severity: Severity
    remedy: Remedy
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


class CheckpointShape(Shape):
    """What a job said of its checkpoints."""

    directory: str
    restarts: int
    fenced: bool
    saved_step: int | None
    saved_at: datetime | None
    progress_step: int | None
    progress_at: datetime | None
    resumed_step: int | None
    resumed_at: datetime | None


class JobShape(Shape):
    """A job that Holdfast recovered, recovers, or that registered its checkpoints."""

    job_id: int
    user: str = Field(description="Empty when Slurm has forgotten the job.")
    uid: int
    state: str = Field(description="Slurm's state; empty when Slurm has forgotten the job or does not answer.")
    nodes: list[str]
    checkpoint: CheckpointShape | None
    recoveries: list[RecoveryShape]


class AgentShape(Shape):
    """An agent as its heartbeats show it."""

    status: str = Field(description="heard, silent, or unknown (never heard since the controller started).")
    instance_id: str
    boot_id: str
    last_heard: datetime | None
    version: str
    clock_offset_s: float
    all_ok: bool
    failing: list[str]
    fabric_moved_at: datetime | None = Field(
        description="When the node's RDMA devices last carried bytes, known to a minute; null: nothing is known of it."
    )


class NodeShape(Shape):
    """Everything known of one node."""

    name: str
    state: str = Field(
        description="Slurm's state with its flags; empty: Slurm does not show it.", examples=["IDLE+DRAIN"]
    )
    reason: str
    partitions: list[str]
    gpus: int
    jobs: list[int]
    spare: bool
    score: int = Field(description="Faults of the last weeks, weighed (docs/spares.md); 0: none.")
    lemon: bool = Field(description="Its history makes it the last choice.")
    agents: list[AgentShape]
    incidents: list[IncidentShape]
    why: str = Field(description="One line: what holds it where it is.")


class BrakeShape(Shape):
    kind: str
    tripped_at: datetime
    reason: str


class ClusterShape(Shape):
    """All nodes and what holds Holdfast back."""

    cluster: str
    mode: str
    leader: bool
    slurm_read_at: datetime | None = Field(description="When Slurm was last read; null: it does not answer.")
    paused: str | None
    frozen: str | None
    brakes: list[BrakeShape]
    nodes: list[NodeShape]


class OutageShape(Shape):
    """One time that a fault took the node out of service."""

    incident_id: str
    instance_id: str
    what: str
    out_at: datetime
    back_at: datetime | None
    excused: bool = Field(description="Not the node's doing; it counts for nothing.")


class NodeStory(Shape):
    """One node with its history."""

    node: NodeShape
    reasons: list[str] = Field(description="What the score is made of.")
    lemon_until: datetime | None
    outages: list[OutageShape] = Field(description="Newest first.")
    instance_id: str = Field(description="Machine that serves the node, as last proved; empty: not known.")
    checked_at: datetime | None = Field(description="When it was last checked by order.")
    deep_at: datetime | None = Field(description="When its last deep check by order ended.")
    check_note: str = Field(description="What that found to be wrong; empty: nothing.")
    history_read_at: datetime | None = Field(description="History is read every few minutes; null: not yet.")


class SpareShape(Shape):
    """One node of the spare pool."""

    node: str
    ready: bool
    why: str = Field(description="Why it is not ready, or not the first choice.")
    under_test: bool = Field(description="A deep check is under way: it is taken only when there is no other.")
    lemon: bool
    checked_at: datetime | None
    deep_at: datetime | None


class SparesShape(Shape):
    """The spare pool, how many are wanted, and why."""

    reservation: str
    wanted: int | None = Field(description="null: no number is set, the pool gets back what was taken from it.")
    reasons: list[str] = Field(description="How the number comes about.")
    ready: int
    short_since: datetime | None = Field(description="Since when fewer are there than wanted.")
    spares: list[SpareShape]


class IncidentsShape(Shape):
    incidents: list[IncidentShape]


class EventsShape(Shape):
    events: list[EventShape]
    next_after_id: int = Field(description="Pass as `after_id` to read on.")


class ActionsShape(Shape):
    actions: list[ActionShape]


class SpreadShape(Shape):
    """Durations in seconds; percentiles from 50 samples on, else all values."""

    count: int
    mean: float
    p50: float
    p90: float | None
    p99: float | None
    max: float
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
    incidents: int
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


Pattern = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[ -~]+$")]


class Word(BaseModel):
    """An operator's word."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"reason": "swapping the cable"}})
    reason: str = Field(default="", max_length=500, description="Why, for the record and for whoever looks next.")


class NewSuppression(BaseModel):
    """Findings that are known, and are to lead to nothing for a while."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"check": "gpu.thermal", "node": "n7", "hours": 24, "reason": "fan on order"}},
    )
    node: Pattern = Field(default="*", description="Node, or a shell pattern of nodes.")
    check: Pattern = Field(default="*", description="Check, or a shell pattern of checks.")
    component: Pattern = Field(default="*", description="Component (GPU UUID, device, mount), or a pattern.")
    hours: float = Field(gt=0, le=2160, description="For how long; 90 days at most.")
    reason: str = Field(min_length=1, max_length=500, description="Why, for the record and for whoever looks next.")


class SuppressionShape(Shape):
    id: str
    node: str
    check: str
    component: str
    until: datetime
    by: str
    reason: str
    created_at: datetime


class SuppressionsShape(Shape):
    suppressions: list[SuppressionShape]


class Done(Shape):
    done: bool = True
    incident: IncidentShape | None = None
