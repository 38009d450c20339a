"""What a node is to an operator: in service, draining, out, in repair or silent. Pure; standard library only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import cache


class NodeGroup(StrEnum):
    """One group for each node, in the order of the summary line."""

    IN_SERVICE = "in_service"
    """It takes jobs, and nothing is known against it (power saving included: Slurm wakes it)."""
    DRAINING = "draining"
    """It takes no new job and runs the ones that it has."""
    IN_REPAIR = "in_repair"
    """An incident took it out of service, and it runs no job."""
    OUT = "out"
    """Out of service, and no incident of Holdfast's is why: an operator, another tool, Slurm."""
    SILENT = "silent"
    """Slurm has it in service; its agent reports no longer."""
    UNKNOWN = "unknown"
    """Slurm does not show it, or its slurmd has not registered since slurmctld started."""


_OUT = frozenset({"DOWN", "ERROR", "DRAIN", "FAIL", "MAINTENANCE", "REBOOT_ISSUED", "NOT_RESPONDING"})
_DRAIN = frozenset({"DRAIN", "FAIL"})
_NOT_KNOWN = frozenset({"UNKNOWN", "FUTURE"})
_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"})


@cache
def _in_repair() -> frozenset[str]:
    from holdfast.model.incidents.incident import OUT_OF_SERVICE  # noqa: PLC0415 - `holdfast --help` has to be quick, and needs no incident

    return frozenset(state.value for state in OUT_OF_SERVICE)


def group_of(slurm: Collection[str], incidents: Iterable[str], agents: Collection[str], *, busy: bool) -> NodeGroup:
    """Group of a node.

    ``slurm``: its base state and flags; empty: Slurm does not show it. ``incidents``: the states of its open incidents. ``agents``: the
    status of each of its agents. ``busy``: jobs are on it."""
    words = frozenset(slurm)
    if not words or words & _NOT_KNOWN:
        return NodeGroup.UNKNOWN
    if words & _OUT:
        if busy and words & _DRAIN and "DOWN" not in words:
            return NodeGroup.DRAINING
        return NodeGroup.IN_REPAIR if _in_repair().intersection(incidents) else NodeGroup.OUT
    silent = "silent" in agents and "heard" not in agents  # word: as the API says it
    return NodeGroup.SILENT if silent and not words & _ASLEEP else NodeGroup.IN_SERVICE


_WORDS: Mapping[str, str] = {
    NodeGroup.IN_SERVICE: "in service",
    NodeGroup.DRAINING: "draining",
    NodeGroup.IN_REPAIR: "in repair",
    NodeGroup.OUT: "out (not by Holdfast)",
    NodeGroup.SILENT: "silent",
    NodeGroup.UNKNOWN: "unknown to Slurm",
}


def fleet_text(counts: Mapping[str, int]) -> str:
    """``4,096 nodes: 4,090 in service, 3 draining, 2 in repair, 1 silent``. A group that another release counts is shown by its name."""
    total = sum(counts.values())
    order = [*NodeGroup, *sorted(name for name in counts if name not in tuple(NodeGroup))]
    shown = [g for g in order if counts.get(g, 0) or (g is NodeGroup.IN_SERVICE and total)]
    named = [f"{counts.get(g, 0):,} {_WORDS.get(str(g), g)}" for g in shown]
    head = f"{total:,} node{'' if total == 1 else 's'}"
    return f"{head}: {', '.join(named)}" if named else head


_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Key of the natural order: n2 before n10."""
    parts = _DIGITS.split(name)
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts if part)
