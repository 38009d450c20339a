"""The judges of the host's checks, as tables, with near misses that must stay OK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast_checks.checks import (
    host_cpu,
    host_credential,
    host_dstate,
    host_fds,
    host_load,
    host_manifest,
    host_memory,
    host_modules,
    host_mounts,
    host_munge,
    host_pids,
    host_services,
    host_time,
    host_zombies,
)
from holdfast_checks.known import all_checks
from holdfast_checks.probes.child import Finished, Hung
from holdfast_checks.probes.clock import ClockState, clock_state
from holdfast_checks.probes.dstate import Stuck
from holdfast_checks.probes.mounts import Mount, parse_mounts
from holdfast_checks.probes.procfs import Scan, cpu_list
from holdfast_checks.registry import NotGathered, Sample, SampleChange
from holdfast_checks.result import Result, Verdict

CAPTURED = Path(__file__).parent / "captured" / "host"

Short = tuple[str, str, str]
OK: Short = ("", "", "none")


def short(result: Result) -> Short:
    """Code, severity and remedy of a finding; nothing for an OK."""
    assert result.verdict in (Verdict.OK, Verdict.DEGRADED, Verdict.FAILED), result
    assert result.sticky
    assert result.summary.isprintable()
    return (result.code, result.severity or "", result.remedy)


def by_component(results: tuple[Result, ...]) -> dict[str, Short]:
    assert len({result.component for result in results}) == len(results), "one result a component"
    return {result.component: short(result) for result in results if result.verdict is not Verdict.SKIPPED}


def change(now: Any, before: Any = None, seconds: float = 300.0) -> SampleChange:
    return SampleChange(None if before is None else Sample(before, 0.0), Sample(now, seconds))


def test_every_finding_of_the_host_observes_at_first_and_names_the_source_of_its_numbers() -> None:
    host = [check for name, check in all_checks().items() if name.startswith("host.")]
    assert len(host) >= 16
    for check in host:
        assert check.observe or check.id in ("host.slurmd", "host.disk")
        assert all(threshold.source for threshold in check.thresholds)


FULL: Short = ("exhausted", "degraded", "reboot")
HIGH: Short = ("high", "warning", "none")


@pytest.mark.parametrize(
    ("used", "wanted"), [(0, OK), (799, OK), (800, HIGH), (949, HIGH), (950, FULL), (1000, FULL), (1200, FULL)]
)
def test_handles_and_threads(used: int, wanted: Short) -> None:
    assert by_component(host_fds.judge(host_fds.HostFdsFacts(used, 1000))) == {"node": wanted}
    assert by_component(host_pids.judge(host_pids.HostPidsFacts(used, 1000, "pid_max"))) == {"node": wanted}


@pytest.mark.parametrize(
    ("zombies", "wanted"),
    [
        (0, OK),
        (999, OK),
        (1000, ("many", "warning", "none")),
        (1999, ("many", "warning", "none")),
        (2000, ("too_many", "degraded", "reboot")),
    ],
)
def test_zombies(zombies: int, wanted: Short) -> None:
    assert by_component(host_zombies.judge(Scan(5000, zombies, ("loader\n",), ()))) == {"node": wanted}


DRIVER: Short = ("driver", "degraded", "reboot")
WAITS: Short = ("stuck", "warning", "none")


@pytest.mark.parametrize(
    ("stuck", "wanted"),
    [
        ([], OK),
        ([Stuck(1, "python", 5, 1001, ("nvidia",), stack_known=True)], DRIVER),
        ([Stuck(1, "fi_pingpong", 5, 1001, ("ib_uverbs",), stack_known=True)], DRIVER),
        ([Stuck(1, "nvidia-smi", 5, 1001, ("lustre", "ptlrpc"), stack_known=True)], WAITS),
        ([Stuck(1, "nvidia-smi", 5, 1001, (), stack_known=True)], WAITS),
        ([Stuck(1, "nvidia-smi", 5, 1001)], WAITS),
        ([Stuck(1, "nvidia-modeset/", 5, 0)], DRIVER),
        ([Stuck(1, "not-nvidia", 5, 0)], WAITS),
        (
            [Stuck(1, "cat", 9, 0, ("nfs",), stack_known=True), Stuck(2, "a", 5, 0, ("nvidia_uvm",), stack_known=True)],
            DRIVER,
        ),
    ],
)
def test_a_stuck_process_is_the_drivers_fault_by_its_stack_and_by_its_name_only_if_it_is_roots(
    stuck: list[Stuck], wanted: Short
) -> None:
    assert by_component(host_dstate.judge(host_dstate.HostDstateFacts(tuple(stuck)))) == {"node": wanted}


@pytest.mark.parametrize(
    ("clock", "wanted"),
    [
        (ClockState(0, 0x2001, 0.0, 0.02), OK),
        (ClockState(0, 0x1, -0.09, 4.9), OK),
        (ClockState(1, 0x2011, 0.0, 0.02), OK),
        (ClockState(5, 0x40, 0.0, 16.0), ("unsynchronised", "warning", "none")),
        (ClockState(0, 0x2041, 0.0, 0.02), ("unsynchronised", "warning", "none")),
        (ClockState(0, 0x1, -0.11, 0.02), ("offset", "warning", "none")),
        (ClockState(0, 0x1, 0.0, 5.1), ("drifting", "warning", "none")),
    ],
)
def test_clock(clock: ClockState, wanted: Short) -> None:
    assert by_component(host_time.judge(host_time.HostTimeFacts(clock))) == {"node": wanted}


def test_the_kernel_is_asked_for_its_clock() -> None:
    told = clock_state()
    assert 0 <= told.state <= 5
    assert abs(told.offset_s) <= 1
    assert 0 <= told.max_error_s <= 17


MIB = 1024
LOST: Short = ("lost", "degraded", "replace")


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ((2_000_000, 900_000, None), {"available": OK}),
        ((2_000_000, 100 * MIB, None), {"available": ("low", "warning", "none")}),
        ((2_000_000, 900_000, 2_000_000), {"available": OK, "modules": OK}),
        ((1_970_000, 900_000, 2_000_000), {"available": OK, "modules": OK}),
        ((2_100_000, 900_000, 2_000_000), {"available": OK, "modules": OK}),
        ((2_000_000 * 31 // 32, 900_000, 2_000_000), {"available": OK, "modules": LOST}),
        ((1_000_000, 10 * MIB, 2_000_000), {"available": ("low", "warning", "none"), "modules": LOST}),
    ],
)
def test_memory(facts: tuple[int, int, int | None], wanted: dict[str, Short]) -> None:
    assert by_component(host_memory.judge(host_memory.HostMemoryFacts(*facts))) == wanted


@pytest.mark.parametrize(("load", "wanted"), [(0.0, OK), (32.0, OK), (32.1, HIGH)])
def test_load(load: float, wanted: Short) -> None:
    assert by_component(host_load.judge(host_load.HostLoadFacts(load, 8))) == {"node": wanted}


def cpus(online: str, present: str = "0-7", **more: Any) -> host_cpu.HostCpuFacts:
    return host_cpu.HostCpuFacts(cpu_list(online), cpu_list(present), **more)


OFFLINE: Short = ("offline", "degraded", "reboot")


@pytest.mark.parametrize(
    ("now", "before", "wanted"),
    [
        (cpus("0-7"), None, {"node": OK}),
        (cpus("0-5,7"), None, {"node": OFFLINE}),
        (cpus("0-3", smt_off=True), None, {"node": OK}),
        (cpus("0-7", expected_cpus=8), None, {"node": OK}),
        (cpus("0-7", expected_cpus=16), None, {"node": LOST}),
        (cpus("0-7", expected_cpus=4), None, {"node": OK}),
        (cpus("0-7", governor="powersave"), None, {"node": OK}),
        (
            cpus("0-7", governor="powersave", expected_governor="performance"),
            None,
            {"node": OK, "governor": ("governor", "warning", "none")},
        ),
        (cpus("0-7", expected_governor="performance"), None, {"node": OK}),
        (cpus("0-7", throttled_ms=9_000_000), None, {"node": OK, "clock": OK}),
        (cpus("0-7", throttled_ms=1000), cpus("0-7", throttled_ms=9000), {"node": OK, "clock": OK}),
        (cpus("0-7", throttled_ms=29_000), cpus("0-7", throttled_ms=0), {"node": OK, "clock": OK}),
        (
            cpus("0-7", throttled_ms=31_000),
            cpus("0-7", throttled_ms=0),
            {"node": OK, "clock": ("throttled", "warning", "none")},
        ),
        (cpus("0-7", throttled_ms=31_000, packages=2), cpus("0-7", throttled_ms=0), {"node": OK, "clock": OK}),
    ],
)
def test_cpus(now: host_cpu.HostCpuFacts, before: host_cpu.HostCpuFacts | None, wanted: dict[str, Short]) -> None:
    assert by_component(host_cpu.judge(change(now, before))) == wanted


@pytest.mark.parametrize("text", ["", "0-", "a", "0-3,", "-1", None])
def test_what_is_no_list_of_cpus_is_refused(text: str | None) -> None:
    with pytest.raises(NotGathered):
        cpu_list(text)


MISSING: Short = ("missing", "degraded", "reboot")


def test_modules_and_versions() -> None:
    facts = host_modules.HostModulesFacts(("efa", "gdrdrv"), frozenset({"efa", "nvidia"}))
    assert by_component(host_modules.judge(facts)) == {"efa": OK, "gdrdrv": MISSING}
    versions = host_manifest.HostManifestFacts(
        {"kernel": "6.8", "module efa": "2.13", "package x": "1"}, {"kernel": "6.8", "module efa": "2.12"}
    )
    assert by_component(host_manifest.judge(versions)) == {"kernel": OK, "module efa": ("drift", "warning", "none")}


def finished(status: int = 0, out: bytes = b"", err: bytes = b"") -> Finished:
    return Finished(status, out, err)


HANGS = Hung(5.0, left_behind=True, pid=7)
LUSTRE = Mount("10.0.0.1@tcp:/x", "/fsx", "lustre", read_only=False)


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ((True, "lustre", LUSTRE, finished()), OK),
        ((True, "", LUSTRE, finished()), OK),
        ((False, "", LUSTRE, finished(), finished()), OK),
        ((True, "", LUSTRE, HANGS), ("hang", "degraded", "reboot")),
        ((False, "", LUSTRE, HANGS), ("hang", "degraded", "human")),
        ((True, "", LUSTRE, finished(), HANGS), ("hang", "degraded", "reboot")),
        ((True, "nfs4", LUSTRE, finished()), ("type", "degraded", "human")),
        ((True, "lustre", None), ("missing", "degraded", "reboot")),
        ((False, "", None), OK),
        ((True, "", LUSTRE, finished(1, err=b"Stale file handle")), ("error", "degraded", "reboot")),
        ((False, "", LUSTRE, finished(1, err=b"Stale file handle")), ("error", "degraded", "human")),
        ((True, "", LUSTRE, finished(), finished(1, err=b"Read-only")), ("not_writable", "degraded", "human")),
    ],
)
def test_mounts(place: tuple[Any, ...], wanted: Short) -> None:
    facts = host_mounts.HostMountsFacts((host_mounts.MountPoint("/fsx", *place),))
    assert by_component(host_mounts.judge(facts)) == {"/fsx": wanted}


def test_a_mount_table() -> None:
    mounts = parse_mounts((CAPTURED / "mounts").read_text())
    assert [mount.path for mount in mounts if mount.remote] == ["/fsx", "/home", "/mnt/my data"]
    assert [mount.path for mount in mounts if mount.read_only] == ["/mnt/my data"]


@pytest.mark.parametrize("space", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\xa0"])
def test_no_name_of_a_folder_adds_a_line_or_a_word_to_the_mount_table(space: str) -> None:
    """The kernel escapes space, tab and newline alone. An empty source is a field, too."""
    name = f"/home/m/a{space}evil:/x{space}/fsx{space}nfs4{space}rw"
    line = f" {name} fuse.x rw,user_id=1000,group_id=1000 0 0"
    assert parse_mounts(f"a:/b /fsx nfs4 rw 0 0\n{line}\n") == (
        Mount("a:/b", "/fsx", "nfs4", read_only=False),
        Mount("", name, "fuse.x", read_only=False, by_user=True),
    )


@pytest.mark.parametrize(
    ("options", "by_user"),
    [
        ("rw,user_id=65534,group_id=65534", True),
        ("rw,user_id=0,group_id=0", False),
        ("rw,user_id=998,group_id=998", False),
        ("rw,user_id=1000", True),
        ("rw,vers=4.2", False),
        ("rw,user_id=00", True),
    ],
)
def test_who_mounted_a_file_system(options: str, by_user: bool) -> None:
    (mount,) = parse_mounts(f"weka/fs /m fuse.weka {options} 0 0\n")
    assert mount.by_user is by_user


def services(*configured: str, text: str = "") -> host_services.HostServicesFacts:
    units = host_services.parse_show(text or (CAPTURED / "show.txt").read_text())
    return host_services.HostServicesFacts(units, frozenset(configured))


DOWN: Short = ("down", "degraded", "reboot")


def test_services_as_systemctl_shows_them() -> None:
    wanted = {"nvidia-fabricmanager.service": DOWN, "chrony.service": OK, "chronyd.service": OK}
    assert by_component(host_services.judge(change(services()))) == wanted
    wanted["weka-agent.service"] = wanted["slurmdbd.service"] = ("missing", "warning", "none")
    found = host_services.judge(change(services("weka-agent.service", "slurmdbd.service")))
    assert by_component(found) == wanted


def unit(active: str, *, restarts: int = 0, enabled: str = "enabled", name: str = "x.service") -> str:
    return f"Names={name}\nLoadState=loaded\nActiveState={active}\nSubState=s\nUnitFileState={enabled}\nNRestarts={restarts}\n"


@pytest.mark.parametrize(
    ("now", "before", "wanted"),
    [
        (unit("active"), "", OK),
        (unit("activating"), "", OK),
        (unit("reloading"), "", OK),
        (unit("failed"), "", DOWN),
        (unit("failed", enabled="disabled"), "", DOWN),
        (unit("inactive"), "", DOWN),
        (unit("deactivating"), "", DOWN),
        (unit("failed", name="nvidia-persistenced.service"), "", ("down", "warning", "none")),
        (unit("active", restarts=50), "", OK),
        (unit("active", restarts=52), unit("active", restarts=50), OK),
        (unit("active", restarts=53), unit("active", restarts=50), ("restarting", "warning", "none")),
        (unit("active", restarts=0), unit("active", restarts=50), OK),
    ],
)
def test_a_service(now: str, before: str, wanted: Short) -> None:
    (judged,) = host_services.judge(change(services(text=now), services(text=before) if before else None))
    assert short(judged) == wanted


@pytest.mark.parametrize("enabled", ["disabled", "static", ""])
def test_a_service_that_nobody_wants_is_skipped(enabled: str) -> None:
    (judged,) = host_services.judge(change(services(text=unit("inactive", enabled=enabled))))
    assert judged.verdict is Verdict.SKIPPED


def test_sockets_of_the_kernel_that_accept() -> None:
    assert host_munge.listening((CAPTURED / "unix").read_text()) == {"/run/munge/munge.socket.2", "@/tmp/.X11-unix/X0"}
    assert host_munge.listening("") == frozenset()
    assert host_munge.listening("head\nx y z zz 0001 01 5 /a\n") == frozenset()
    assert by_component(host_munge.judge(host_munge.HostMungeFacts("/run/m", listens=True))) == {"node": OK}
    assert by_component(host_munge.judge(host_munge.HostMungeFacts("/run/m", listens=False))) == {"node": DOWN}


@pytest.mark.parametrize(
    ("made", "read", "wanted"),
    [
        (finished(out=b"MUNGE:A:"), finished(), OK),
        (HANGS, None, ("hang", "degraded", "reboot")),
        (finished(out=b"MUNGE:A:"), HANGS, ("hang", "degraded", "reboot")),
        (finished(15, err=b"munge: Error"), None, ("refused", "degraded", "human")),
        (finished(out=b"MUNGE:A:"), finished(16, err=b"unmunge: Error: Rewound"), ("refused", "degraded", "human")),
    ],
)
def test_credentials(made: Finished | Hung, read: Finished | Hung | None, wanted: Short) -> None:
    assert by_component(host_credential.judge(host_credential.HostCredentialFacts(made, read))) == {"node": wanted}


def test_a_munge_that_says_nothing_is_unknown() -> None:
    (judged,) = host_credential.judge(host_credential.HostCredentialFacts(finished(), None))
    assert judged.verdict is Verdict.UNKNOWN
