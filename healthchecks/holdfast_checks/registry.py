"""What a check is, and the list of all. A new check is one file in ``checks/`` with a ``CHECK`` in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from holdfast_checks.inventory import Inventory
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import NVML_LIBRARY_NOT_FOUND, NvmlFailure, Snapshot


class Need(StrEnum):
    """What a check has to be given."""

    NVML = "nvml"
    """An NVML snapshot (or the failure to get one)."""
    KMSG = "kmsg"
    """Records of the kernel log: the agent judges them as they come."""
    HOST = "host"
    """Only files of this host."""


class Cost(StrEnum):
    """What a check does to the node."""

    PASSIVE = "passive"
    """Reads what is there; a job does not notice."""
    LIGHT = "light"
    """Short work of its own; fit for a prolog."""
    ACTIVE = "active"
    """Needs an idle node."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that a check judges by."""

    name: str
    value: float
    unit: str
    source: str
    """Where the number comes from."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a site says about its nodes."""

    expected_gpus: int | None = None
    """GPUs a node must have; None: those of the first good snapshot."""
    disk_paths: tuple[str, ...] = ("/", "/tmp", "/var")  # noqa: S108 - watched, never written
    disk_degraded_percent: float = 90.0
    disk_failed_percent: float = 95.0
    nvml_hang_misses: int = 3
    slurmd_pid_file: Path | None = None
    """None: look for a slurmd among the processes."""
    slurmd_node: str = ""
    """The node name that this slurmd serves (``slurmd -N``), where several run on one machine."""
    kmsg_path: Path = Path("/dev/kmsg")
    proc: Path = Path("/proc")


@dataclass(frozen=True, slots=True)
class Context:
    """What a check's ``gather`` may look at."""

    settings: Settings = field(default_factory=Settings)
    nvml: Snapshot | NvmlFailure | None = None
    """The newest snapshot or failure; None: nobody asked NVML."""
    inventory: Inventory = field(default_factory=Inventory)


class NotGathered(Exception):
    """A check could not get its facts: its result is UNKNOWN, with this text."""


class NotApplicable(Exception):
    """A check has no subject on this node: its result is SKIPPED, with this text."""


@dataclass(frozen=True, slots=True)
class Check:
    """One named test of one thing on a node."""

    id: str
    title: str
    needs: frozenset[Need]
    interval_s: float
    """How often the agent runs it; 0: on events only."""
    cost: Cost
    severity: Severity
    """The worst that it reports."""
    remedy: Remedy
    """What its worst finding calls for."""
    gather: Callable[[Context], Any]
    """I/O. Raises NotGathered, NotApplicable, OSError."""
    judge: Callable[[Any], tuple[Result, ...]]
    """Pure: what ``gather`` returned in, results out. An OK result (code empty) clears all findings of its component."""
    thresholds: tuple[Threshold, ...] = ()
    hysteresis: tuple[int, int] = (1, 1)
    """(k, n): a finding counts when k of the last n results were bad; kept by the caller. Hard faults: (1, 1)."""
    deadline_s: float = 10.0


@cache
def all_checks() -> dict[str, Check]:
    """Every check by its id."""
    import holdfast_checks.checks as package  # noqa: PLC0415 - the checks import this module

    found = (import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__))
    checks = [module.CHECK for module in found if hasattr(module, "CHECK")]
    by_id = {check.id: check for check in sorted(checks, key=lambda check: check.id)}
    if len(by_id) != len(checks):
        raise ValueError("two checks have the same id")
    return by_id


def snapshot_of(context: Context) -> Snapshot:
    """The snapshot, for checks that judge one. Raises NotGathered, and NotApplicable on a node without GPUs and NVML."""
    if isinstance(context.nvml, Snapshot):
        return context.nvml
    if without_gpus(context):
        raise NotApplicable("this node has neither GPUs nor NVML")
    raise NotGathered(context.nvml.text if context.nvml else "NVML was not asked")


def without_gpus(context: Context) -> bool:
    """NVML is not installed, and nobody expects a GPU here."""
    missing = isinstance(context.nvml, NvmlFailure) and context.nvml.code == NVML_LIBRARY_NOT_FOUND
    return missing and not context.settings.expected_gpus and not context.inventory.gpus
