"""Faults of one node's hardware and host, as data: one module per domain, each with a ``FAULTS`` table.

A fault changes the files that represent the machine (NVML state, sysfs, procfs files, kernel log, the answers of commands), not how
the agent judges them. Faults of processes and of the network between nodes are methods of
:class:`~holdfast.practice.faults.inject.Injector`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from holdfast.practice.cluster.machine import PracticeMachine

Apply = Callable[[PracticeMachine, str, int], None]
"""Injects a fault; called with the machine, the value (may be empty) and the GPU's device minor. Raises Rejected for an invalid value."""


@dataclass(frozen=True, slots=True)
class PracticeFault:
    """One fault class that ``holdfast practice inject NODE NAME [VALUE] [--gpu N]`` can inject."""

    name: str
    """In lower case with underscores."""
    doc: str
    """What happens, in one line for the command's help."""
    apply: Apply
    value: str = ""
    """Meaning of the value; empty: it takes none."""
    heal: Callable[[PracticeMachine], None] | None = None
    """Undo it; None: only a reset, a reboot or other hardware does."""


@cache
def all_faults() -> dict[str, PracticeFault]:
    """Every fault by its name."""
    found = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    faults = [fault for module in found for fault in getattr(module, "FAULTS", ())]
    by_name = {fault.name: fault for fault in sorted(faults, key=lambda fault: fault.name)}
    if len(by_name) != len(faults):
        raise ValueError("two faults have the same name")
    return by_name
