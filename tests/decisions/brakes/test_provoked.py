"""Xids that an ordinary user's program can raise: what they drain, and that they block no other repair."""

from __future__ import annotations

import pytest

from holdfast.decisions.incidents.correlate import RAISED_BY_PROGRAMS
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
    """A separate job on each node, each of which raises the Xid, one after another."""
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
    """The record of the previous machine's fault does not lift it."""
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


def full(site: Site, node: str, path: str = "/tmp", code: str = "full", check: str = "host.disk") -> None:
    site.fault(
        node, check=check, component=path, code=code, severity=Severity.DEGRADED, remedy=Remedy.HUMAN, minor=None
    )


def holding(site: Site) -> set[BrakeKind]:
    return {brake.kind for brake in site.book.brakes.values() if brake.released_at is None}


def nodes_full_one_after_another(site: Site, check: str = "host.disk", code: str = "full") -> None:
    for _ in range(6):
        site.slurm.submit(1, exclusive=True)
    site.run(2)
    for n in range(1, 7):
        full(site, f"n{n}", check=check, code=code)
        site.run(30)


@pytest.mark.parametrize(
    ("check", "code"),
    [
        ("host.disk", "full"),
        ("host.mounts", "not_writable"),
        ("host.mounts", "covered"),
        ("host.mounts", "error"),
        ("host.credential", "hang"),
        ("host.credential", "refused"),
        ("host.dstate", "stuck"),
        ("host.fds", "high"),
        ("host.pids", "high"),
        ("host.zombies", "many"),
    ],
)
def test_what_jobs_use_up_on_many_nodes_trips_its_own_brake_and_holds_up_no_repair(check: str, code: str) -> None:
    """A user's jobs fill ``/tmp`` (or use up what else a node has, or a shared file system) on one node after another."""
    site = Site(12)
    nodes_full_one_after_another(site, check, code)
    assert holding(site) == {BrakeKind.TASK_DRAINS}
    assert drained(site) == {"n1", "n2", "n3"}
    site.fault("n9")
    site.run(300, step_s=2)
    assert "n9" in drained(site)
    assert site.incident("n9").state.value == "closed"
    assert holding(site) == {BrakeKind.TASK_DRAINS}


def judged(site: Site, node: str, check: str, code: str, **changed: object) -> None:
    degraded = {"severity": Severity.DEGRADED, "remedy": Remedy.REBOOT, "minor": None}
    site.fault(node, check=check, code=code, **{**degraded, **changed})


def test_a_mount_that_settings_or_manifest_name_counts_as_hardware_unless_a_user_can_make_it_hang() -> None:
    """A file server is as slow as its users make it; another mount may be one that a user had the automounter make."""
    site = Site(6)
    judged(site, "n1", "host.mounts", "error", evidence={"named": True})
    judged(site, "n2", "host.mounts", "error", evidence={"named": False})
    judged(site, "n3", "host.mounts", "missing", evidence={"named": True})
    judged(site, "n4", "host.mounts", "hang", evidence={"named": True})
    site.run(400, step_s=2)
    assert [site.incident(f"n{n}").users_doing for n in range(1, 5)] == [False, True, False, True]


@pytest.mark.parametrize("check", ["host.slurmd", "host.munge", "host.services"])
def test_a_service_that_went_as_the_node_ran_out_of_memory_is_a_users_doing(check: str) -> None:
    """The kernel kills any process; without its message the service ended without a known cause."""
    site = Site(6)
    oom = {"severity": Severity.WARNING, "remedy": Remedy.NONE, "minor": None}
    site.fault("n1", check="kernel.oom", code="global", **oom)
    site.run(60)
    judged(site, "n1", check, "down")
    judged(site, "n2", check, "down")
    site.run(10)
    assert site.incident("n1").users_doing
    assert not site.incident("n2").users_doing


def test_full_disks_of_many_nodes_at_once_trip_the_same_brake() -> None:
    site = Site(12)
    for n in range(1, 7):
        full(site, f"n{n}")
    site.run(60)
    assert holding(site) == {BrakeKind.TASK_DRAINS}
    assert drained(site) == set()
    site.fault("n9")
    site.run(300, step_s=2)
    assert site.incident("n9").state.value == "closed"


def test_hardware_that_fails_on_a_node_whose_disk_is_full_takes_it_out_and_an_operator_is_told_of_both() -> None:
    """A repair does not empty a disk: the node would fail its validation, and its machine be replaced for what a user did."""
    site = Site(12)
    nodes_full_one_after_another(site)
    assert "n5" not in drained(site)
    site.fault("n5")
    site.run(10)
    assert "n5" in drained(site)
    assert not site.incident("n5").users_doing
    for job in list(site.slurm.jobs.values()):
        site.slurm.finish(job, "COMPLETED")
    site.run(600, step_s=2)
    assert site.incident("n5").state.value == "awaiting_human"
    assert "host.disk full on /tmp" in site.incident("n5").note
    assert site.provider.terminated == {} or "i-0005" not in site.provider.terminated


def test_disks_that_can_be_written_to_no_more_are_no_users_doing() -> None:
    """A file system goes read-only because of a disk error, or of a change to many nodes at once: no user's program does it."""
    site = Site(12)
    nodes_full_one_after_another(site, code="read_only")
    assert holding(site) == {BrakeKind.DRAINS}
    assert drained(site) == {"n1", "n2", "n3"}
