"""The JSON of messages to people: who was called, about what, and whether it was delivered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from holdfast.api.answers.shape import Essential, Open, Shape
from holdfast.model.notice import NoticeLevel


class DeliveryShape(Shape):
    """One address of a message."""

    address: Annotated[str, Essential()] = Field(
        description="Where it is configured and its kind, without secrets.", examples=["urls[0] mailto://…"]
    )
    outcome: str = Field(description="delivered, failed (it is tried again), given_up, or waiting.")
    at: datetime | None = Field(default=None, description="When it was delivered or failed first; null: not tried yet.")
    attempts: int = Field(default=0, description="Tries so far, as far as they are on record.")
    error: str = Field(default="", description="Why it was not delivered; empty: it was, or was not tried.")


class NoticeShape(Shape):
    """One message to people."""

    id: Annotated[str, Essential()] = Field(examples=["m17"])
    at: datetime
    level: Open[NoticeLevel]
    topic: str = Field(description="What it is about; its runbook goes by this word.")
    subject: str
    stands_for: int = Field(default=1, description="Number of notices in this message.")
    over: bool = Field(default=False, description="It says that something is over.")
    incident_id: str | None = Field(default=None, description="Its incident; null: several, or none.")
    deliveries: list[DeliveryShape]


class NoticesShape(Shape):
    notices: Annotated[list[NoticeShape], Essential()] = Field(description="Newest first.")
