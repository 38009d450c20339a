"""The JSON of proposals: steps that wait for an operator's accept, and what may be done to a node."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.answers.shape import Essential, Open, Shape
from holdfast.model.incidents.incident import Incident
from holdfast.model.operators.proposals import ProposalRecord, ProposalState, StepKind, proposal_id
from holdfast_checks.result import Severity


class ProposalShape(Shape):
    """One step that waits for an operator, or was answered by one."""

    id: Annotated[str, Essential()] = Field(
        examples=["0h3k5d2m8x1q.1"],
        description="A changed situation gets another id: an answer to the old one is refused.",
    )
    incident_id: str
    state: Annotated[Open[ProposalState], Essential()]
    step: Open[StepKind] | None = Field(description="Kind of step; null: one that this release does not know.")
    what: str = Field(description="What would be done, to what.")
    reason: str
    node: str
    job_id: int | None = Field(description="Job that it is about; null: none.")
    severity: Open[Severity] | None
    since: datetime | None = Field(description="When it was first asked; an update in place keeps it.")
    until: datetime | None = Field(
        description="open: when it expires, undone. accepted: until when the step may be begun. snoozed: when it is asked again."
    )
    was: str = Field(default="", description="Id that it had before the situation changed; empty: it had none.")
    by: str = Field(description="Who answered last; empty: no one.")
    why: str = Field(description="The reason that they gave.")
    answered_at: datetime | None


class ProposalsShape(Shape):
    proposals: Annotated[list[ProposalShape], Essential()]


class NewSnooze(BaseModel):
    """When to ask again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"hours": 2, "reason": "after the demo"}})
    hours: float = Field(gt=0, le=168, description="Ask again after this long; 7 days at most.")
    reason: str = Field(default="", max_length=500, description="Why, for the record and for the next reader.")


class NodePolicyShape(Shape):
    """What may be done to a node, by the `[[nodes]]` tables and `[mode]`."""

    mode: str
    why: str = Field(description="Which setting makes it so.")
    asks: list[str] = Field(description="Kinds of steps that wait for an operator's accept; empty: none.")
    rungs: list[str] = Field(description="Rungs of the repair ladder that may be used.")
    never_touch: bool
    sets: list[str] = Field(description="Names of the `[[nodes]]` tables that have the node.")


def proposal_shape(incident: Incident, record: ProposalRecord) -> ProposalShape:
    return ProposalShape(
        id=proposal_id(incident.id, record.number),
        incident_id=incident.id,
        state=record.status,
        step=record.question.kind,
        what=record.what,
        reason=record.reason,
        node=record.node,
        job_id=record.job,
        severity=record.severity,
        since=record.opened_at,
        until=record.until,
        was=proposal_id(incident.id, record.was) if record.was is not None else "",
        by=record.by,
        why=record.why,
        answered_at=record.answered_at,
    )


def proposals_of(incident: Incident) -> list[ProposalShape]:
    """All of an incident, the oldest first."""
    return [proposal_shape(incident, record) for record in incident.proposals]
