"""The JSON of the policy of checks: what counts on a node and who says so, and what another policy would have done."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.answers.proposal_shapes import NodePolicyShape
from holdfast.api.answers.shape import Essential, Open, Shape
from holdfast.api.answers.shapes import Since
from holdfast_checks.result import Remedy, Severity


class SaidShape(Shape):
    """One thing that the policy of checks says."""

    name: Annotated[str, Essential()] = Field(
        description="Id of a check, or `TABLE.KEY` of a threshold.",
        examples=["gpu.temperature_margin_c"],
    )
    value: float | None = Field(description="Of the threshold; null: it is said of a check.")
    what: str = Field(
        default="",
        description="observes, off (it is not run), acts, or threshold; others may be added. Empty: an older controller, which names "
        "checks that only observe, and thresholds.",
    )
    by: str = Field(description="`[checks]`, or the name of a node set.")
    counts: bool = Field(description="False: another one makes the check less active, and counts.")


class PolicyShape(Shape):
    """The policy of checks of one node, or of all."""

    node: str | None = Field(description="Null: what `[checks]` says of all nodes, and every node set.")
    version: Annotated[str, Essential()]
    act_on: list[str]
    observe_only: list[str]
    checks_off: list[str] = Field(default=[], description="Checks that are not run.")
    thresholds: dict[str, float]
    said: list[SaidShape]
    policy: NodePolicyShape | None = Field(
        description="What Holdfast may do to the node; null: of all nodes, or not known yet."
    )
    agent_version: str | None = Field(
        description="Policy that its agent goes by; null: it does not say, or none has reported."
    )
    older: list[str] = Field(description="Nodes whose agents go by another version than theirs now.")
    refused: dict[str, str] = Field(description="Node → why its agent refused the policy; the one before holds there.")
    never_off: list[str] = Field(
        default=[],
        description="Nodes whose agents are of a release that cannot switch checks off: what these find there counts as a warning.",
    )


class NewWhatIf(BaseModel):
    """Another policy of checks, and how far to look back."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"since": "2026-01-01T00:00:00Z", "act_on": ["gpu.nvlink"]}}
    )
    since: Since | None = Field(default=None, description="Start of the span; null: 30 days ago.")
    tables: dict[str, Any] | None = Field(
        default=None,
        description="Tables `profile`, `mode`, `propose`, `repair`, `nodes` and `checks` of a controller.toml; null: those in force. "
        "What they leave out is at its default.",
    )
    act_on: list[str] = Field(default=[], max_length=200, description="Checks that would act in addition; `*`: all.")
    observe_only: list[str] = Field(
        default=[], max_length=200, description="Checks that would only observe in addition."
    )
    checks_off: list[str] = Field(default=[], max_length=200, description="Checks that would be off in addition.")


class WhatIfFaultShape(Shape):
    """A fault that the other policy would have treated otherwise."""

    node: Annotated[str, Essential()]
    incident_id: str | None
    at: datetime = Field(description="When the finding that makes the difference was received.")
    check: str
    code: str
    severity: Open[Severity] = Field(description="What it calls for where its check acts.")
    remedy: Open[Remedy]
    times: int = Field(description="How often it was seen.")
    before: str = Field(description="drained, asked (mode propose), recorded (mode observe), watched (no drain).")
    after: str = Field(description="Likewise, with the other policy.")
    why: str


class PolicyChangeShape(Shape):
    """What the other policy changes on a node."""

    node: Annotated[str, Essential()]
    lines: list[str]


class WhatIfShape(Shape):
    """What another policy would have done, and what it changes."""

    since: datetime
    until: datetime
    replayed: int = Field(description="Findings of the span that were replayed.")
    more: bool = Field(description="There are older ones in the span that were not read.")
    faults: Annotated[list[WhatIfFaultShape], Essential()]
    changes: list[PolicyChangeShape] = Field(description="By node, as Slurm shows them now.")
    notes: list[str] = Field(description="What the answer leaves out.")
