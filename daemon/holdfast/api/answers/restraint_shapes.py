"""The JSON of what holds Holdfast back: its mode, a pause, brakes, and what operators have allowed for a time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from holdfast.api.answers.shape import Essential, Shape

BRAKE_NAME = r"^[a-z_]{1,32}(@[A-Za-z0-9._-]{1,64})?$"
"""A kind of brake, of a node set or of the site."""


class BrakeShape(Shape):
    """A brake that holds."""

    kind: Annotated[str, Essential()] = Field(
        description="By which it is released: drains, job_stops, planned_stops or task_drains; `drains@SET`: of a node set alone.",
        examples=["drains", "drains@prod"],
    )
    tripped_at: datetime
    reason: str
    node_set: str = Field(
        default="", description="The node set whose own limits tripped it; empty: it holds every node."
    )
    nodes: str = Field(
        default="", description="Host list of the set's nodes when it tripped; empty: it holds every node."
    )


class ExtensionShape(Shape):
    """More of one budget, for a time."""

    kind: Annotated[str, Essential()]
    plus: int = Field(description="Machines more, within an hour and within a day.")
    plus_nodes: int = Field(description="Different nodes more, within a day.")
    until: datetime
    by: str
    reason: str


class RestraintsShape(Shape):
    """What holds Holdfast back, and what it may do beyond its settings. Of a controller that does not lead: as it last read it."""

    mode: str = Field(
        description="observe: faults are recorded, nothing is done; propose: an operator accepts steps first; act."
    )
    leader: bool
    led_by: str | None = Field(description="Controller that leads, NAME/ID of its process; null: not known (yet).")
    not_leading: str | None = Field(
        default=None, description="Why this controller does not lead, and which one does; null: it leads."
    )
    paused: str | None = Field(description="Who paused, and why; null: not paused.")
    paused_at: datetime | None = Field(
        default=None, description="Since when; null: not paused, or paused by a release that did not record it."
    )
    frozen: str | None = Field(description="Why nothing, or nothing about silent nodes, is decided; null: it is.")
    brakes: list[BrakeShape]
    proposals_open: int = Field(default=0, description="Steps that wait for an operator's accept (mode propose).")
    extensions: list[ExtensionShape] = Field(default=[], description="Budgets that an operator has extended, now.")
