"""The registry of checks. A new check is a file in ``checks/`` with a ``CHECK``, or a line in one with ``CHECKS``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from holdfast_checks.acting import ALL
from holdfast_checks.catalog.instance_types import lookup
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.settings import CheckSettings
from holdfast_checks.snapshot import NVML_LIBRARY_NOT_FOUND, NvmlFailure, Snapshot


class Need(StrEnum):
    """What a check needs."""

    NVML = "nvml"
    """An NVML snapshot (or the failure to get one)."""
    KMSG = "kmsg"
    """Records of the kernel log: the agent judges them as they come."""
    HOST = "host"
    """Only files of this host."""
    NETWORK = "network"
    """Network devices in sysfs."""
    COMMAND = "command"
    """A command of this host (``systemctl``, ``fi_info``, an operator's own)."""
    DCGM = "dcgm"
    """NVIDIA's DCGM: ``dcgmi`` and its hostengine."""


class Cost(StrEnum):
    """What a check does to the node."""

    PASSIVE = "passive"
    """Reads what is there; a job does not notice."""
    LIGHT = "light"
    """Short, self-contained work; fit for a prolog."""
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
class Sample:
    """What one run of a check gathered, and when."""

    facts: Any
    monotonic_s: float


@dataclass(frozen=True, slots=True)
class SampleChange:
    """What a check that compares is given to judge."""

    before: Sample | None
    """Of the run before this one in the same boot; None: this is the first one, the baseline."""
    now: Sample

    @property
    def seconds(self) -> float:
        """Between the two; 0 for the first one."""
        return 0.0 if self.before is None else self.now.monotonic_s - self.before.monotonic_s


@dataclass(frozen=True, slots=True)
class Context:
    """What a check's ``gather`` may read."""

    settings: CheckSettings = field(default_factory=CheckSettings)
    nvml: Snapshot | NvmlFailure | None = None
    """The newest snapshot or failure; None: NVML was not asked."""
    inventory: GpuInventory = field(default_factory=GpuInventory)
    slurm_gpus: frozenset[int] | None = None
    """Device minors of the GPUs that the running slurmd gives to jobs; None: nothing proves it, or it was not asked."""
    before: Sample | None = None
    """Of a check that compares: what its run before this one gathered in the same boot, for histories that grow with each run."""


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
    compares: bool = False
    """``judge`` is given a :class:`SampleChange` instead of the facts alone: for counters that only ever grow."""
    observe: bool = True
    """New: its findings are reported as warnings, with what they would have called for, until the site lists it under
    ``act_on``. False: proven, it acts unless the site lists it under ``observe_only``."""
    place: Callable[[CheckSettings], str] | None = None
    """Where it looks, by the settings, if it takes for a fault that something is not there. A wrong place looks the same as a broken
    node, so its findings are only recorded until this node has once shown an OK of the same component at the same place
    (``seen_right.py``). None: it judges no absence."""

    def acts(self, act_on: Collection[str], observe_only: Collection[str]) -> bool:
        """Whether its findings count in full on a site with these lists of ids; ``*`` in ``act_on``: all."""
        if self.id in observe_only:
            return False
        return not self.observe or ALL in act_on or self.id in act_on


def snapshot_of(context: Context) -> Snapshot:
    """The snapshot, for checks that judge one. Raises NotGathered, and NotApplicable on a node without GPUs and NVML."""
    if isinstance(context.nvml, Snapshot):
        return context.nvml
    if without_gpus(context):
        raise NotApplicable("this node has neither GPUs nor NVML")
    raise NotGathered(context.nvml.text if context.nvml else "NVML was not asked")


def without_gpus(context: Context) -> bool:
    """NVML is not installed, and no GPU is expected here."""
    missing = isinstance(context.nvml, NvmlFailure) and context.nvml.code == NVML_LIBRARY_NOT_FOUND
    return missing and not expected_gpus(context.settings) and not context.inventory.gpus


def expected_gpus(settings: CheckSettings) -> int | None:
    """How many GPUs the site says that the node has, else its instance type; None: neither is known."""
    if settings.expected_gpus:
        return settings.expected_gpus
    known = lookup(settings.instance_type)
    return known.gpus if known is not None else None
