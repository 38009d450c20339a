"""Where slurmd is found, and the verdict when it is not: the process table and systemd, never a pid file alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast_checks.checks import host_slurmd
from holdfast_checks.checks.host_slurmd import HostSlurmdFacts, Runs, SlurmdDown, Stopped, Unclear, state_of
from holdfast_checks.probes import systemd
from holdfast_checks.probes.slurmd import WantedSlurmd, find
from holdfast_checks.probes.systemd import UnitState
from holdfast_checks.registry import Context
from holdfast_checks.result import Remedy, Severity, Verdict
from holdfast_checks.runner import run
from holdfast_checks.settings import CheckSettings, HostSettings

AddProcess = Callable[..., Path]


@pytest.fixture
def add(tmp_path: Path) -> AddProcess:
    """Adds one process to a process table of files, and returns the table."""

    def process(
        pid: int, name: str, *args: str, state: str = "S", parent: int = 1, exe: str = "", env: str = ""
    ) -> Path:
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} ({name}) {state} {parent} 1 1")
        (folder / "cmdline").write_bytes("\0".join((f"/usr/sbin/{name}", *args, "")).encode())
        (folder / "environ").write_bytes(f"PATH=/bin\0{env}\0".encode())
        if exe:
            (folder / "exe").symlink_to(exe)
        return tmp_path / "proc"

    return process


def of_unit(root: Path, place: str, *pids: int) -> Path:
    """cgroups in which systemd lists these processes for slurmd's unit."""
    file = root / place / "system.slice/slurmd.service/cgroup.procs"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"{pid}\n" for pid in pids))
    return root


def test_no_pid_file_says_nothing_of_a_slurmd_that_runs(add: AddProcess, tmp_path: Path) -> None:
    """Debian 13: ``slurmd --systemd`` (Slurm 23.11 and later) writes none. Trusting its absence drained every node."""
    proc = add(11, "slurmd", "--systemd", exe="/usr/sbin/slurmd-wlm")
    settings = CheckSettings(slurmd_pid_file=tmp_path / "absent", slurmd_node="n1", proc=proc, sysfs=tmp_path / "sys")
    (result,) = run(host_slurmd.CHECK, Context(settings))
    assert (result.verdict, result.summary) == (Verdict.OK, "slurmd runs as 11")


@pytest.mark.parametrize("text", ["99", "x", "", "12"])
def test_a_pid_file_that_is_wrong_hides_nothing(add: AddProcess, tmp_path: Path, text: str) -> None:
    add(12, "sshd")
    proc = add(11, "slurmd")
    (tmp_path / "pid").write_text(text)
    assert find(WantedSlurmd(pid_file=tmp_path / "pid", proc=proc, cgroups=tmp_path / "none")) == 11


@pytest.mark.parametrize("place", ["", "systemd", "unified"])
def test_the_units_own_processes_are_looked_at_first(add: AddProcess, tmp_path: Path, place: str) -> None:
    add(11, "slurmd", exe="/usr/sbin/slurmd")
    add(40, "slurmd", exe="/usr/sbin/slurmd")
    proc = add(41, "sleep", parent=40)
    assert find(WantedSlurmd(proc=proc, cgroups=of_unit(tmp_path / "cg", place, 41, 40))) == 40


@pytest.mark.parametrize(
    ("exe", "found"),
    [
        ("/usr/sbin/slurmd", True),
        ("/usr/sbin/slurmd-wlm", True),
        ("/opt/slurm/sbin/slurmd (deleted)", True),  # upgraded, and not restarted yet
        ("", True),  # not shown to us
        ("/usr/bin/su", False),  # a set-user-id program that a user has called slurmd
        ("/home/alice/slurmd-not", False),
    ],
)
def test_a_process_is_known_by_what_it_executes(add: AddProcess, tmp_path: Path, exe: str, found: bool) -> None:
    proc = add(11, "slurmd", exe=exe)
    assert (find(WantedSlurmd(proc=proc, cgroups=tmp_path)) == 11) is found


