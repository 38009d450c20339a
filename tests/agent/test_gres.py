"""Which GPU a GRES index is: what slurmd lists, and when that proves nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import psutil
import pytest

from holdfast.agent.node.processes import SlurmNode
from holdfast.agent.sources import gres
from holdfast.agent.sources.gres import GresUnproven, Slurmd, device_minor, look, parse, proved, read
from holdfast.model.errors import Unavailable

DEVICE = re.compile(r"/dev/nvidia(\d+)")


def minor_of(file: str) -> int | None:
    found = DEVICE.fullmatch(file)
    return int(found[1]) if found else None


def line(name: str, count: int, file: str, kind: str = "(null)") -> str:
    """As slurmd 22.05 prints it, to standard error."""
    return f"slurmd: Gres Name={name} Type={kind} Count={count} Index=0 ID=7696487 File={file} (null)\n"


def newer(name: str, count: int, file: str, kind: str) -> str:
    """As slurmd 24.11 does."""
    return f"slurmd: Gres Name={name} Type={kind} Count={count} ID=7696487 File={file} Cores=0-3 CoreCnt=16 Links=-1,0 Flags=HAS_FILE\n"


CAPS = "/dev/nvidia-caps/nvidia-cap"
MIG = "".join(line("gpu", 1, f"/dev/nvidia{1 + n // 2},{CAPS}{10 + n}", "1g.5gb") for n in range(4))
SHARDS = "".join(line("shard", 4, f"/dev/nvidia{n}") + line("gpu", 1, f"/dev/nvidia{n}") for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (line("gpu", 8, "/dev/nvidia[0-7]"), {"gpu": tuple(range(8))}),
        (line("gpu", 8, "/dev/nvidia[1-8]"), {"gpu": tuple(range(1, 9))}),
        (line("gpu", 1, "/dev/nvidia3"), {"gpu": (3,)}),
        (line("gpu", 3, "/dev/nvidia[0,2-3]"), {"gpu": (0, 2, 3)}),
        # indices count through the types, in the order of the lines
        (
            line("gpu", 4, "/dev/nvidia[5-8]", "b") + line("gpu", 2, "/dev/nvidia[1-2]", "a"),
            {"gpu": (5, 6, 7, 8, 1, 2)},
        ),
        (newer("gpu", 1, "/dev/nvidia1", "h100") + newer("gpu", 1, "/dev/nvidia0", "h100"), {"gpu": (1, 0)}),
        (MIG, {"gpu": (1, 1, 2, 2)}),
        (SHARDS, {"gpu": (1, 2, 3), "shard": (1, 2, 3)}),
        (line("mps", 100, "/dev/nvidia0") + line("gpu", 1, "/dev/nvidia0"), {"gpu": (0,), "mps": (0,)}),
        (line("nic", 2, "(null)") + line("gpu", 1, "/dev/nvidia0"), {"gpu": (0,)}),
        ("slurmd: error: noise\n" + line("gpu", 2, "/dev/nvidia[0-1]"), {"gpu": (0, 1)}),
    ],
)
def test_what_slurmd_lists(text: str, expected: Mapping[str, tuple[int, ...]]) -> None:
    assert parse(text, minor_of) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        line("nic", 1, "/dev/nic0"),
        line("gpu", 8, "(null)"),
        line("gpu", 2, "/dev/nvidia0"),
        line("gpu", 1, "/dev/nvidia[0-1]"),
        line("gpu", 2, "/dev/nvidia0,/dev/dri/card0"),
        line("gpu", 4, "/dev/nvidia[4,1-3]"),
        line("gpu", 3, "/dev/nvidia[0,0,1]"),
        line("gpu", 1, "/dev/dri/card0"),
        line("gpu", 2, "/dev/nvidia[-,1]"),
        line("gpu", 5000, "/dev/nvidia[0-4999]"),
        line("shard", 8, "/dev/nvidia[0-1]") + line("gpu", 2, "/dev/nvidia[0-1]"),
    ],
)
def test_what_proves_nothing(text: str) -> None:
    with pytest.raises(GresUnproven):
        parse(text, minor_of)


def test_only_what_nvml_shows_is_proved() -> None:
    shifted = {"gpu": (1, 2)}
    assert proved(shifted, range(9)) == shifted
    with pytest.raises(GresUnproven, match=r"/dev/nvidia2 is no GPU; NVML has minors 0-1"):
        proved(shifted, (0, 1))
    with pytest.raises(GresUnproven, match="NVML has not shown"):
        proved(shifted, ())


def test_a_files_minor(tmp_path: Path) -> None:
    for name in ("nvidia3", "nvidiactl", "card0"):
        (tmp_path / name).touch()
    found = {name: device_minor(str(tmp_path / name)) for name in ("nvidia3", "nvidiactl", "card0", "none")}
    assert found == {"nvidia3": 3, "nvidiactl": None, "card0": None, "none": None}
    assert device_minor("/dev/null") is None, "another driver's device"


def _slurmd(folder: Path, executable: str, *, changed_s: float | None) -> Slurmd:
    conf = folder / "slurm.conf"
    return Slurmd(os.getpid(), 0, 1000.0, executable, conf, (990.0, None if changed_s is None else 1000.0 + changed_s))


def _program(folder: Path, text: str) -> str:
    path = folder / "slurmd-wlm"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


class Running:
    """A slurmd with this output, and what is read of it in procfs; each list of users is what one sample shows."""

    def __init__(self, *words: str, users: Sequence[int] = (os.geteuid(),), conf: str = "") -> None:
        self.pid, self.command, self.users, self.conf = os.getpid(), ["slurmd", *words], list(users), conf

    def slurmd(self) -> Running:
        return self

    def uids(self, _pid: int) -> frozenset[int]:
        return frozenset({self.users.pop(0) if len(self.users) > 1 else self.users[0]})

    def words(self, _process: Path) -> list[str]:
        return self.command

    def environ(self, _process: Path) -> dict[str, str]:
        return {"SLURM_CONF": self.conf} if self.conf else {}


def test_where_slurmds_configuration_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_over, served = tmp_path / "etc.conf", tmp_path / "served.conf"
    left_over.touch()
    monkeypatch.setattr(gres, "_SERVED", str(served))
    monkeypatch.setattr(gres, "_CONFIGURATIONS", (str(left_over), str(served)))

    def conf(*words: str, **more: str) -> Path:
        running = Running(*words, **more)  # type: ignore[arg-type]
        monkeypatch.setattr(gres, "process_files", running)
        return look(cast(SlurmNode, running)).conf

    assert conf() == left_over
    with pytest.raises(GresUnproven, match="not known"):
        conf("--conf-server", "head")
    served.touch()
    assert conf("--conf-server=head:6817") == served
    with pytest.raises(GresUnproven, match="any of"):
        conf()
    assert conf("-f", str(left_over)) == conf(conf=str(left_over)) == left_over


def test_a_process_that_takes_roots_rights_meanwhile_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running("-f", "/etc/passwd", users=[65534, os.geteuid()])
    monkeypatch.setattr(gres, "process_files", running)
    with pytest.raises(Unavailable, match="another program"):
        look(cast(SlurmNode, running))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
@pytest.mark.slow
def test_a_users_process_with_the_number_of_a_stale_pid_file_is_never_started_as_root(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hf-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        theirs = folder / "slurmd"
        shutil.copy("/bin/sleep", theirs)
        theirs.chmod(0o755)
        process = subprocess.Popen([str(theirs), "60"], user=65534, group=65534, extra_groups=[])
        try:
            pid_file = tmp_path / "slurmd.pid"
            pid_file.write_text(f"{process.pid}\n")
            node = SlurmNode("n1", pid_file, "scontrol", None)
            assert node.slurmd().pid == process.pid
            with pytest.raises(GresUnproven, match="does not run as root"):
                look(node)
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize(("changed_s", "fine"), [(-5.0, True), (None, True), (5.0, False)])
def test_a_configuration_that_slurmd_has_not_read_proves_nothing(
    tmp_path: Path, changed_s: float | None, fine: bool
) -> None:
    listed = line("gpu", 1, "/dev/nvidia2").strip()
    slurmd = _slurmd(tmp_path, _program(tmp_path, f"echo '{listed}' >&2"), changed_s=changed_s)
    call: Callable[[], object] = lambda: read(slurmd, "n1", minor_of)  # noqa: E731
    if fine:
        assert call() == {"gpu": (2,)}
        return
    with pytest.raises(GresUnproven, match="restart slurmd"):
        call()


def test_a_slurmd_that_does_not_answer_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gres, "SLURMD_TIMEOUT_S", 0.2)
    for text in ("exit 1", "exec sleep 60", "kill -SEGV $$"):
        slurmd = _slurmd(tmp_path, _program(tmp_path, text), changed_s=None)
        with pytest.raises(Unavailable):
            read(slurmd, "n1", minor_of)
    with pytest.raises(Unavailable):
        read(_slurmd(tmp_path, str(tmp_path / "none"), changed_s=None), "n1", minor_of)


class _Odd(SlurmNode):
    """Its slurmd is gone between two samples, then cannot be read, then is there."""

    def __init__(self, *problems: Exception) -> None:
        self.problems = list(problems)
        self.asked = threading.Event()

    def slurmd(self) -> psutil.Process:
        if not self.problems:
            self.asked.set()
            raise Unavailable("no slurmd")
        raise self.problems.pop(0)


def test_whatever_is_wrong_with_slurmd_the_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gres, "FIRST_AGAIN_S", 0.001)
    monkeypatch.setattr(gres, "LAST_AGAIN_S", 0.001)
    slurm = _Odd(psutil.NoSuchProcess(7), OSError("gone"), ValueError("odd"), psutil.AccessDenied(7))
    watch = gres.GresWatch(slurm)
    watch.start()
    assert slurm.asked.wait(30)
    assert watch.told(range(8))[0] is None
    watch.stop()
