"""JSON of ``holdfast plan``. Made by the command line itself; the same tables as people see."""

from __future__ import annotations

from pydantic import Field

from holdfast.api.answers.shape import Shape


class PlanTableShape(Shape):
    """One table."""

    name: str = Field(description="Which table; it does not change.")
    title: str
    columns: list[str] = Field(description="With their units.")
    rows: list[list[float | int | str | None]] = Field(description="One cell a column; null: not known, or infinite.")
    notes: list[str] = Field(description="Formula, source, and what the numbers leave out.")


class PlanShape(Shape):
    """Everything that one call shows."""

    tables: list[PlanTableShape]