def test_the_slurmd_of_a_container_is_another_machines(add: AddProcess, tmp_path: Path) -> None:
    """systemd-nspawn, a job that tries out a cluster: its processes are in this table, too."""
    add(11, "slurmd")
    proc = add(30, "slurmd")
    for pid, namespace in ((11, "pid:[4026539999]"), (30, os.readlink("/proc/self/ns/pid"))):
        (proc / f"{pid}/ns").mkdir()
        (proc / f"{pid}/ns/pid").symlink_to(namespace)
    assert find(WantedSlurmd(proc=proc, cgroups=tmp_path)) == 30


def test_what_slurmd_has_just_forked_is_not_the_daemon(add: AddProcess, tmp_path: Path) -> None:
    add(80, "slurmd", parent=90)
    proc = add(90, "slurmd")
    assert find(WantedSlurmd(proc=proc, cgroups=tmp_path)) == 90


@pytest.mark.parametrize(
    ("args", "env", "found"),
    [
        (("-N", "n1"), "SLURM_CONF=/a/slurm.conf", True),
        (("-N", "n1"), "SLURM_CONF=/b/slurm.conf", False),
        (("-N", "n1", "-f", "/b/slurm.conf"), "SLURM_CONF=/a/slurm.conf", False),
        (("-N", "n1", "-f/a/slurm.conf"), "", True),
        (("-N", "n1"), "", True),
        (("-N", "n1"), "SLURM_CONF=/var/spool/slurmd/conf-cache/slurm.conf", True),
        (("-N", "n1"), "SLURM_CONF=/run/slurm/conf/slurm.conf", True),
        (("--systemd",), "SLURM_CONF=/b/slurm.conf", True),  # the machine's only one
        (("-N", "n2"), "SLURM_CONF=/a/slurm.conf", False),
    ],
)
def test_two_clusters_on_one_machine(
    add: AddProcess, tmp_path: Path, args: tuple[str, ...], env: str, found: bool
) -> None:
    proc = add(11, "slurmd", *args, env=env)
    wanted = WantedSlurmd("n1", slurm_conf=Path("/a/slurm.conf"), proc=proc, cgroups=tmp_path)
    assert (find(wanted) == 11) is found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("unit", [True, False])
def test_an_old_pid_file_makes_no_users_process_the_slurmd(add: AddProcess, tmp_path: Path, unit: bool) -> None:
    """slurmd of 23.11 and later writes none: the file of the one before may name a process that a user called slurmd."""
    add(12, "slurmd", exe="/home/mallory/slurmd")
    proc = add(40, "slurmd", exe="/usr/sbin/slurmd")
    os.chown(proc / "12", 5000, 5000)
    (tmp_path / "pid").write_text("12")
    cgroups = of_unit(tmp_path / "cg", "", 40) if unit else tmp_path / "none"
    assert find(WantedSlurmd(pid_file=tmp_path / "pid", proc=proc, cgroups=cgroups)) == 40


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_root_may_name_a_slurmd_of_any_user(add: AddProcess, tmp_path: Path) -> None:
    proc = add(11, "slurmd")
    os.chown(proc / "11", 65534, 65534)
    assert find(WantedSlurmd(proc=proc, cgroups=tmp_path)) is None
    (tmp_path / "pid").write_text("11\n")
    assert find(WantedSlurmd(pid_file=tmp_path / "pid", proc=proc, cgroups=tmp_path)) == 11


@pytest.fixture
def real(tmp_path: Path) -> Iterator[int]:
    """A real process that executes a file called slurmd."""
    shutil.copy("/bin/sleep", tmp_path / "slurmd")
    process = subprocess.Popen(["slurmd", "60"], executable=tmp_path / "slurmd")
    yield process.pid
    process.kill()
    process.wait()


