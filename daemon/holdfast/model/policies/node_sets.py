"""Policy per set of nodes: what Holdfast may do to these nodes. Standard library only.

The most restrictive table that matches a node wins, and ``[mode] mode`` is the most that is done to any node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from holdfast.model.operators.proposals import StepKind
from holdfast.model.slurm.cluster import Node
from holdfast.model.slurm.hostlist import expand
from holdfast_checks.settings.option import option

SET_BRAKES = ("drains_10min", "drains_60min", "stopped_jobs_60min")
"""Limits of ``[brakes]`` that a node set may set for its nodes."""
SET_BUDGETS = (
    "terminations_per_hour",
    "terminations_per_day",
    "cycles_per_hour",
    "cycles_per_day",
    "launches_per_hour",
    "launches_per_day",
)
"""Limits of ``[repair]`` that a node set may set for its nodes."""
RUNGS = ("reset_gpu", "reboot", "stop_start", "replace")
"""Rungs of the ladder that a site may leave out."""


@dataclass(frozen=True, slots=True)
class NodeSet:
    """One ``[[nodes]]`` table. A node belongs to it if any of ``partitions``, ``features`` and ``nodes`` matches."""

    name: str = option("", "Name of the set, as `holdfast nodes NAME` and messages show it; each set has its own.")
    partitions: tuple[str, ...] = option((), "Nodes of any of these partitions belong to the set.")
    features: tuple[str, ...] = option((), "Nodes with any of these active features belong to it.")
    nodes: str = option("", "These nodes belong to it: a host list such as n[1-8,12].")
    mode: str = option(
        "",
        "observe, propose or act; empty: as [mode] says. Never more than [mode] mode.",
        one_of=("", "observe", "propose", "act"),
    )
    steps: tuple[str, ...] = option(
        (),
        "In mode propose, the kinds of steps that wait for an accept; empty: those of [propose] steps.",
        one_of=StepKind,
    )
    rungs: tuple[str, ...] = option(
        RUNGS,
        "Rungs of the repair ladder that may be used here; never more than [repair] rungs.",
        one_of=RUNGS,
    )
    never_touch: bool = option(
        False, "Nothing is ever done to these nodes or to jobs that run on them: faults are only recorded."
    )

    observe_only: tuple[str, ...] = option(
        (), "Checks that only observe here: they report warnings, in addition to those of [checks] observe_only."
    )
    act_on: tuple[str, ...] = option(
        (), "Of the checks in [checks] act_on only these act here; empty: all of them. A set adds none."
    )
    checks_off: tuple[str, ...] = option(
        (), "Checks that are not run here, in addition to those of [checks] checks_off."
    )
    thresholds: dict[str, dict[str, float]] = option(
        {},
        "Thresholds of checks here, such as { gpu = { temperature_margin_c = 2 } }; of several values the one that makes the check less "
        "active counts.",
    )

    brakes: dict[str, int] = option(
        {},
        "Brakes of these nodes alone, in addition to [brakes]: drains_10min, drains_60min, stopped_jobs_60min. What is not named has no "
        "limit here.",
    )
    budgets: dict[str, int] = option(
        {},
        "Budgets of these nodes alone, in addition to [repair]: terminations_per_hour, terminations_per_day, and likewise cycles and "
        "launches. What is not named has no limit here.",
    )

    def has(self, name: str, node: Node | None) -> bool:
        """Whether the node belongs to the set. ``node``: as Slurm shows it; None: it is not known, so each set that goes by partition or
        feature counts (what is not known is never a reason to do more)."""
        if self.has_by_name(name):
            return True
        if node is None:
            return bool(self.partitions or self.features)
        return not frozenset(self.partitions).isdisjoint(node.partitions) or not node.features.isdisjoint(self.features)

    def has_by_name(self, name: str) -> bool:
        """Whether ``nodes`` names it, whatever Slurm shows of it."""
        return name in _names(self.nodes)


@lru_cache(256)
def _names(hosts: str) -> frozenset[str]:
    return frozenset(expand(hosts)) if hosts else frozenset()
