"""Errors that PCIe ports report of the devices below them (AER)."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_checks.kernel.rule import PCI, LineMeaning, weighed
from holdfast_checks.result import Remedy, Severity

PCIE = "kernel.pcie"


def _aer(groups: Mapping[str, str]) -> LineMeaning:
    """A fatal one means that the link had to be reset. Corrected ones are for rates to judge (``gpu.pcie_replay``) and not here."""
    if groups["kind"] == "Fatal":
        return LineMeaning("fatal", Severity.DEGRADED, Remedy.REBOOT, "fatal PCIe error of {pci}", "{pci}")
    return LineMeaning("non_fatal", Severity.WARNING, Remedy.NONE, "uncorrected PCIe error of {pci}", "{pci}")


PCIE_RULES = (
    weighed(
        PCIE,
        r"pcieport (?P<port>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): AER: (?:Multiple )?"
        rf"(?:Uncorrected|Uncorrectable) \((?P<kind>Fatal|Non-Fatal)\) error (?:received:|message received from) {PCI}",
        _aer,
        device="pci",
    ),
)
