"""The site's policy as the decisions see it. Standard library only; ``config/`` fills it from TOML.

Defaults are the shipped ones; sources are named next to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.model.operators.proposals import ProposePolicy
from holdfast.model.policies.drain_rules import DrainRule
from holdfast.model.policies.hangs import HangPolicy, StragglerPolicy
from holdfast.model.policies.node_sets import RUNGS, NodeSet
from holdfast.model.policies.planned import PlannedPolicy
from holdfast.model.policies.resizing import ElasticPolicy
from holdfast.model.policies.suspects import SuspectPolicy
from holdfast_checks.acting import CheckPolicy
from holdfast_checks.settings.option import TomlTable, option, share

REFILLS = ("returned", "idle")


class Mode(StrEnum):
    OBSERVE = "observe"
    """Decide and record, do nothing outside."""
    PROPOSE = "propose"
    """Steps of the kinds in ``[propose] steps`` wait until an operator accepts them; the others are done as in act."""
    ACT = "act"

    def least(self, other: Mode) -> Mode:
        """The more restrictive of the two."""
        return min(self, other, key=_MODES.index)


_MODES = (Mode.OBSERVE, Mode.PROPOSE, Mode.ACT)
"""The most restrictive first."""


_MODE = TomlTable("mode", "What Holdfast may do. Start with observe.")


@dataclass(frozen=True, slots=True)
class BrakePolicy:
    """Design, section 6. A share is of the nodes that have an agent and are not asleep; the limit is the greater of the two."""

    drains_10min: int = option(
        3, "New automatic drains in 10 minutes before they stop (the greater of this and the share)."
    )
    drains_10min_share: float = share(
        0.01, "The same as a share of the fleet (nodes with an agent that are not asleep)."
    )
    drains_60min: int = option(
        8, "New automatic drains in 60 minutes before they stop (the greater of this and the share)."
    )
    drains_60min_share: float = share(
        0.02, "The same as a share of the fleet (nodes with an agent that are not asleep)."
    )
    stopped_jobs_60min: int = option(
        8, "Nodes whose running jobs may be stopped because of findings; all jobs of one node count once."
    )
    stopped_gpu_share_60min: float = option(
        0.5, "Share of the cluster's GPUs whose jobs may be stopped because of findings in an hour."
    )
    hang_stops_60min: int = option(
        8,
        "Running jobs stopped for what they report of themselves (a hang, a slow group). One more waits alone; no "
        "brake trips.",
    )
    hang_stops_per_user_60min: int = option(3, "The same of one user, so that his jobs do not use up everyone's.")


@dataclass(frozen=True, slots=True)
class DeathPolicy:
    silent_after_heartbeats: float = option(
        2.5,
        "A node is silent (unknown, not dead) after this many of its heartbeat intervals.",
        low=1,
        why="an agent that reports on time would count as silent",
    )
    probe_timeout_s: float = option(
        2.0,
        "How long a peer's attempt to reach a silent node may take.",
        low=0.2,
        why="no peer could reach a living node in time",
    )
    peers: int = option(
        2,
        "Peers of its failure domain asked to reach a silent node; two that agree make it dead where nothing shows "
        "its power off.",
        low=2,
        why="two peers must agree that a node is dead",
    )
    domains: dict[str, str] = option(
        {},
        "Hostlist of nodes that share a management switch or a PDU → name of that failure domain. Nodes that are not "
        "named: their subnet.",
    )
    domain_prefix: int = option(
        24,
        "Length of the subnet that is a failure domain where none is named (IPv4; with IPv6 it is 64).",
        low=1,
        high=32,
    )
    deaths_10min: int = option(
        3,
        "More nodes silent within 10 minutes of each other than this are one cause: nothing is done to them until "
        "their power is off.",
    )
    deaths_10min_share: float = share(
        0.01,
        "The same as a share of the fleet (nodes with an agent that are not asleep); the greater of the two holds.",
    )
    deaths_domain_share: float = share(0.5, "The same for a failure domain: more than this share of its nodes.")
    reboot_grace_s: float = option(
        900.0,
        "A silent node whose power is not seen off is rebooted or replaced this long after its last sign of life, "
        "never earlier.",
        low=10,
        why="a machine would be ended at its first missing heartbeat",
    )
    silent_share_suspects_controller: float = option(
        0.3, "More agents silent at once than this share (and than 2): the controller is the suspect and freezes."
    )
    reprobe_s: float = option(
        20.0,
        "Pause between two rounds of questions about a node that stays silent.",
        low=1,
        why="peers would be asked without a pause",
    )
    leftover_grace_s: float = option(
        1.5,
        "A survivor's slurmstepd of a COMPLETING job is left over after this long without a task (facts: measured).",
    )
    end_leftover_steps: bool = option(
        False,
        "Let survivors' agents end slurmstepd left over of a COMPLETING job after a DOWN (facts: saves about 60 s).",
    )


@dataclass(frozen=True, slots=True)
class JobPolicy:
    consent_partitions: frozenset[str] = option(
        frozenset(), "Partitions whose running jobs Holdfast may stop before they fail."
    )
    consent_qos: frozenset[str] = option(frozenset(), "QOS whose running jobs Holdfast may stop before they fail.")
    hold_duration_s: int = option(600, "How long a stopped job's nodes are kept for it.")
    holds_per_user_60min: int = option(
        20,
        "Jobs of one user whose nodes are kept, and that get a spare, within an hour; further ones are restarted "
        "without, and their owner is notified. More than a bad day of a large user needs; 0: no job gets a hold.",
    )
    restarts_without_progress: int = option(
        3,
        "Failures without a newer checkpoint before the job is held (NVRx restart agent). A failure after which "
        "nothing is known of the job's checkpoints does not count.",
    )
    survey_s: float = option(
        600.0, "How often the agent of a job's first node reads the directory that the job registered; 0: never."
    )
    survey_wait_s: float = option(
        5.0,
        "How long a job that seems to make no progress waits for such a read before it is restarted or held; no other "
        "job waits.",
    )
    quick_deaths: int = option(
        5, "A job of whose checkpoints nothing is known is held after this many runs in a row that ended early."
    )
    quick_death_s: int = option(600, "A run that ended within this of its start ended early.")
    restart_in_place: bool = option(
        True,
        "A job that opted in and fails of something that the node outlives (Xid 94 and the like) is started again, on "
        "the same nodes.",
    )
    suspect_nodes: int = option(
        2,
        "Nodes that fail under one job, by faults of one class that programs can cause, before the job is the suspect.",
    )
    # Faults of one class, which a program can cause, on this many different nodes under one job within the window
    # make the job the suspect, and as many more as :attr:`faults_per_node_day` explains.
    suspect_window_s: int = option(24 * 3600, "Window of that count.")
    suspect_nodes_hardware: int = option(
        4, "The same for faults that a program hardly ever causes, such as a GPU that falls off the bus."
    )
    faults_per_node_day: float = option(
        0.0065,
        "Faults that a node of eight GPUs meets in a day, whatever runs on it: 6.5 in 1,000 node-days (Meta RSC-1, "
        "arXiv 2410.21680, the higher of its two clusters).",
    )
    stuck_completing_s: float = option(
        15.0,
        "A requeued job still held by its faulty node is ended there by the agent after this long; freed by a DOWN "
        "after twice as long.",
    )
    resume_wait_s: int = option(600, "How long to wait for the job's own report after RUNNING.")
    attribution_before_s: int = option(
        600, "A job's end is attributed to a fault that came up to this long before it (Meta RSC)."
    )
    # A job's end may have to do with a fault from 10 min before to 5 min after it (Meta RSC): its nodes are not
    # suspected without ground then. It is recovered only for a fault from before its end.
    attribution_after_s: int = option(
        300, "A fault found up to this long after a job's end spares its nodes the probes; it restarts no job."
    )
    read_output: bool = option(
        True,
        "Whether agents read the last 64 KiB of what a failed job wrote, as its user, so that it is known why it died.",
    )
    owner_file: bool = option(
        False,
        "Whether agents add a few lines to holdfast-JOB.txt alongside the output of a job that runs again, as its user: why it was "
        "stopped, and from where it continues.",
    )
    owner_mail: bool = option(
        False,
        "Whether the owner of a job that runs again, or that is held, gets a mail about it, by [notify.owners].",
    )


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    provider: str = "none"
    evidence_s: float = option(10.0, "Bound on collecting the evidence bundle before the hardware is released.")
    launch_timeout_s: float = option(
        1800.0, "From launch to the new agent's first report (HyperPod: 20–30 min with lifecycle scripts)."
    )
    validate_timeout_s: float = option(600.0, "Time for a machine to prove itself before the attempt counts as failed.")
    rungs: tuple[str, ...] = option(
        RUNGS,
        "Rungs of the ladder that may be used; the next higher one that is there takes the place of one that is not.",
        one_of=RUNGS,
    )
    report_faults: bool = option(
        True, "Report a confirmed hardware fault to the provider, where it accepts reports (EC2: ReportInstanceStatus)."
    )
    reset_timeout_s: float = option(180.0, "From the order to reset a GPU to its outcome.")
    reboot_timeout_s: float = option(
        1200.0,
        "From the reboot to the agent's first report in the new boot (EC2 1–3 min; servers with many DIMMs and NICs "
        "10–15 min).",
    )
    stop_start_timeout_s: float = option(
        1800.0, "From the order to stop and start a machine to its agent's first report."
    )
    watch_timeout_s: float = option(
        5400.0,
        "How long a provider that repairs automatically is watched before an operator is notified (AWS's own runbook: "
        "a chain of attempts over 90 min is escalated).",
    )
    deep_checks: tuple[str, ...] = option(
        ("dcgm.diag1", "active.memory", "active.burn"),
        "Checks that a repaired or new machine must pass in addition to all that run periodically; what does not "
        "apply to it is skipped.",
    )
    pair_probe: bool = option(
        True,
        "Where more than one node is validated at a time, probe the network between them and good nodes as well "
        "([suspects]).",
    )
    quiet_s: float = option(60.0, "Time without a finding before a validated node serves.")
    attempts: int = option(3, "Attempts of the ladder before an operator is notified.")
    backoff_s: float = option(
        30.0, "First pause after a failed step of a repair; after a failed launch it doubles up to backoff_max_s."
    )
    backoff_max_s: float = option(900.0, "Longest pause between two attempts to launch a machine.")
    terminations_per_hour: int = option(
        4, "Machines ended (terminated, exchanged in place) in an hour at most, or the share below."
    )
    terminations_per_day: int = option(12, "The same in 24 hours.")
    cycles_per_hour: int = option(
        4, "Machines rebooted, or stopped and started, in an hour at most, or the share below."
    )
    cycles_per_day: int = option(12, "The same in 24 hours.")
    launches_per_hour: int = option(4, "Machines launched in an hour at most, or the share below.")
    launches_per_day: int = option(12, "The same in 24 hours.")
    budget_hour_share: float = share(
        0.005, "The same numbers for an hour as a share of the fleet; the greater of the two holds."
    )
    # A fleet of 4,096 nodes has about 17 faults a day (facts: fault rates).
    budget_day_share: float = share(0.02, "The same for 24 hours.")
    budget_cluster_share: float = share(0.25, "Most different nodes in 24 hours, as a share of the fleet; always one.")
    replacements_per_group: int = option(
        5,
        "Machines replaced in one group (a node's first partition) within group_window_s (AWS's own runbook: 5 in 7 "
        "days).",
    )
    group_share: float = share(0.05, "The same as a share of the group's nodes; the greater of the two holds.")
    group_window_s: int = option(7 * 24 * 3600, "Window of that count and share.")
    climb_window_s: int = option(
        24 * 3600, "A second hardware fault of a node within this begins one rung above the one that was tried before."
    )
    fresh_s: float = option(
        1800.0,
        "A node that came back less than this ago has not proved its repair: a fault then counts as its failure, and "
        "the provider's "
        'status checks of a machine this young are not acted upon (HyperPod: "resolved" is 30 min clean).',
    )
    third_fault_window_s: int = option(
        7 * 24 * 3600, "A third hardware fault of a node in this window calls an operator (Aurora, NVSentinel)."
    )
    return_as_spare: bool = option(True, "A repaired node becomes a spare when one was used up for it.")


@dataclass(frozen=True, slots=True)
class SparePolicy:
    reservation: str = option("holdfast-spares", "Slurm reservation that keeps the spares; Holdfast owns it.")
    wanted: int | str = option(
        "",
        "How many spares are wanted: a number, or p99 (by the measured rate of faults and time of repair). Empty: the "
        "pool gets back what was taken from it, and no more.",
    )
    at_least: int = option(1, "Fewest that the rule p99 asks for.")
    at_most_share: float = share(
        0.15,
        "Most that the rule p99 asks for, as a share of the nodes with GPUs (OPT-175B kept 10 to 15 %, others 5 to 10 "
        "%).",
    )
    rate_window_s: int = option(90 * 24 * 3600, "How far back faults and repairs are counted for the rule p99.")
    refill: str = option(
        "returned",
        "Where new spares come from while fewer than wanted are there: returned (repaired nodes), or idle (also idle, "
        "healthy nodes that no pending job of their partition could use).",
        one_of=REFILLS,
    )
    short_s: int = option(1800, "An operator is notified once when fewer spares than wanted exist for this long.")
    check_every_s: int = option(3600, "Pause between two light checks of a spare; 0: none.")
    deep_checks: tuple[str, ...] = option(
        ("dcgm.diag2", "active.burn", "active.memory", "active.copy"),
        "What a deep check runs; what does not apply to a node is passed over.",
    )
    deep_from: str = option(
        "02:00", "Start of the nightly window for deep checks of the spares (active checks), HH:MM."
    )
    deep_until: str = option("05:00", "End of that window; the same as its start: no deep checks.")
    zone: str = option("UTC", "Time zone of that window, such as Europe/Berlin.")
    test_share: float = share(
        0.25, "Share of the pool under test at the same time at most (always one, so that each has its turn)."
    )


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """When a node is a lemon. A rule of "2 in 7 days, out for 28" avoided 6 to 19 % of the faults of three LANL systems for 0.5 to 1.4 %
    of their node-days; "3 in 28 days" 4 to 13 % for 0.25 to 0.9 %. Excluded for good, nodes cost far more: hence the end."""

    short_window_s: int = option(7 * 24 * 3600, "The short window in which faults of a node are counted.")
    short_faults: int = option(2, "Faults within the short window that make it a lemon.")
    window_s: int = option(28 * 24 * 3600, "The long window (Meta's lemon signals look back 28 days).")
    faults: int = option(3, "Faults within the long window that make it a lemon.")
    lemon_s: int = option(28 * 24 * 3600, "It stays one for this long after the fault that made it one.")
    excluding_users: int = option(
        3,
        "This many users who exclude the node raise its score by one; alone that makes no lemon (Meta: no strong "
        "correlation with faults).",
    )
    lemon_file: str = option(
        "", "File with the names of the lemons, one a line, for job_submit.lua; empty: none is written."
    )
    drain_rules: tuple[DrainRule, ...] = ()
    """What drains of others are called, and whether they count for the score (``[[drain_rules]]``)."""


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """When a node is in an operator's hands, so that nothing is done about it (docs/maintenance.md)."""

    operators: tuple[str, ...] = option(
        ("root", "slurm"),
        "Users of Slurm who are operators: a reservation that only these may use keeps its nodes for an operator's "
        "work. A reservation with the flag MAINT does so for any user.",
    )
    grace_s: float = option(
        900.0,
        "After the end of a maintenance window or a reboot, a node that does not report yet counts as booting for "
        "this long.",
    )


