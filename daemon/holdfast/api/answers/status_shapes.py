"""The JSON of the parts that Holdfast consists of and stands on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.api.answers.restraint_shapes import RestraintsShape
from holdfast.api.answers.shape import Essential, Open, Shape
from holdfast.model.parts import Condition, PartName


class PartShape(Shape):
    """How one part is."""

    name: Annotated[Open[PartName], Essential()]
    condition: Annotated[Open[Condition], Essential()] = Field(
        description="good, warning (an operator should look in the next days), failed (now) or unknown."
    )
    text: str = Field(description="What was found, with its figure.")
    next_step: str = Field(description="What an operator does; empty: nothing.")
    ready: bool = Field(default=True, description="false: without it this controller is not ready.")


class StatusShape(RestraintsShape):
    """Whether this controller acts, what holds it back, and the parts of its head node with what they stand on."""

    release: str
    ready: bool = Field(description="As `/readyz` answers.")
    why: str | None = Field(description="Why not; null: it is.")
    parts: Annotated[list[PartShape], Essential()]
    last_write_age_s: float | None = Field(description="Since the store last took a write; null: none yet.")
    actor_silent_s: float | None = Field(description="Since the actor's last sign of life; null: it is not looked for.")
    disk_free_bytes: int | None = Field(description="On the store's file system; null: not on this machine.")
    store_bytes: int | None = Field(description="The database with its log; null: not on this machine.")
