"""A GPU that the site has taken out of gres.conf: what is found on it is a warning, also once it no longer comes up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.agent.findings.trust import ResultTrust
from holdfast.agent.findings.withheld_gpus import NOTE, WithheldGpus
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.registry import Check, Cost, Need
from holdfast_checks.result import Remedy, Result, Severity

GPUS = tuple(GpuRef(uuid=f"GPU-{n}", minor=n, pci=f"0000:{n:02x}:00.0") for n in range(4))
XID = Check(
    id="gpu.xid",
    title="",
    needs=frozenset({Need.KMSG}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REPLACE,
    gather=lambda _context: None,
    judge=lambda _facts: (),
    observe=False,
)


def fault(gpu: GpuRef, check: str = "gpu.xid") -> Result:
    named: dict[str, Any] = {"gpu_uuid": gpu.uuid, "gpu_minor": gpu.minor, "pci": gpu.pci}
    return Result.finding(
        check, Severity.FATAL, Remedy.REPLACE, gpu.component, code="79", summary="off the bus", **named
    )


def without_2() -> ResultTrust:
    trust = ResultTrust({"gpu.xid": XID})
    assert trust.withheld.learn((0, 1, 3), GPUS)
    return trust


@pytest.mark.parametrize("number", range(4))
def test_only_the_gpu_that_slurm_gives_to_no_job_is_a_warning(number: int) -> None:
    counted = without_2().weigh(fault(GPUS[number]))
    if number != 2:
        assert counted.would is None
        assert counted.result.severity is Severity.FATAL
    else:
        assert counted.would is not None
        assert counted.would.severity is Severity.FATAL
        assert counted.result.severity is Severity.WARNING
        assert counted.result.summary == f"off the bus; {NOTE}"


def test_it_is_known_by_whatever_a_result_names() -> None:
    trust, gone = without_2(), replace(GPUS[2], minor=None)
    assert trust.weigh(fault(gone)).result.severity is Severity.WARNING
    assert trust.weigh(fault(replace(gone, uuid=None))).result.severity is Severity.WARNING


def test_a_fault_of_the_node_counts_in_full() -> None:
    node = Result.finding("host.pcie", Severity.FATAL, Remedy.REPLACE, "node", code="fatal")
    assert without_2().weigh(node).result.severity is Severity.FATAL


def test_it_is_remembered_until_slurm_gives_the_gpu_out_again() -> None:
    kept, again = without_2().withheld, WithheldGpus()
    again.load(kept.dump())
    missing = (*GPUS[:2], replace(GPUS[2], minor=None), GPUS[3])
    assert not again.learn((0, 1, 3), missing)
    assert again.holds(fault(GPUS[2]))
    assert again.learn((0, 1, 2, 3), GPUS)
    assert not again.holds(fault(GPUS[2]))


def test_of_a_gpu_without_a_minor_nothing_is_learned() -> None:
    assert not WithheldGpus().learn((0, 1), (replace(GPUS[2], minor=None),))


@pytest.mark.parametrize("text", [None, "", "{", "3", "[" * 2000])
def test_what_cannot_be_read_withholds_nothing(text: str | None) -> None:
    again = WithheldGpus()
    again.load(text)
    assert not any(again.holds(fault(gpu)) for gpu in GPUS)
