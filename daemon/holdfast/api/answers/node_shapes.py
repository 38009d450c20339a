"""The JSON of nodes, their agents and the spare pool as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from holdfast.api.answers.proposal_shapes import NodePolicyShape
from holdfast.api.answers.restraint_shapes import RestraintsShape
from holdfast.api.answers.shape import Essential, Shape
from holdfast.api.answers.shapes import IncidentShape, NextCursor


class AgentShape(Shape):
    """An agent as its heartbeats show it."""

    status: Annotated[str, Essential()] = Field(
        description="`heard`: reporting. `silent`: not reporting. `unknown`: no report since the controller started."
    )
    instance_id: str
    boot_id: str
    last_heard: datetime | None
    heartbeat_interval_s: float = Field(
        default=10.0,
        description="As its last heartbeat said; it is silent after `death.silent_after_heartbeats` of these.",
    )
    version: str
    clock_offset_s: float
    all_ok: bool
    failing: list[str]
    authorities: list[str] | None = Field(
        default=None,
        description="Fingerprints of the certificate authorities that it trusts; empty: its system's; null: it does not say.",
    )
    gres_problem: str = Field(
        default="",
        description="Why nothing proves which GPU its GRES indices are; empty: it is proved, or it does not say.",
    )
    set_aside: int = Field(
        default=0, description="Files and items of its memory that it cannot read and has set aside (docs/upgrade.md)."
    )
    set_aside_since: datetime | None = Field(default=None, description="Since when the oldest of them; null: none is.")
    checks_version: str | None = Field(
        default=None, description="Version of the policy of checks that it goes by; null: it does not say."
    )
    checks_refused: str = Field(
        default="", description="Why it refused the newest policy of checks; empty: it did not, or does not say."
    )
    fabric_moved_at: datetime | None = Field(
        description="When the node's RDMA devices last carried bytes, known to a minute; null: nothing is known of it."
    )


class NodeShape(Shape):
    """Everything known of one node."""

    name: Annotated[str, Essential()]
    state: str = Field(
        description="Slurm's state with its flags; empty: Slurm does not show it.", examples=["IDLE+DRAIN"]
    )
    reason: str
    partitions: list[str]
    gpus: int
    jobs: list[int]
    job_names: list[str] = Field(
        default=[], description="The same jobs as people know them: of an array's element `4_2`.", examples=[["4_2"]]
    )
    spare: bool
    score: int = Field(description="Faults of the last weeks, weighed (docs/spares.md); 0: none.")
    lemon: bool = Field(description="Its history makes it the last choice.")
    agents: list[AgentShape]
    incidents: list[IncidentShape]
    why: str = Field(description="One line: why the node is in this state.")
    trouble: str = Field(
        default="",
        description="What is wrong with a node in service of which no open incident speaks: put back before its fault was repaired, or "
        "its agent does not report since the controller started; empty: nothing is known.",
    )
    policy: NodePolicyShape | None = Field(
        default=None, description="What Holdfast may do to it, and which setting says so; null: not known yet."
    )


class ClusterShape(RestraintsShape):
    """All nodes and what holds Holdfast back."""

    cluster: str
    slurm_read_at: datetime | None = Field(description="When Slurm was last read; null: it does not answer.")
    untaken: str | None = Field(
        description="Which planned step no actor takes, or which limit of the actor's own holds steps back, and what to do; null: neither."
    )
    failing: list[str] = Field(
        default=[], description="Parts of the controller that fail unexpectedly at present, each with its error."
    )
    set_aside: list[str] = Field(default=[], description="Inputs that no decision can be made about.")
    unreadable: dict[str, int] = Field(
        default={},
        description="Rows of the store that this controller could not read since its start, by table (docs/upgrade.md).",
    )
    unreadable_since: datetime | None = Field(
        default=None, description="When the first of them was met; null: none was."
    )
    nodes: Annotated[list[NodeShape], Essential()]
    next_cursor: NextCursor = None


class OutageShape(Shape):
    """One time that a fault took the node out of service."""

    incident_id: str
    instance_id: str
    what: str
    out_at: datetime
    back_at: datetime | None = Field(
        description="When the node served again; null: it does not, or it is not on record."
    )
    by_others: bool = Field(default=False, description="An operator or another tool put it back.")
    over: bool = Field(default=True, description="The incident is closed.")
    ended: str = Field(default="", description="How it ended; empty: it is open, or not known.")
    excused: bool = Field(description="Not the node's doing; it counts for nothing.")


class NodeStory(Shape):
    """One node with its history."""

    node: NodeShape
    reasons: list[str] = Field(description="What the score is made of.")
    lemon_until: datetime | None
    outages: list[OutageShape] = Field(description="Newest first.")
    instance_id: str = Field(description="Machine that serves the node, as last proved; empty: not known.")
    checked_at: datetime | None = Field(description="When it was last checked by order.")
    deep_at: datetime | None = Field(description="When its last deep check by order ended.")
    check_note: str = Field(description="What that found to be wrong; empty: nothing.")
    history_read_at: datetime | None = Field(description="History is read every few minutes; null: not yet.")


class SpareShape(Shape):
    """One node of the spare pool."""

    node: Annotated[str, Essential()]
    ready: bool
    why: str = Field(description="Why it is not ready, or not the first choice.")
    under_test: bool = Field(description="A deep check is under way: it is taken only when there is no other.")
    lemon: bool
    checked_at: datetime | None
    deep_at: datetime | None


class SparesShape(Shape):
    """The spare pool, how many are wanted, and why."""

    reservation: str
    wanted: int | None = Field(description="null: no number is set, the pool gets back what was taken from it.")
    reasons: list[str] = Field(description="How the number comes about.")
    ready: int
    short_since: datetime | None = Field(description="Since when fewer are there than wanted.")
    spares: Annotated[list[SpareShape], Essential()]
