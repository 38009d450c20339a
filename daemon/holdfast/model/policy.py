"""The site's policy as the decisions see it. Standard library only; ``config/`` fills it from TOML.

Defaults are the shipped ones; sources stand beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Mode(StrEnum):
    OBSERVE = "observe"
    """Decide and record, do nothing outside."""
    ACT = "act"


@dataclass(frozen=True, slots=True)
class BrakePolicy:
    """Design, section 6. A share is of all Slurm nodes; the limit is the greater of the two."""

    drains_10min: int = 3
    drains_10min_share: float = 0.01
    drains_60min: int = 8
    drains_60min_share: float = 0.02
    stopped_jobs_60min: int = 8
    """Running jobs stopped on a check's word."""
    stopped_gpu_share_60min: float = 0.5
    """Share of the cluster's GPUs whose jobs may be stopped on a check's word in an hour."""


@dataclass(frozen=True, slots=True)
class DeathPolicy:
    silent_after_heartbeats: float = 2.5
    """A node is silent (unknown, not dead) after this many of its own heartbeat intervals."""
    probe_timeout_s: float = 2.0
    peers: int = 2
    """Peer agents asked to reach a silent node."""
    silent_share_suspects_controller: float = 0.3
    """More agents silent at once than this share (and than 2): the controller is the suspect and freezes."""
    reprobe_s: float = 20.0
    """Pause between two rounds of questions about a node that stays silent."""
    leftover_grace_s: float = 1.5
    """A survivor's slurmstepd of a COMPLETING job is left over after this long without a task (facts: measured)."""
    end_leftover_steps: bool = False
    """Let survivors' agents end slurmstepd left over of a COMPLETING job after a DOWN (facts: saves about 60 s)."""


@dataclass(frozen=True, slots=True)
class JobPolicy:
    consent_partitions: frozenset[str] = frozenset()
    """Partitions whose jobs may be stopped ahead of their own failure."""
    consent_qos: frozenset[str] = frozenset()
    hold_duration_s: int = 600
    """How long a stopped job's nodes are kept for it."""
    restarts_without_progress: int = 3
    """Failures without a newer checkpoint before the job is held (NVRx restart agent)."""
    suspect_nodes: int = 2
    suspect_window_s: int = 24 * 3600
    """Faults of one class on this many different nodes under one job within the window make the job the suspect."""
    stuck_completing_s: float = 15.0
    """A requeued job still held by its faulty node is ended there by the agent after this long; freed by a DOWN after twice as long."""
    resume_wait_s: int = 600
    """How long the job's own word is awaited after RUNNING."""
    attribution_before_s: int = 600
    attribution_after_s: int = 300
    """A job's end is attributed to a fault from 10 min before to 5 min after it (Meta RSC)."""


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    provider: str = "none"
    evidence_s: float = 10.0
    """Bound on the evidence bundle before the hardware is let go."""
    launch_timeout_s: float = 1800.0
    """From launch to the new agent's first word (HyperPod: 20–30 min with lifecycle scripts)."""
    validate_timeout_s: float = 600.0
    reset_timeout_s: float = 180.0
    """From the order to reset a GPU to its outcome."""
    reboot_timeout_s: float = 1200.0
    """From the reboot to the agent's first word in the new boot (EC2 1–3 min; servers with many DIMMs and NICs 10–15 min)."""
    stop_start_timeout_s: float = 1800.0
    watch_timeout_s: float = 5400.0
    """How long a provider that repairs by itself is watched before a human is told (AWS's own runbook: a chain of attempts
    over 90 min is escalated)."""
    quiet_s: float = 60.0
    """Minutes without a finding before a validated node serves."""
    attempts: int = 3
    backoff_s: float = 30.0
    """First pause after a failed step; doubles up to ``backoff_max_s``."""
    backoff_max_s: float = 900.0
    terminations_per_hour: int = 4
    terminations_per_day: int = 12
    replacements_per_group: int = 5
    """Machines replaced in one group (a node's first partition) within ``group_window_s`` (AWS's own runbook: 5 in 7 days)."""
    group_share: float = 0.05
    """The same as a share of the group's nodes; the greater of the two holds."""
    group_window_s: int = 7 * 24 * 3600
    climb_window_s: int = 24 * 3600
    """A second hardware fault of a node within this begins one rung above the one that was tried before."""
    fresh_s: float = 1800.0
    """A node that came back less than this ago has not proved its repair: a fault then counts as its failure, and the
    provider's status checks of a machine this young are not acted upon (HyperPod: "resolved" is 30 min clean)."""
    third_fault_window_s: int = 7 * 24 * 3600
    """A third hardware fault of a node in this window calls a human (Aurora, NVSentinel)."""
    return_as_spare: bool = True


@dataclass(frozen=True, slots=True)
class Policy:
    mode: Mode = Mode.OBSERVE
    spare_reservation: str = "holdfast-spares"
    join_window_s: float = 300.0
    """Findings of one node this close join one incident even when their component differs only in detail."""
    watch_s: float = 3600.0
    """How long an event that calls for nothing stays open as a watched incident."""
    view_max_age_s: float = 15.0
    """Older than this, Slurm counts as not answering and decisions that depend on it freeze."""
    action_attempts: int = 5
    """Failed attempts of one step before a human is told; it is tried on."""
    action_backoff_max_s: float = 15.0
    """Longest pause between two attempts of a step."""
    action_backoff_s: float = 1.0
    brake: BrakePolicy = field(default_factory=BrakePolicy)
    death: DeathPolicy = field(default_factory=DeathPolicy)
    job: JobPolicy = field(default_factory=JobPolicy)
    repair: RepairPolicy = field(default_factory=RepairPolicy)
