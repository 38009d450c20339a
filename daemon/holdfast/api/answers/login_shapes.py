"""The JSON of signing in."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.answers.shape import Essential, Shape


class NewLogin(BaseModel):
    """What a browser's session may do."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"read_only": True}})
    read_only: bool = Field(default=False, description="It changes nothing, whatever the token may.")


class LoginShape(Shape):
    """A code that begins one session."""

    code: Annotated[str, Essential()] = Field(description="To be entered at `/ui/sign-in`; it works once.")
    expires_s: float = Field(description="How long it can be used, seconds.")
