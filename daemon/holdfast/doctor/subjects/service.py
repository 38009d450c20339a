"""Rules about Slurm's settings that decide how nodes leave and come back, and what Slurm shows and allows."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, SlurmFacts, names

OLDEST_TRIED = (22, 5)
"""Oldest Slurm that the contract tests run against (docs/versions.md)."""
STATES_SINCE = (23, 2)
"""SuspendExcStates exists since 23.02."""
DEFAULT_SLURMD_TIMEOUT_S = 300
REBOOT_TAKES_S = 900
"""A GPU server's power-on self-test and boot take 10 to 15 minutes."""
NO_TIMEOUT_S = 65534
"""slurm.conf(5), PrologEpilogTimeout: the default, no limit."""


def version(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    if slurm.release < OLDEST_TRIED:
        yield Advice(
            "slurm.version",
            AdviceLevel.WARNING,
            f"Slurm {slurm.version or '(unknown)'}: older than any release that Holdfast is tried on",
            "Its commands may print what Holdfast cannot read.",
            "see docs/versions.md for the releases that are tried",
        )


def return_to_service(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    value = slurm.value("ReturnToService")
    if value == "2":
        yield Advice(
            "slurm.return_to_service",
            AdviceLevel.WARNING,
            "ReturnToService=2: a DOWN node serves again as soon as its slurmd registers, whatever it was DOWN for",
            "A node that Slurm set DOWN takes jobs again before it was validated.",
            "slurm.conf: ReturnToService=1",
        )
    elif value == "0":
        yield Advice(
            "slurm.return_to_service",
            AdviceLevel.HINT,
            "ReturnToService=0: a node that was out of reach for a while stays DOWN until an operator resumes it",
            "Holdfast does not clear a DOWN that is not its own, so a short network fault costs the node.",
            "slurm.conf: ReturnToService=1",
        )


def slurmd_timeout(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    timeout_s = slurm.number("SlurmdTimeout")
    if timeout_s == 0:
        yield Advice(
            "slurm.slurmd_timeout",
            AdviceLevel.WARNING,
            "SlurmdTimeout=0: Slurm never reports that a node does not answer",
            "Slurm's verdict is one of the witnesses of a node's death; the others must then suffice.",
            f"slurm.conf: SlurmdTimeout={DEFAULT_SLURMD_TIMEOUT_S}",
        )
    elif timeout_s is not None and timeout_s > DEFAULT_SLURMD_TIMEOUT_S:
        yield Advice(
            "slurm.slurmd_timeout",
            AdviceLevel.WARNING,
            f"SlurmdTimeout={timeout_s} s: Slurm waits that long before it sets a dead node DOWN",
            "Whenever Holdfast lacks a second witness of a death, the job is stopped for that long.",
            f"slurm.conf: SlurmdTimeout={DEFAULT_SLURMD_TIMEOUT_S}",
        )


def reboot(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    if "RebootProgram" in slurm.config and not slurm.value("RebootProgram"):
        can = facts.provider_can
        other = can.reboot if can is not None else facts.policy.repair.provider != "none"
        yield Advice(
            "slurm.reboot_program",
            AdviceLevel.HINT if other else AdviceLevel.WARNING,
            "no RebootProgram: Slurm cannot reboot a node" + ("" if other else ", and neither can the provider"),
            "The provider reboots it instead, and Slurm takes that for a failure of the node."
            if other
            else "Faults that a reboot repairs go to the next rung: a replacement, or an operator.",
            "slurm.conf: RebootProgram=/sbin/reboot",
        )
        return
    timeout_s = slurm.number("ResumeTimeout")
    if timeout_s is not None and timeout_s < REBOOT_TAKES_S:
        yield Advice(
            "slurm.resume_timeout",
            AdviceLevel.WARNING,
            f"ResumeTimeout={timeout_s} s: a reboot that takes longer sets the node DOWN as unexpectedly rebooted",
            "A GPU server boots for 10 to 15 minutes; its reboot counts as a second fault.",
            "slurm.conf: ResumeTimeout=1200",
        )


def foreign_health_check(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    program = slurm.value("HealthCheckProgram")
    if program and "holdfast" not in program:
        yield Advice(
            "slurm.health_check_program",
            AdviceLevel.HINT,
            f"HealthCheckProgram={program} drains nodes too",
            "Holdfast never clears a drain that is not its own: such a node stays out until that program clears it.",
            "slurm.conf: drop HealthCheckProgram once Holdfast's own checks cover what it tests",
        )


def epilog_without_end(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    scripts = [key for key in ("Prolog", "Epilog") if slurm.value(key)]
    limit_s = slurm.number("PrologEpilogTimeout")
    if scripts and (limit_s is None or limit_s >= NO_TIMEOUT_S):
        yield Advice(
            "slurm.prolog_epilog_timeout",
            AdviceLevel.WARNING,
            f"{' and '.join(scripts)} may run without a time limit (PrologEpilogTimeout is not set)",
            "One that hangs on a lost GPU keeps the job COMPLETING, and the restart waits for it.",
            "slurm.conf: PrologEpilogTimeout=300",
        )


def prolog_flags(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    if "serial" in slurm.options("PrologFlags"):
        yield Advice(
            "slurm.prolog_flags",
            AdviceLevel.WARNING,
            "PrologFlags has Serial: a node runs one Prolog or Epilog at a time",
            "The restart waits for the Epilog of whatever ended on the node before it.",
            "slurm.conf: PrologFlags without Serial",
        )


def power_saving(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    idle_s = slurm.value("SuspendTime").upper()
    if not slurm.value("SuspendProgram") or idle_s.startswith(("INFINITE", "-1")):
        return
    spared = set(slurm.value("SuspendExcStates").upper().split(","))
    if {"RESERVED", "DRAIN"} <= spared:
        return
    by_state = slurm.release >= STATES_SINCE
    spare = names(node.name for node in facts.spares()) or "SPARES"
    fix = "SuspendExcStates=RESERVED,DRAIN,DOWN" if by_state else f"SuspendExcNodes={spare.replace(', ', ',')}"
    kept = slurm.value("SuspendExcNodes")
    if not by_state and kept and ("[" in kept or {node.name for node in facts.spares()} <= _plain(kept)):
        return
    yield Advice(
        "slurm.power_saving",
        AdviceLevel.WARNING,
        "power saving may switch off spares and drained nodes (SuspendProgram is set)",
        "A spare that sleeps costs its boot time; a drained node goes before its evidence was collected.",
        f"slurm.conf: {fix}",
    )


def _plain(hostlist: str) -> set[str]:
    """Names of a list without ranges; ``n1:2`` counts as ``n1``."""
    return {name.partition(":")[0] for name in hostlist.split(",")}


def node_features(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    plugins = slurm.value("NodeFeaturesPlugins")
    if plugins:
        yield Advice(
            "slurm.node_features",
            AdviceLevel.HINT,
            f"NodeFeaturesPlugins={plugins}: a job's constraint may reboot nodes",
            "Such a reboot silences the agent for minutes; a spare that must reboot first is not a warm one.",
            "give spares the features that the jobs ask for: scontrol update NodeName=SPARE ActiveFeatures=…",
        )


def single_controller(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    hosts = [key for key in slurm.config if key.startswith("SlurmctldHost[")]
    if len(hosts) == 1:
        yield Advice(
            "slurm.single_controller",
            AdviceLevel.HINT,
            "there is one slurmctld and no backup",
            "While its host is away nothing can be drained or requeued; Holdfast waits and continues afterwards.",
            "slurm.conf: a second SlurmctldHost= line, with StateSaveLocation on storage that both share",
        )


RULES = (
    version,
    return_to_service,
    slurmd_timeout,
    reboot,
    foreign_health_check,
    epilog_without_end,
    prolog_flags,
    power_saving,
    node_features,
    single_controller,
)
