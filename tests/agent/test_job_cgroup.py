"""The job that a cgroup names: Slurm's own path, root's own directories, the job's own user."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from holdfast.agent.jobs import job_socket
from holdfast.agent.jobs.job_socket import JobProcesses
from holdfast.agent.node import job_cgroup
from holdfast.agent.node.job_cgroup import CgroupJob, hierarchy, job_in, job_of_cgroup, named_in
from holdfast.agent.node.processes import started_by_slurm
from holdfast.model.errors import Unavailable
from support.job_socket import KnownJobs

MINE = "0::/user.slice/user-1000.slice/user@1000.service"
V2 = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
V1 = "4:memory:/slurm/uid_1000/job_7/step_0/task_0"
IN_V1, IN_V2 = CgroupJob(7, 1000), CgroupJob(7, None)
GAMES = 5
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make directories that are root's")


@pytest.mark.parametrize(
    ("cgroups", "jobs"),
    [
        (V2, {IN_V2}),
        ("0::/system.slice/n1_slurmstepd.scope/job_7/step_batch/slurm", {IN_V2}),
        ("0::/slurmstepd.scope/job_7", {IN_V2}),
        (f"9:name=systemd:/\n8:pids:/\n{V1}", {IN_V1}),
        ("4:memory:/slurm_n1/uid_0/job_7/step_extern", {CgroupJob(7, 0)}),
        ("0::/system.slice/slurmd.service", set()),
        # what a user names in their own cgroup
        (f"{MINE}/app.slice/job_8", set()),
        (f"{MINE}/a\x0c0::/system.slice/slurmstepd.scope/job_8", set()),
        (f"{MINE}/a\u20280::/system.slice/slurmstepd.scope/job_8", set()),
        (f"{MINE}/slurmstepd.scope/job_8", set()),
        (f"{MINE}/system.slice/slurmstepd.scope/job_8", set()),
        (f"{MINE}/slurm/uid_0/job_8", set()),
        (f"{V2}/libpod-1/job_8", {IN_V2}),
        (f"{V2}/system.slice/slurmstepd.scope/job_8", {IN_V2}),
        (f"1:name=systemd:{MINE[3:]}/slurm/uid_0/job_8\n{V1}", {IN_V1}),
        ("0::/../../system.slice/slurmstepd.scope/job_8", set()),
        ("0::/system.slice/slurmstepd.scope/job_8x", set()),
        ("garbage", set()),
        ("", set()),
    ],
)
def test_only_slurms_own_cgroups_name_a_job(cgroups: str, jobs: set[CgroupJob]) -> None:
    assert {each.job for each in named_in(cgroups)} == jobs


class Trees:
    """Two hierarchies in a folder, one of v1 (``memory``) and the one of v2, and the mount table that shows them."""

    def __init__(self, folder: Path) -> None:
        self.v1, self.v2 = folder / "memory", folder / "unified"
        self.mounts = (
            f"30 25 0:27 / {folder}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
            f"31 25 0:28 /docker/1 {folder}/part rw - cgroup cgroup rw,memory\n"
            f"32 25 0:28 / {self.v1} rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
            f"33 25 0:29 / {self.v2} rw - cgroup2 cgroup2 rw,nsdelegate\n"
        )
        for root, path in ((self.v1, "slurm/uid_1000/job_7/step_0"), (self.v2, "system.slice/slurmstepd.scope/job_7")):
            (root / path).mkdir(parents=True)
            for made in (root, *root.rglob("*")):
                made.chmod(0o755)
                os.chown(made, 0, 0)

    def job(self, cgroups: str) -> CgroupJob | None:
        return job_in(named_in(cgroups), self.mounts)


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


@pytest.mark.parametrize(("end", "space"), [("\x0c", "\xa0"), ("\u2028", "\u2003"), ("\x85", "\x1f")])
def test_no_name_of_a_mounted_folder_adds_a_hierarchy(end: str, space: str) -> None:
    """A user's FUSE file system could claim that any folder is root's."""
    fields = ["33", "25", "0:29", "/", "/home/m/tree", "rw", "-", "cgroup2", "cgroup2", "rw"]
    forged = space.join(fields)
    assert hierarchy("", f"90 25 0:50 / /home/m/a{end}{forged} rw - fuse.x x rw\n") is None
    separated = " ".join(fields)
    assert hierarchy("", separated) == Path("/home/m/tree"), "as root would have mounted it"


@needs_root
def test_directories_that_are_roots_alone_are_slurms(trees: Trees) -> None:
    assert (trees.job(V1), trees.job(V2)) == (IN_V1, IN_V2)
    assert trees.job(f"{V1}\n5:cpuset:/slurm/uid_1000/job_7\n9:name=systemd:/") == IN_V1, "cpuset is not mounted here"
    assert trees.job(f"{V1}\n5:cpuset:/slurm/uid_1000/job_8") is None, "two jobs: neither"
    assert trees.job(f"{V1}\n5:cpuset:/slurm/uid_1001/job_7") is None, "two users: neither"
    os.chown(trees.v1 / "slurm/uid_1000/job_7/step_0", 1000, 1000)  # Slurm gives the user the step's
    assert trees.job(V1) == IN_V1


@needs_root
@pytest.mark.parametrize("path", ["slurm", "slurm/uid_1000", "slurm/uid_1000/job_7", ""])
def test_a_users_directory_on_the_way_proves_nothing(trees: Trees, path: str) -> None:
    """A subtree that was delegated to a user, in which the user makes ``uid_1000/job_7``."""
    os.chown(trees.v1 / path, GAMES, 0)
    assert trees.job(V1) is None
    os.chown(trees.v1 / path, 0, 0)
    (trees.v1 / path).chmod(0o775)
    assert trees.job(V1) is None, "another can make directories in it"


@needs_root
def test_a_cgroup_that_a_user_made_in_a_delegated_subtree_names_no_job(trees: Trees) -> None:
    delegated = trees.v2 / "system.slice/slurmstepd.scope"
    os.chown(delegated, GAMES, GAMES)
    subprocess.run(["mkdir", "job_77"], cwd=delegated, user=GAMES, group=GAMES, extra_groups=[], check=True)
    assert trees.job("0::/system.slice/slurmstepd.scope/job_77") is None
    os.chown(delegated, 0, 0)
    assert trees.job("0::/system.slice/slurmstepd.scope/job_77") is None, "it stays the user's"


@needs_root
def test_a_link_and_a_directory_that_is_gone_prove_nothing(trees: Trees) -> None:
    assert trees.job("0::/system.slice/slurmstepd.scope/job_9") is None
    (trees.v2 / "system.slice/slurmstepd.scope/job_9").symlink_to("job_7")
    assert trees.job("0::/system.slice/slurmstepd.scope/job_9") is None


@pytest.fixture
def top() -> Iterator[Path]:
    """A writable cgroup of this machine, below the root of a v1 hierarchy."""
    root = next(
        (each for name in ("pids", "freezer", "memory") if (each := Path("/sys/fs/cgroup", name)).is_dir()), None
    )
    if root is None:
        pytest.skip("no cgroups of v1 here")
    made = root / f"hf-test-{os.getpid()}"
    try:
        (made / "uid_1000/job_7").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error}")
    yield made
    for folder in (made / "uid_1000/job_7", made / "uid_1000", made):
        folder.rmdir()


@needs_root
def test_the_kernels_own_words(top: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        (top / "uid_1000/job_7/cgroup.procs").write_text(str(process.pid))
        assert job_of_cgroup(process.pid) == IN_V1
        os.chown(top, GAMES, GAMES)
        assert job_of_cgroup(process.pid) is None
        process.kill()


def test_only_a_whole_hierarchy_is_looked_into(trees: Trees) -> None:
    assert hierarchy("memory", trees.mounts) == trees.v1
    assert hierarchy("", trees.mounts) == trees.v2
    assert hierarchy("cpuacct,cpu", trees.mounts) == trees.v1.with_name("cpu")
    assert hierarchy("name=systemd", trees.mounts) is None
    assert job_in(named_in(V1), "") is None


def test_a_process_outside_of_jobs_is_in_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job_of_cgroup(os.getpid()) is None
    assert job_of_cgroup(2**22 - 1) is None, "it is gone"
    monkeypatch.setattr(job_cgroup, "named_in", lambda _text: named_in(V1))
    assert job_of_cgroup(os.getpid()) is None, "it is not there"


def _clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [1000.0]
    monkeypatch.setattr("holdfast.agent.jobs.job_socket.time.monotonic", lambda: now_s[0])
    return now_s


class _Slow(KnownJobs):
    """It answers after the caller has stopped waiting."""

    def __init__(self, now_s: list[float], takes_s: float) -> None:
        super().__init__(None)
        self._now_s, self._takes_s = now_s, takes_s

    def job_pids(self, job_id: int | None = None) -> Mapping[int, frozenset[int]]:
        self._now_s[0] += self._takes_s
        return super().job_pids(job_id)


class TestTheJobsUser:
    """v2 names none: slurmd's list of the tasks that Slurm itself started."""

    def test_another_than_the_one_whose_tasks_slurm_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(job_socket, "owner_of", {1: 0, 2: 1000, 3: 1001}.get)
        monkeypatch.setattr(job_socket, "user_behind", lambda _pid, uid: uid)
        monkeypatch.setattr(job_socket, "started_by_slurm", lambda pid: pid in (1, 2))
        asked = JobProcesses(KnownJobs({7: frozenset({1, 2, 3}), 8: frozenset({1})}))
        assert [asked.is_anothers(7, uid) for uid in (0, 1000, 1001)] == [True, False, True]
        assert [asked.is_anothers(job, 1000) for job in (8, 9)] == [False, False], "slurmd shows no task of a user's"

    def test_where_slurmd_does_not_say_the_cgroup_is_enough(self) -> None:
        assert not JobProcesses(KnownJobs(None)).is_anothers(7, 1000)

    def test_slurmd_is_asked_so_often_for_what_one_user_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A user without a job who names jobs without end; the job of another user is found all the same."""
        now_s = _clock(monkeypatch)
        slurm = KnownJobs({})
        asked = JobProcesses(slurm)
        for _ in range(100):
            assert asked.which((7,), 1000) is None
            now_s[0] += 0.6
        assert slurm.asked == 25, "20 at once, and 6 in the minute: the 26th is not full yet"
        monkeypatch.setattr(job_socket, "owner_of", {1: 1001}.get)
        monkeypatch.setattr(job_socket, "user_behind", lambda _pid, uid: uid)
        slurm.jobs = {8: frozenset({1})}
        assert asked.which((8,), 1001) == 8

    def test_slurmd_that_is_slow_is_left_in_peace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For any caller: what takes 5 s is done in a tenth of the time at most, and the reason is reported meanwhile."""
        now_s = _clock(monkeypatch)
        slurm = _Slow(now_s, 5.0)
        asked = JobProcesses(slurm)
        for uid in range(1000, 1400):
            with pytest.raises(Unavailable, match="did not answer"):
                asked.which((7,), uid)
            now_s[0] += 1.0
        assert slurm.asked == 8

    def test_a_task_is_what_slurmstepd_started(self, tmp_path: Path) -> None:
        command = ["-c", "sleep 60 & echo $!; wait"]
        stepd = tmp_path / "slurmstepd"
        shutil.copy(shutil.which("sh") or "/bin/sh", stepd)
        for program, started in ((str(stepd), True), ("/bin/sh", False)):
            with subprocess.Popen([program, *command], stdout=subprocess.PIPE, text=True) as shell:
                assert shell.stdout is not None
                task = int(shell.stdout.readline())
                assert started_by_slurm(task) is started
                assert not started_by_slurm(shell.pid)
                os.kill(task, 9)
        assert not started_by_slurm(2**22 - 1)
