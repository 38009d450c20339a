"""The JSON of what Holdfast does now, what waits for an operator, and what happened in a span of time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from holdfast.api.answers.shape import Essential, Open, Shape
from holdfast.api.answers.status_shapes import StatusShape
from holdfast.model.incidents.incident import IncidentState


class DoingShape(Shape):
    """One open incident that Holdfast works on."""

    incident_id: Annotated[str, Essential()]
    node: str
    state: Open[IncidentState]
    what: str = Field(description="What is being done, in words.", examples=["repairing"])
    fault: str
    since: datetime | None
    step: str = Field(description="The step in flight; empty: none is.", examples=["Launch n17"])
    step_since: datetime | None
    reason: str = Field(description="Why the step in flight, or why none is.")
    due_at: datetime | None = Field(
        description="When the next step is due at the latest; null: it depends on what is observed."
    )
    due: str = Field(description="What is due then.")
    jobs: list[str] = Field(description="Jobs that are being recovered for it, each with its phase.")
    held: bool = Field(default=False, description="Nothing is done about it at present; `reason` says why.")


class WaitingShape(Shape):
    """One thing that waits for an operator."""

    kind: str = Field(description="part, paused, brake, proposal, incident, held_job, notice; others may be added.")
    subject: str
    what: Annotated[str, Essential()]
    since: datetime | None
    answer: str = Field(description="The command, or the page, that answers it.", examples=["holdfast resume"])


class NightLineShape(Shape):
    """One incident of the span."""

    incident_id: Annotated[str, Essential()]
    node: str
    at: datetime
    what: str
    state: Open[IncidentState]
    outcome: str = Field(
        description="healed, by_operator, needs_you, under_way, held_back, watched, over (nothing had to be healed)."
    )
    returned_s: float | None = Field(description="Fault to node back in service; null: it is not, or was never out.")
    jobs: int = Field(description="Jobs that were stopped.")
    jobs_back: int = Field(description="Of these, running again.")
    running_s: float | None = Field(description="Fault to the last of them running again; null: one is not.")
    lost_gpu_hours: float | None
    replaced: bool = Field(description="Another machine has taken the node's place.")
    held: str = Field(
        default="",
        description="Why nothing is done about it at present: maintenance, a brake, a budget, a pause, the mode; empty: held_back is not "
        "the outcome.",
    )


class NightShape(Shape):
    """What happened in a span of time."""

    since: datetime
    until: datetime
    incidents: Annotated[int, Essential()]
    more: bool = Field(description="There were more incidents than are counted here: ask for a shorter span.")
    healed: int
    needs_you: int
    jobs: int = Field(description="Jobs that were stopped.")
    jobs_back: int
    nodes_replaced: int
    lost_gpu_hours: float | None = Field(description="Over the jobs for which it is known; null: for none.")
    lines: list[NightLineShape] = Field(description="Oldest first.")


class SavedShape(Shape):
    """An estimate: Holdfast's measured times against a figure for the same work by hand."""

    since: datetime
    until: datetime
    incidents: Annotated[int, Essential()]
    jobs: int = Field(description="Jobs that Holdfast recovered.")
    down_s: float = Field(description="Measured: fault to the incident's last job running again, summed.")
    manual_s: float = Field(description="The figure times `incidents`.")
    saved_s: float
    saved_gpu_hours: float
    manual_minutes: float = Field(description="The figure: from a failure to the training running again, by hand.")
    source: str = Field(description="Where the figure is from.")


class OverviewShape(StatusShape):
    """`/v1/status`, what Holdfast does now and why, what waits for an operator, and what happened since a time."""

    at: datetime | None = Field(description="When this was read, by the controller's clock.")
    sentence: str = Field(description="What Holdfast does now, and whether something needs an operator.")
    doing: list[DoingShape] = Field(description="The worst first, then the oldest.")
    waiting: list[WaitingShape] = Field(description="The most urgent first.")
    watched: int = Field(description="Open incidents that call for nothing at present.")
    nodes: dict[str, int] = Field(
        description="Nodes by group: in_service, draining, in_repair, out (not by Holdfast), silent, unknown (to Slurm)."
    )
    night: NightShape | None = Field(description="Since `since`; null: none was asked for.")


class NamesShape(Shape):
    """Names to complete what an operator types."""

    nodes: Annotated[list[str], Essential()]
    incidents: list[str] = Field(description="Ids of open incidents.")
    about: dict[str, str] = Field(description="Id → node and fault.")
