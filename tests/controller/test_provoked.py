"""Xids that an ordinary user's program can raise: what they drain, and that they hold up no other repair."""

from __future__ import annotations

import pytest

from holdfast.controller.correlate import RAISED_BY_PROGRAMS
from holdfast.model.book import BrakeKind
from holdfast_checks.catalog.xids import lookup
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site


def xid(site: Site, node: str, code: str, **changed: object) -> None:
    row = lookup(int(code))
    judged = {"severity": row.severity, "remedy": row.remedy, "consequence": row.kind == "consequence"}
    site.fault(node, **{"code": code, "minor": 0, **judged, **changed})


def drained(site: Site) -> set[str]:
    return {node for _, node, _ in site.slurm.drained}


def programs_of_one_user(site: Site, code: str, nodes: int) -> None:
    """A job of its own on each node, each of which raises the Xid, one after another."""
    for _ in range(nodes):
        site.slurm.submit(1, exclusive=True)
    site.run(2)
    for n in range(1, nodes + 1):
        xid(site, f"n{n}", code)
        site.run(30)


@pytest.mark.parametrize("code", sorted(RAISED_BY_PROGRAMS - {"109"}))
def test_what_programs_raise_drains_no_node(code: str) -> None:
    site = Site(6)
    programs_of_one_user(site, code, 5)
    assert drained(site) == set()
    assert not [b for b in site.book.brakes.values() if b.released_at is None]


@pytest.mark.parametrize("recovery", [False, True])
def test_context_switches_that_time_out_stop_no_repair_of_others(recovery: bool) -> None:
    """Long kernels of one user raise Xid 109 on node after node; with it the driver asks for a reset of the GPU (Xid 154)."""
    site = Site(12)
    for _ in range(6):
        site.slurm.submit(1, exclusive=True)
    site.run(2)
    for n in range(1, 7):
        xid(site, f"n{n}", "109")
        if recovery:
            xid(site, f"n{n}", "154", severity=Severity.FATAL, remedy=Remedy.RESET_GPU)
        site.run(30)
    holding = {kind for kind, brake in site.book.brakes.items() if brake.released_at is None}
    assert holding == {BrakeKind.TASK_DRAINS}
    assert drained(site) == {"n1", "n2", "n3"}
    site.fault("n9")
    site.run(300, step_s=2)
    assert "n9" in drained(site)
    assert site.incident("n9").state.value == "closed"


def test_a_new_machine_is_not_exchanged_for_what_a_program_raised() -> None:
    """The memory of the fault of the machine before does not lift it."""
    site = Site(12)
    site.fault("n1")
    site.run(900, step_s=5)
    assert list(site.provider.terminated) == ["i-0001"]
    site.run(3 * 3600, step_s=60)
    xid(site, "n1", "109")
    xid(site, "n1", "154", severity=Severity.FATAL, remedy=Remedy.RESET_GPU)
    site.run(1800, step_s=5)
    assert list(site.provider.terminated) == ["i-0001"]
    assert site.incident("n1").state.value == "closed"


def test_jobs_that_opted_in_and_raise_it_stop_no_repair_of_others() -> None:
    site = Site(12)
    for _ in range(16):
        site.slurm.submit(1, gpus=1, comment="holdfast")
    site.run(2)
    for minor in range(8):
        for node in ("n1", "n2"):
            xid(site, node, "109", minor=minor)
        site.run(5)
    assert not [b for b in site.book.brakes.values() if b.released_at is None]
    site.fault("n9")
    site.run(300, step_s=2)
    assert site.incident("n9").state.value == "closed"


def test_a_warning_before_it_does_not_make_it_hardware() -> None:
    """A program that uses up the node's memory first."""
    site = Site(4)
    site.fault("n1", check="kernel.oom", code="global", severity=Severity.WARNING, remedy=Remedy.NONE, minor=None)
    site.run(2)
    xid(site, "n1", "109")
    site.run(5)
    assert site.incident("n1").users_doing


def test_hardware_that_fails_with_it_counts_as_hardware() -> None:
    site = Site(4)
    xid(site, "n1", "109")
    xid(site, "n1", "79")
    site.run(5)
    assert not site.incident("n1").users_doing
    xid(site, "n2", "109")
    xid(site, "n2", "154", severity=Severity.FATAL, remedy=Remedy.REBOOT)
    site.run(5)
    assert not site.incident("n2").users_doing