@dataclass(frozen=True, slots=True)
class Policy:
    mode: Mode = option(
        Mode.OBSERVE,
        "observe decides and records, and does nothing outside; propose asks an operator before the steps in [propose] steps; "
        "act does it. No [[nodes]] table allows more than this.",
        one_of=Mode,
        table=_MODE,
    )
    other_nodes: str = option(
        "",
        "Mode of the nodes that no [[nodes]] table matches; empty: as mode. Never more than mode.",
        one_of=("", *Mode),
        table=_MODE,
    )
    prolog: Mode = option(
        Mode.OBSERVE,
        "observe: prolog.sh and epilog.sh always succeed. act: they fail, upon which Slurm drains the node and requeues the job, on a node "
        "that the controller has decided to drain.",
        one_of=(Mode.OBSERVE, Mode.ACT),
        table=_MODE,
    )
    propose: ProposePolicy = option(ProposePolicy(), "What an operator is asked in mode propose.")
    nodes: tuple[NodeSet, ...] = ()
    """Sets of nodes for which less may be done: the ``[[nodes]]`` tables."""
    checks: CheckPolicy = field(default_factory=CheckPolicy)
    """Which checks act and by which thresholds, on all nodes: ``[checks]``."""
    join_window_s: float = option(
        300.0, "Findings of one node this close join one incident even when their component differs only in detail."
    )
    watch_s: float = option(3600.0, "How long an event that calls for nothing stays open as a watched incident.")
    view_max_age_s: float = option(
        15.0,
        "Older than this, Slurm counts as not answering and decisions that depend on it freeze.",
        low=3,
        why="what was read of Slurm would be too old before it was used",
    )
    action_attempts: int = option(5, "Failed attempts of one step before an operator is notified; it is still retried.")
    action_backoff_max_s: float = option(15.0, "Longest pause between two attempts of a step.")
    action_backoff_s: float = option(1.0, "First pause after a failed step; doubles.")
    brake: BrakePolicy = option(
        BrakePolicy(),
        "Limits on what may be done automatically within a time; beyond them an operator is notified.",
        name="brakes",
    )
    death: DeathPolicy = option(DeathPolicy(), "When a silent node is dead.")
    job: JobPolicy = option(JobPolicy(), "When jobs are stopped and how they are brought back.", name="jobs")
    repair: RepairPolicy = option(RepairPolicy(), "The ladder of repair.")
    spares: SparePolicy = option(SparePolicy(), "Validated nodes kept ready.")
    history: HistoryPolicy = option(HistoryPolicy(), "When a node that failed again and again counts as a lemon.")
    planned: PlannedPolicy = option(
        PlannedPolicy(),
        "Stops that the provider announces: spot interruption, maintenance, the end of a capacity block.",
    )
    suspects: SuspectPolicy = option(
        SuspectPolicy(), "Nodes of a job that failed or hung without a finding: they are probed in pairs."
    )
    hangs: HangPolicy = option(HangPolicy(), "When a job that reports its steps hangs, and what is done about it.")
    stragglers: StragglerPolicy = option(StragglerPolicy(), "When a part of a job is slower than the others.")
    elastic: ElasticPolicy = option(ElasticPolicy(), "When jobs made of replica groups grow and shrink.")
    maintenance: MaintenancePolicy = option(
        MaintenancePolicy(), "When a node is in maintenance, so that Holdfast does not act on it."
    )

    @property
    def spare_reservation(self) -> str:
        return self.spares.reservation
