"""Policy per set of nodes: what Holdfast may do to these nodes. Standard library only.

The most restrictive table that matches a node wins, and ``[mode] mode`` is the most that is done to any node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from holdfast.model.operators.proposals import StepKind
from holdfast.model.slurm.cluster import Node
from holdfast.model.slurm.hostlist import expand
from holdfast_checks.settings.option import option

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
    thresholds: dict[str, dict[str, float]] = option(
        {},
        "Thresholds of checks here, such as { gpu = { temperature_margin_c = 2 } }; of several values the one that makes the check less "
        "active counts.",
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
