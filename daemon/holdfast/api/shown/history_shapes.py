"""The JSON of a node's history, its health, its hand-over sheet, and of the worst nodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from holdfast.api.answers.node_shapes import OutageShape
from holdfast.api.answers.shape import Essential, Open, Shape
from holdfast.api.answers.shapes import FindingShape, IncidentShape
from holdfast.decisions.nodes.health import Health
from holdfast.model.event import EventKind
from holdfast_checks.words import unknown_reads_as

Ticket = Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9#._:/@-]*$")]
"""Id of a ticket in the site's own system: it goes into Slurm's reason, so it has no blanks and no quotes."""


@unknown_reads_as("other", "the entry is shown without a category")
class Entry(StrEnum):
    """What an entry of a node's history is about."""

    OUT = "out"
    """The node left service: drained, or DOWN."""
    BACK = "back"
    """It serves again."""
    INCIDENT = "incident"
    CHECK = "check"
    STEP = "step"
    """A repair or another step of Holdfast's at the node."""
    JOB = "job"
    MACHINE = "machine"
    """Another machine or another boot."""
    OPERATOR = "operator"
    """An operator's order or note."""
    OTHER = "other"


class HistoryEntryShape(Shape):
    """One line of a node's history."""

    id: int = Field(description="Number of the event that it is made from.")
    at: Annotated[datetime, Essential()]
    kind: Open[EventKind]
    about: Annotated[Open[Entry], Essential()]
    who: str = Field(description="`Holdfast`, `Slurm`, an operator's token, or Slurm's user; empty: not known.")
    text: Annotated[str, Essential()] = Field(description="One sentence for people.")
    reason: str = Field(description="Why, in the words of who did it; empty: none was given.")
    category: str = Field(description="Of the site's rule that the reason matches (`[[drain_rules]]`).")
    ticket: str
    incident_id: str
    job: str
    lasted_s: float | None = Field(
        description="Of what took the node out: for how long; null: it still is, or not known."
    )


class GpuShape(Shape):
    uuid: Annotated[str, Essential()]
    serial: str
    pci: str
    minor: int | None


class MachineShape(Shape):
    """A machine that reported under the node's name."""

    instance_id: Annotated[str, Essential()]
    boot_id: str = Field(description="Its last boot that was reported.")
    serving: bool = Field(description="It serves the node now.")
    reported_at: datetime | None = Field(description="When its hardware was last reported.")
    driver_version: str
    gpus: list[GpuShape]
    detail: Mapping[str, Any] = Field(description="What else its agent says of it.")


class NodeHistoryShape(Shape):
    """A node's history, oldest first, and its machines."""

    node: Annotated[str, Essential()]
    recorded_since: datetime | None = Field(
        description="Since when drains of others are on record; null: Slurm has not been read for that yet."
    )
    machines: list[MachineShape]
    entries: Annotated[list[HistoryEntryShape], Essential()]
    next_cursor: int | None = Field(description="Pass as `cursor` for what is older; null: there is nothing older.")


class NodeHealthShape(Shape):
    """One verdict on a node. The words do not change; new fields may come."""

    node: Annotated[str, Essential()]
    health: Annotated[Open[Health], Essential()]
    reason: str = Field(description="Why, in one line.")
    since: datetime | None = Field(description="Since when; null: not known.")
    in_service: bool | None = Field(
        description="Whether Slurm starts jobs there; null: Slurm does not show the node, or does not answer."
    )
    incident_id: str = Field(description="Open incident that the verdict is from; empty: none.")


class AllHealthShape(Shape):
    """The verdict on each node."""

    at: datetime | None = Field(description="When this was judged; null: the control loop has not turned yet.")
    counts: dict[str, int]
    nodes: Annotated[list[NodeHealthShape], Essential()]


class FaultShape(Shape):
    """One outage, and what it counts for the node's score."""

    outage: OutageShape
    weight: int = Field(description="2: soon after the node's return; 0: it counts for nothing.")
    until: datetime | None = Field(description="When it stops to count; null: it does not count.")
    why: str


class LemonShape(Shape):
    """A node with a score, and how that comes about."""

    node: Annotated[str, Essential()]
    score: int
    lemon: bool
    until: datetime | None = Field(description="When it ends to be a lemon; null: it is none.")
    reasons: list[str]
    faults: list[FaultShape] = Field(description="Newest first.")


class LemonsShape(Shape):
    """Nodes with a score, the worst first."""

    history_read_at: datetime | None = Field(description="History is read every few minutes; null: not yet.")
    rules: list[str] = Field(description="What makes a node a lemon, by the settings.")
    lemons: Annotated[list[LemonShape], Essential()]


class SheetIncidentShape(Shape):
    """One incident for the vendor: what was found, and what was tried."""

    incident: IncidentShape
    findings: list[FindingShape]
    tried: list[HistoryEntryShape] = Field(description="Resets, reboots, replacements and what came of them.")


class NodeSheetShape(Shape):
    """What a vendor wants to know of a node."""

    node: Annotated[str, Essential()]
    made_at: datetime
    health: NodeHealthShape | None
    machines: list[MachineShape]
    incidents: list[SheetIncidentShape] = Field(description="Newest first.")
    out: list[HistoryEntryShape] = Field(description="When the node left service and came back.")
    tickets: list[str]


class NodeNote(BaseModel):
    """An operator's note on a node."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"text": "board swapped by the vendor", "ticket": "OPS-12"}}
    )
    text: str = Field(min_length=1, max_length=500, description="For the next reader.")
    ticket: Ticket = Field(default="", description="Id of a ticket in your own system.")


class DrainOrder(BaseModel):
    """Drain a node as an operator's drain."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"reason": "swapping the cable", "ticket": "OPS-12"}}
    )
    reason: str = Field(min_length=1, max_length=150, description="Why: a part of Slurm's reason of the node.")
    ticket: Ticket = Field(default="", description="Id of a ticket in your own system.")


class ReleaseOrder(BaseModel):
    """Put a drained node back into service."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"note": "cable swapped, tested", "ticket": "OPS-12"}}
    )
    note: str = Field(min_length=1, max_length=500, description="What was done to it, for the record.")
    ticket: Ticket = Field(default="", description="Id of a ticket in your own system.")
    despite_repair: bool = Field(
        default=False, description="Also while Holdfast repairs it: the repair ends, and the node serves as it is."
    )


class ReplaceOrder(BaseModel):
    """Replace the node's machine."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"reason": "board swap", "ticket": "OPS-12", "machine": "i-0abc"}}
    )
    reason: str = Field(default="", max_length=150, description="Why, for the record.")
    ticket: Ticket = Field(default="", description="Id of a ticket in your own system.")
    over: str = Field(
        default="",
        max_length=1000,
        description="Reason of another operator's drain, word for word, that Holdfast takes over; empty: none is taken over.",
    )
    machine: str = Field(
        default="",
        max_length=200,
        description="Machine that you saw; another one is refused. Empty: the one that serves now.",
    )


class Ordered(Shape):
    """An order that was taken down."""

    order_id: str = Field(description="Empty: a note, which is on record already.")
    text: Annotated[str, Essential()] = Field(description="What happens next, for people.")
    incident_id: str = Field(
        default="", description="Open incident of the node, in whose timeline it is shown as well."
    )
