"""Agent reports, and the controller's record of them. Standard library only.

The wire is JSON (``docs/reference/wire.md``): an envelope (:class:`Report`) with items. Agents build plain dicts, the API parses them
tolerantly into these classes. A report on disk is a report accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast_checks.acting import Lists
from holdfast_checks.result import Remedy, Result, Scalar, Severity, Verdict

WIRE_VERSION = 1
"""Versions N and N−1 are accepted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's judged result that is not OK, placed in time by the controller."""

    id: int
    """The store's number; 0 before it is stored."""
    node: str
    instance_id: str
    boot_id: str
    check: str
    component: str
    code: str
    severity: Severity
    remedy: Remedy
    failed: bool
    """Grade of the verdict, FAILED or DEGRADED (:class:`~holdfast_checks.result.Grade`): for people, no decision depends on it."""
    summary: str
    fault_at: datetime
    """Receipt − age. Wall time of the node is evidence only."""
    received_at: datetime
    evidence: Mapping[str, Scalar] = field(default_factory=dict)
    gpu_uuid: str | None = None
    gpu_minor: int | None = None
    pci: str | None = None
    consequence: bool = False
    sticky: bool = False
    incident_id: str | None = None
    """None until correlation has placed it."""
    cleared_at: datetime | None = None
    would_severity: Severity | None = None
    """Of a check that only observes: the severity that the finding would have; None: it counts in full."""
    would_remedy: Remedy | None = None
    """The remedy that it would call for, likewise."""
    last_fault_at: datetime | None = None
    """When it last occurred, as a repetition only counts. None: once."""

    @property
    def verdict(self) -> Verdict:
        """FAILED or DEGRADED."""
        return Verdict.FAILED if self.failed else Verdict.DEGRADED

    @property
    def observed(self) -> bool:
        """Its check only observes: the finding is recorded and never acted upon."""
        return self.would_severity is not None

    @property
    def headline(self) -> str:
        """``gpu.xid 79 GPU-…: fell off the bus``, for people: a summary that starts with the same words does not repeat them."""
        component = self.component if self.component not in ("node", self.code) else ""
        summary = self.summary.removeprefix(f"Xid {self.code} ")  # rule prose: shown, never looked at
        summary = summary.removeprefix(f"{component}: ")  # rule prose: shown, never looked at
        return f"{' '.join(p for p in (self.check, self.code, component) if p)}: {summary}"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Key by which two findings are the same fault: node, check, component, code."""
        return (self.node, self.check, self.component, self.code)


@dataclass(frozen=True, slots=True)
class SeenFinding:
    """A stored finding with how often it was seen again."""

    finding: Finding
    repeats: int
    """0: seen once."""
    last_seen_at: datetime


@dataclass(frozen=True, slots=True)
class Clear:
    """A positive OK of a check that had found something sticky. Only this clears; silence never does."""

    check: str
    component: str
    cleared_at: datetime


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement of a job on its node: its checkpoint directory, a saved or resumed step, progress.

    The agent has bound it to the caller's uid and job (SO_PEERCRED, cgroup or slurmd's report)."""

    kind: str
    """checkpoint.register, checkpoint.saved, checkpoint.resumed, progress."""
    job_id: int
    uid: int
    restarts: int
    at: datetime
    step: int | None = None
    path: str | None = None
    detail: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hardware as the agent saw it: identity of a node is (name, instance id, boot id, GPU UUIDs)."""

    gpus: Mapping[str, Mapping[str, Scalar]]
    """GPU UUID → {minor, pci, serial, name}."""
    driver_version: str = ""
    detail: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeMachine:
    """A machine that reported for a node, serving it or not, as its newest inventory says."""

    instance_id: str
    boot_id: str
    reported_at: datetime
    inventory: Inventory


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """Outcome of an order. An agent acts at most once for an order id and remembers it before it acts."""

    order_id: str
    ok: bool
    summary: str
    at: datetime
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Data that decisions read (:mod:`holdfast.model.agents.answers`); the summary is for people."""
    bundle: bytes = b""
    """Evidence, a tar.gz; kept apart from the outcome."""


def results_of(detail: Mapping[str, Any]) -> tuple[Result, ...]:
    """The results that the outcome of an order to run checks names (``results``), without their evidence."""
    said = detail.get("results")
    read = (Result.read(each) for each in (said if isinstance(said, list) else ()) if isinstance(each, Mapping))
    return tuple(result for result in read if result is not None)


@dataclass(frozen=True, slots=True)
class Report:
    """One envelope. (node, boot id, outbox id, sequence) names it for good; the same again is acknowledged and dropped."""

    node: str
    instance_id: str
    boot_id: str
    outbox_id: str
    sequence: int
    received_at: datetime
    agent_version: str = ""
    findings: tuple[Finding, ...] = ()
    clears: tuple[Clear, ...] = ()
    statements: tuple[Statement, ...] = ()
    outcomes: tuple[OrderOutcome, ...] = ()
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True)
class AgentView:
    """State of one agent from its heartbeats; kept in memory only."""

    node: str
    instance_id: str
    boot_id: str
    last_heard: datetime
    """When the controller received the last heartbeat or report."""
    first_heard: datetime
    """Time since which this agent (node, instance, boot) has reported without a longer gap."""
    heartbeat_interval_s: float = 10.0
    agent_version: str = ""
    clock_offset_s: float = 0.0
    """Node's wall clock minus the controller's, at receipt."""
    failing: tuple[str, ...] = ()
    """Ids of checks that are not OK at present."""
    all_ok: bool = False
    """Every check that applies has reported OK since the agent started."""
    authorities: tuple[str, ...] | None = None
    """Fingerprints of the certificate authorities that it trusts; empty: those of its system; None: not reported."""
    acting: Lists | None = None
    """Checks that act there; None: not reported."""
    checks_version: str | None = None
    """Version of the policy of checks that it goes by; empty: it has none yet; None: not reported, its release takes no versions."""
    checks_off: tuple[str, ...] | None = None
    """Checks that it has switched off by the site's policy; None: not reported, its release cannot."""
    checks_refused: str = ""
    """Why it refused the newest policy and goes by the one before; empty: it did not."""
    set_aside: int = 0
    """Files and items of its memory that it cannot read and has set aside (docs/upgrade.md)."""
    set_aside_since: datetime | None = None
    """Time of the oldest of them; None: none is, or not reported."""
    gres: Mapping[str, tuple[int, ...]] | None = None
    """``gpu``, ``shard`` or ``mps`` → device minor of the GPU that each GRES index is, proved on the node; None: nothing is proved."""
    gres_problem: str = ""
    """Reason why nothing is proved, for people."""
    fabric_moved_at: datetime | None = None
    """The node's RDMA devices last carried bytes then or up to a minute before; None: nothing is known of it."""

    words_until: datetime | None = None
    """Progress that jobs there reported until then has arrived; None: the agent does not report it."""

    @property
    def heard_until(self) -> datetime:
        """Time until which the progress of jobs there has arrived."""
        return self.last_heard if self.words_until is None else min(self.words_until, self.last_heard)

    def fails(self, check: str) -> bool:
        """Whether a check of this id is not OK at present."""
        return check in self.failing
