"""A rule: one shape of kernel line and its meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from holdfast_checks import pci
from holdfast_checks.kernel.devices import Devices
from holdfast_checks.result import NODE_COMPONENT, Remedy, Result, Scalar, Severity
from holdfast_checks.text import one_line

PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
"""A PCI address as the kernel's ``dev_name`` prints it."""
_LONGEST_NUMBER = 15


@dataclass(frozen=True, slots=True)
class LineMeaning:
    """The meaning of a line. Texts may name the pattern's groups in braces."""

    code: str
    severity: Severity
    remedy: Remedy
    summary: str
    component: str = NODE_COMPONENT
    evidence: tuple[tuple[str, Scalar], ...] = ()


Weigh = Callable[[Mapping[str, str]], LineMeaning | None]
"""Maps the pattern's groups to the meaning of the line; None: no fault."""


@dataclass(frozen=True, slots=True)
class KernelRule:
    """Anchored: ``pattern`` must fit from the first character of the record on.

    A kernel line may begin with the name of a process (``NAME[PID]: segfault at … in FILE``), which has at most 15 characters, and continue
    with the name of a file or cgroup. No such line may fit, whatever the names: so a pattern is narrow where it continues beyond those
    characters, and holds no "anything" before its last fixed word. The tests try it for every line that is known."""

    check: str
    pattern: re.Pattern[str]
    finding: LineMeaning | Weigh
    device: str = ""
    """``pci`` or ``nvme``: the group of that name is a device, which must be there for the line to be acted upon."""

    def judge(self, message: str, devices: Devices, monotonic_s: float | None) -> Result | None:
        """The result of a message that fits; None for any other."""
        match = self.pattern.match(message)
        if match is None:
            return None
        groups = {name: one_line(value) for name, value in match.groupdict().items() if value is not None}
        address = pci.normalise(groups["pci"]) if "pci" in groups else None
        if address is not None:
            groups["pci"] = address
        found = self.finding if isinstance(self.finding, LineMeaning) else self.finding(groups)
        if found is None:
            return None
        evidence = {**{name: _scalar(value) for name, value in groups.items()}, **dict(found.evidence)}
        if self.device and devices.gone(self.device, groups[self.device]):
            found = replace(found, severity=Severity.WARNING, remedy=Remedy.NONE)
            evidence["present"] = False
        gpu = devices.gpus.get(address) if address is not None else None
        component = found.component.format_map(groups)
        return Result.finding(
            self.check,
            found.severity,
            found.remedy,
            gpu.component if gpu is not None and component == address else component,
            code=found.code,
            summary=found.summary.format_map(groups),
            evidence={**evidence, "line": one_line(message)},
            gpu_uuid=gpu.uuid if gpu is not None else None,
            gpu_minor=gpu.minor if gpu is not None else None,
            pci=address,
            fault_monotonic_s=monotonic_s,
        )


def rule(
    check: str,
    pattern: str,
    code: str,
    severity: Severity,
    remedy: Remedy,
    summary: str,
    *,
    component: str = NODE_COMPONENT,
    device: str = "",
) -> KernelRule:
    """A rule whose lines all mean the same."""
    return KernelRule(check, re.compile(pattern), LineMeaning(code, severity, remedy, summary, component), device)


def weighed(check: str, pattern: str, weigh: Weigh, *, device: str = "") -> KernelRule:
    """A rule whose groups decide what a line means."""
    return KernelRule(check, re.compile(pattern), weigh, device)


def _scalar(text: str) -> Scalar:
    return int(text) if len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdigit() else text
