"""Reads of a user's process in procfs are bounded, and made only of processes that are proved to be what they seem."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.agent.node.processes import SlurmNode, in_job_since_ticks, start_ticks
from holdfast.agent.orders.save_signals import signal_in_environment
from holdfast.agent.orders.stacks import python_processes
from holdfast.agent.orders.verbs import _owned_by
from holdfast_checks.probes import process_files
from holdfast_checks.probes.slurmd import WantedSlurmd, find

GIB = 1 << 30
_LONG = f"""
import ctypes, mmap, struct, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
size = {GIB}
start = libc.mmap(None, size, 3, 0x4022, -1, 0)
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
field = lambda number: int(stat[number - 3])
ctypes.memmove(start, TITLE, len(TITLE))
places = (26, 27, 45, 46, 47)
said = struct.pack("11QQIi", *map(field, places), libc.sbrk(0), field(28), start, start + size - 4096, start, start + size - 4096,
                   0, 0, -1)
made = ctypes.create_string_buffer(said)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
if libc.prctl(35, 14, ctypes.addressof(made), len(said), 0):
    print("refused", ctypes.get_errno(), flush=True)
else:
    NAME and libc.prctl(15, ctypes.addressof(ctypes.create_string_buffer(NAME)), 0, 0, 0)
    print("long", flush=True)
time.sleep(600)
"""


def _started(title: bytes, name: bytes = b"", executable: str = sys.executable) -> subprocess.Popen[bytes]:
    code = f"TITLE, NAME = {title!r}, {name!r}\n" + _LONG
    process = subprocess.Popen([executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.readline()
    if said != b"long\n":
        process.kill()
        process.wait()
        pytest.skip(f"this kernel has no PR_SET_MM_MAP for us: {said!r}")
    return process


@pytest.fixture
def long() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose cmdline and environ are a GiB each, as any user can make one; no memory is used."""
    process = _started(b"slurmstepd: [7.0]\0")
    yield process
    process.kill()
    process.communicate()


class _Parent(SlurmNode):
    """This process is its slurmd, and the long one is its child."""

    def slurmd(self) -> psutil.Process:
        return psutil.Process()


def _worst_pause_s(stopping: threading.Event, worst: list[float]) -> None:
    last_s = time.monotonic()
    while not stopping.wait(0.02):
        now_s = time.monotonic()
        worst[0], last_s = max(worst[0], now_s - last_s), now_s


def test_a_process_with_a_gib_of_arguments_costs_little_time_and_holds_up_no_other_thread(
    long: subprocess.Popen[bytes],
) -> None:
    """0.1 GiB held the interpreter's lock for 18 s and took 940 MiB: no heartbeat, no watchdog."""
    slurm = _Parent("n1", None, "scontrol", None)
    stopping, worst = threading.Event(), [0.0]
    beats = threading.Thread(target=_worst_pause_s, args=(stopping, worst))
    beats.start()
    began_s = time.monotonic()
    try:
        assert slurm.stepds() == []
        assert slurm.epilogs(7) == []
        assert signal_in_environment(long.pid) is None
        assert [seen.pid for seen in python_processes(frozenset({long.pid}))] == [long.pid]
        assert in_job_since_ticks(long.pid) == start_ticks(long.pid)
        assert _owned_by(long.pid, os.geteuid()) == start_ticks(long.pid)
        process = Path(f"/proc/{long.pid}")
        assert len("\0".join(process_files.words(process))) <= process_files.CMDLINE_BYTES
        assert len(str(process_files.environ(process))) <= 2 * process_files.ENVIRON_BYTES
        took_s = time.monotonic() - began_s
    finally:
        stopping.set()
        beats.join()
    assert took_s < 10.0
    assert worst[0] < 4.0


def test_what_is_called_slurmd_is_asked_whose_it_is_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, process = "11 (slurmd) S 1 " + "0 " * 40, tmp_path / "proc/11"
    process.mkdir(parents=True)
    (process / "stat").write_text(stat)
    (process / "cmdline").write_bytes(b"slurmd")
    os.symlink("/home/alice/slurmd", process / "exe")
    read: list[Path] = []

    def words(path: Path) -> list[str]:
        read.append(path)
        return ["slurmd"]

    monkeypatch.setattr(process_files, "words", words)
    wanted = WantedSlurmd("n1", proc=tmp_path / "proc", cgroups=tmp_path)
    monkeypatch.setattr("holdfast_checks.probes.slurmd.owner", lambda _proc, _pid: 1001)
    assert find(wanted) is None
    assert read == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts another user's process")
@pytest.mark.parametrize("name", [b"Uid:\t0\t0\t0\t0", b"\rUid:\t0\t0\t0\t0", b"\x0cUid:\t0\t0\t0\t0"])
def test_no_name_of_a_process_is_taken_for_its_user(name: bytes) -> None:
    """psutil finds ``Uid:`` anywhere in ``status``, and the kernel writes a user's name of the process there, tabs and all."""
    code = (
        "import ctypes, os, time; os.setresuid(*[65534] * 3)\n"
        f"ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0); print('up', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert process_files.uids(process.pid) == {65534}
        assert _owned_by(process.pid, 0) is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def test_a_process_that_writes_a_slurmstepds_title_makes_no_job_look_older() -> None:
    """An ancestor of the user's own, started earlier, with the title: its job would have been here before this run of it."""
    code = (
        "import os, subprocess, sys; print('up', flush=True)\n"
        "subprocess.run([sys.argv[1], '-c', 'import os, time; print(os.getpid(), flush=True); time.sleep(600)'])"
    )
    liar = subprocess.Popen(
        ["slurmstepd: [7.0]", "-c", code, sys.executable], executable=sys.executable, stdout=subprocess.PIPE
    )
    try:
        assert liar.stdout is not None
        assert liar.stdout.readline() == b"up\n"
        below = int(liar.stdout.readline())
        time.sleep(0.05)
        assert in_job_since_ticks(below) == start_ticks(below)
    finally:
        for child in psutil.Process(liar.pid).children():
            child.kill()
        liar.kill()
        liar.communicate()


def test_an_environment_that_is_cut_ends_with_a_whole_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_files, "ENVIRON_BYTES", 12)
    (tmp_path / "environ").write_bytes(b"A=1\0B=2\0SLURM_CONF=/x\0")
    assert process_files.environ(tmp_path) == {"A": "1", "B": "2"}