def test_a_real_process(real: int, tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(str(real))
    deadline_s = time.monotonic() + 5
    while find(WantedSlurmd(pid_file=tmp_path / "pid")) != real and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert find(WantedSlurmd(pid_file=tmp_path / "pid")) == real


RUNNING = UnitState("loaded", "active", "running", "success", "0", "71")


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (HostSlurmdFacts(11), Runs),
        (HostSlurmdFacts(None), SlurmdDown),
        (HostSlurmdFacts(None, RUNNING), Unclear),
        (HostSlurmdFacts(None, UnitState("loaded", "failed", "failed", "signal", "0", "0")), SlurmdDown),
        (HostSlurmdFacts(None, UnitState("loaded", "failed", "failed", "oom-kill", "", "0")), SlurmdDown),
        (HostSlurmdFacts(None, UnitState("loaded", "inactive", "dead", "success", "0", "0")), Stopped),
        (HostSlurmdFacts(None, UnitState("masked", "inactive", "dead", "success")), Stopped),
        (
            HostSlurmdFacts(None, UnitState("loaded", "inactive", "dead", "success", "812", "0")),
            Unclear,
        ),  # its start is queued
        (HostSlurmdFacts(None, UnitState("loaded", "inactive", "dead", "exit-code", "0", "0")), SlurmdDown),
        (HostSlurmdFacts(None, UnitState("loaded", "activating", "start-pre", "success", "812", "0")), Unclear),
        (HostSlurmdFacts(None, UnitState("loaded", "activating", "auto-restart", "exit-code", "0", "0")), SlurmdDown),
        (
            HostSlurmdFacts(None, UnitState("loaded", "activating", "auto-restart-queued", "exit-code", "0", "0")),
            SlurmdDown,
        ),
        (HostSlurmdFacts(None, UnitState("loaded", "deactivating", "stop-sigterm", "success", "9", "0")), Unclear),
    ],
)
def test_both_witnesses_are_heard(facts: HostSlurmdFacts, wanted: type) -> None:
    assert isinstance(state_of(facts), wanted)


def test_only_one_that_is_gone_unasked_calls_for_service() -> None:
    (down,) = host_slurmd.judge(HostSlurmdFacts(None, UnitState("loaded", "failed", "failed", "signal", "0", "0")))
    assert (down.code, down.severity, down.remedy) == ("down", Severity.DEGRADED, Remedy.REBOOT)
    (stopped,) = host_slurmd.judge(HostSlurmdFacts(None, UnitState("loaded", "inactive", "dead", "success", "0", "0")))
    assert (stopped.code, stopped.severity, stopped.remedy) == ("stopped", Severity.WARNING, Remedy.NONE)
    (unclear,) = host_slurmd.judge(HostSlurmdFacts(None, RUNNING))
    assert unclear.verdict is Verdict.UNKNOWN


def with_systemctl(tmp_path: Path, proc: Path, script: str) -> CheckSettings:
    command = tmp_path / "systemctl"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return CheckSettings(proc=proc, sysfs=tmp_path / "sys", host=HostSettings(systemctl=str(command)))


def test_systemd_is_asked_only_when_the_process_table_has_none(add: AddProcess, tmp_path: Path) -> None:
    proc = add(3, "sshd")
    asked = with_systemctl(tmp_path, proc, f"touch {tmp_path}/asked; cat {tmp_path}/unit")
    shown = (
        "Names=slurmd.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\nResult=signal\nJob=\nMainPID=0\n"
    )
    (tmp_path / "unit").write_text(shown)
    (result,) = run(host_slurmd.CHECK, Context(asked))
    assert (result.code, "systemd: slurmd.service is failed (failed, signal)" in result.summary) == ("down", True)
    (tmp_path / "asked").unlink()
    add(4, "slurmd")
    (result,) = run(host_slurmd.CHECK, Context(asked))
    assert (result.verdict, (tmp_path / "asked").exists()) == (Verdict.OK, False)


@pytest.mark.parametrize("script", ["exit 1", "exec sleep 60"])
def test_without_systemds_word_nothing_is_known(
    add: AddProcess, tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "DEADLINE_S", 0.2)
    (result,) = run(host_slurmd.CHECK, Context(with_systemctl(tmp_path, add(3, "sshd"), script)))
    assert result.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        ("", None),
        ("Names=other.service\nLoadState=loaded\n", None),
        ("Names=slurmd.service\nLoadState=not-found\nActiveState=inactive\n", None),
        ("Names=x.service\nLoadState=loaded\n\nNames=slurmd.service alias.service\nActiveState=active\n", "active"),
    ],
)
def test_what_systemctl_shows(output: str, wanted: str | None) -> None:
    found = systemd.parse(output, "slurmd.service")
    assert (found.active if found else None) == wanted
