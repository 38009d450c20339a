"""The JSON of operators' verbs, and of what they answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from holdfast.api.answers.shape import Essential, Shape
from holdfast.api.answers.shapes import IncidentShape

Pattern = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[ -~]+$")]


class Word(BaseModel):
    """An operator's reason for an order."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"reason": "swapping the cable"}})
    reason: str = Field(default="", max_length=500, description="Why, for the record and for the next reader.")


class NewSuppression(BaseModel):
    """Known findings that must not lead to an action for a while."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"check": "gpu.thermal", "node": "n7", "hours": 24, "reason": "fan on order"}},
    )
    node: Pattern = Field(default="*", description="Node, or a shell pattern of nodes.")
    check: Pattern = Field(default="*", description="Check, or a shell pattern of checks.")
    component: Pattern = Field(default="*", description="Component (GPU UUID, device, mount), or a pattern.")
    hours: float = Field(gt=0, le=2160, description="For how long; 90 days at most.")
    reason: str = Field(min_length=1, max_length=500, description="Why, for the record and for the next reader.")


class SuppressionShape(Shape):
    id: Annotated[str, Essential()]
    node: str
    check: str
    component: str
    until: datetime
    by: str
    reason: str
    created_at: datetime


class SuppressionsShape(Shape):
    suppressions: Annotated[list[SuppressionShape], Essential()]


class NewMaintenance(BaseModel):
    """Nodes that Holdfast must not act on for a while."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"nodes": "n[1-8]", "hours": 4, "why": "vendor swaps the switch"}}
    )
    nodes: Pattern = Field(description="A host list as Slurm writes it.")
    hours: float = Field(gt=0, le=720, description="For how long, from now on; 30 days at most.")
    why: str = Field(min_length=1, max_length=500, description="Why, for the record and for the next reader.")


class MaintenanceEnd(BaseModel):
    """Nodes that are given back."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"nodes": "n[1-8]"}})
    nodes: Pattern = Field(description="A host list as Slurm writes it.")


class WindowShape(Shape):
    id: Annotated[str, Essential()]
    nodes: list[str]
    until: datetime
    by: str
    why: str
    created_at: datetime


class WindowsShape(Shape):
    windows: Annotated[list[WindowShape], Essential()]


class Done(Shape):
    done: bool = True
    incident: IncidentShape | None = None
