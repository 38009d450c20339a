"""The order that ends a stuck job's processes: what is proved first, what is killed, and what is left alone. Real processes, no Slurm."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.agent.node.processes import EpilogProcess, JobInSlurm, SlurmNode, Stepd, age_s, job_seen, start_ticks
from holdfast.agent.orders import stuck_job
from holdfast.agent.orders.orders import ReceivedOrder
from holdfast.agent.orders.stuck_job import NodeSeen, end_stuck_job, node_seen
from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.ids import incident_of_reason
from holdfast_checks.probes import process_files

pytestmark = pytest.mark.slow

DRAINED = (
    "NodeName=n2 Arch=x86_64 State=IDLE+COMPLETING+DRAIN ThreadsPerCore=1"
    " Reason=holdfast[1m7x4r7qdyd0]: xid [root@2026-11-20T18:42:04]\n"
)
FREE = DRAINED.replace("+COMPLETING", "")
OVER = "7 COMPLETING 1\n"


def order(**args: object) -> ReceivedOrder:
    return ReceivedOrder("o1", "end_stuck_job", {"job_id": 7, "restarts": 0, "grace_s": 0.0, **args}, "", "", 1e9)


class FakeSlurm(SlurmNode):
    """Steps and epilogs are the test's own processes; scontrol's answer is text. The node is freed once they are gone."""

    def __init__(self, job: str = OVER, node: str = DRAINED) -> None:
        self._node = "n2"
        self.texts = {"job": job, "node": node}
        self.steps: list[Stepd] = []
        self.scripts: list[EpilogProcess] = []
        self.lets_go = True
        self.stale = False
        """The steps and epilogs stay listed, whatever has their pids by now."""
        self.begins: Callable[[], list[EpilogProcess]] = list
        """Epilogs that begin when the steps are gone."""

    def squeue(self, job_id: int, *, each: bool) -> str:
        assert job_id == 7
        return self.texts["each" if each and "each" in self.texts else "job"]

    def show(self, what: str, name: str = "") -> str:
        assert name == {"node": "n2", "reservation": ""}[what]
        if what == "node" and self.lets_go and not self.stepds(7) and not self.epilogs(7):
            return FREE if self.texts["node"] == DRAINED else self.texts["node"]
        return self.texts[what]

    def stepds(self, job_id: int | None = None) -> list[Stepd]:
        here = [s for s in self.steps if self._listed(s) and job_id in (None, s.job_id)]
        if not here and self.steps:
            self.scripts += self.begins()
            self.begins = list
        return here

    def epilogs(self, job_id: int) -> list[EpilogProcess]:
        return [s for s in self.scripts if self._listed(s)]

    def _listed(self, process: Stepd | EpilogProcess) -> bool:
        return self.stale or _alive(process.pid, process.started_ticks)


def _alive(pid: int, ticks: int) -> bool:
    stat = process_files.stat(pid)
    return stat is not None and not stat.ended and stat.started_ticks == ticks


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Family:
    """A shell with two children, one of them below another: a step's or an epilog's shape."""

    def __init__(self, *, leads_group: bool = False) -> None:
        script = "sleep 61 & sh -c 'sleep 62; :' & echo up; wait; sleep 63"
        self.shell = subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, process_group=0 if leads_group else None
        )
        assert self.shell.stdout is not None
        self.shell.stdout.readline()
        deadline = time.monotonic() + 5
        while len(self.below()) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.everybody = [(pid, start_ticks(pid) or 0) for pid in (self.shell.pid, *self.below())]

    @property
    def named(self) -> tuple[int, int]:
        return self.everybody[0]

    def below(self) -> list[int]:
        first = _children(self.shell.pid)
        return [*first, *(g for c in first for g in _children(c))]

    def left(self) -> int:
        """Wait until the killed processes are really gone."""
        deadline = time.monotonic() + 1.0
        while (left := sum(_alive(*one) for one in self.everybody)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return left

    def all_alive(self) -> bool:
        return all(_alive(*one) for one in self.everybody)

    def end(self) -> None:
        for pid, ticks in self.everybody:
            if _alive(pid, ticks):
                os.kill(pid, signal.SIGKILL)
        self.shell.wait()
        assert self.shell.stdout is not None
        self.shell.stdout.close()


@pytest.fixture
def family() -> Iterator[Callable[..., Family]]:
    made: list[Family] = []

    def make(**options: bool) -> Family:
        made.append(Family(**options))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck_job, "LETS_GO_WITHIN_S", 0.5)
    monkeypatch.setattr(stuck_job, "_LOOK_EVERY_S", 0.02)


def test_steps_and_their_tasks_are_killed_even_when_stopped_and_another_jobs_are_not(
    family: Callable[..., Family],
) -> None:
    batch, step, other = family(), family(), family()
    for pid, _ in step.everybody:
        os.kill(pid, signal.SIGSTOP)
    slurm = FakeSlurm()
    slurm.steps = [Stepd(*batch.named, 7, "batch"), Stepd(*step.named, 7, "0"), Stepd(*other.named, 8, "0")]
    done = end_stuck_job(slurm)(order())
    assert (done.ok, done.detail["ended"]) == (True, ["7.0", "7.batch"]), done
    tasks, stopped = set(done.detail["tasks"]), {pid for pid, _ in step.everybody[1:]}
    # A shell of the family that was not stopped may end when its child is gone.
    assert stopped < tasks <= stopped | {pid for pid, _ in batch.everybody[1:]}
    assert (batch.left(), step.left(), other.all_alive()) == (0, 0, True)


def test_a_pid_that_names_another_process_by_now_is_left_alone(family: Callable[..., Family]) -> None:
    stranger = family()
    slurm = FakeSlurm()
    pid, ticks = stranger.named
    slurm.steps, slurm.stale = [Stepd(pid, ticks - 1, 7, "batch")], True
    done = end_stuck_job(slurm)(order())
    assert (done.ok, done.detail["ended"], done.detail["tasks"], stranger.all_alive()) == (False, [], [], True)


def test_a_reused_pid_of_an_epilog_is_left_alone_too(
    family: Callable[..., Family], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck_job, "age_s", lambda _process: 60.0)
    stranger = family(leads_group=True)
    slurm = FakeSlurm()
    pid, ticks = stranger.named
    slurm.scripts, slurm.stale = [EpilogProcess(pid, ticks - 1)], True
    done = end_stuck_job(slurm)(order())
    assert (done.ok, done.detail["epilogs"], stranger.all_alive()) == (False, [], True)


def test_a_stuck_epilog_is_killed_with_all_of_its_group(family: Callable[..., Family]) -> None:
    script = family(leads_group=True)
    slurm = FakeSlurm()
    slurm.scripts = [EpilogProcess(*script.named)]
    done = end_stuck_job(slurm)(order())
    assert (done.ok, done.detail["epilogs"], script.left()) == (True, [script.shell.pid], 0)


def test_an_epilog_that_does_not_lead_a_group_takes_only_its_children(family: Callable[..., Family]) -> None:
    script, bystander = family(), family()
    assert os.getpgid(script.shell.pid) == os.getpgid(bystander.shell.pid) == os.getpgrp()
    slurm = FakeSlurm()
    slurm.scripts = [EpilogProcess(*script.named)]
    assert end_stuck_job(slurm)(order()).ok
    assert (script.left(), bystander.all_alive()) == (0, True)


def test_an_epilog_that_begins_after_the_steps_is_given_its_grace(family: Callable[..., Family]) -> None:
    step = family()
    slurm = FakeSlurm()
    slurm.steps = [Stepd(*step.named, 7, "0")]
    began: list[Family] = []

    def begin() -> list[EpilogProcess]:
        began.append(family(leads_group=True))
        return [EpilogProcess(*began[0].named)]

    slurm.begins = begin
    start = time.monotonic()
    done = end_stuck_job(slurm)(order(grace_s=0.4))
    assert (done.ok, len(done.detail["epilogs"]), began[0].left()) == (True, 1, 0)
    assert time.monotonic() - start >= 0.39


def test_an_order_after_which_slurm_still_waits_is_no_success(family: Callable[..., Family]) -> None:
    step = family()
    slurm = FakeSlurm()
    slurm.steps = [Stepd(*step.named, 7, "0")]
    slurm.lets_go = False
    done = end_stuck_job(slurm)(order())
    assert (done.ok, step.left(), done.detail["ended"]) == (False, 0, ["7.0"])
    assert "still waits" in done.summary


@pytest.mark.parametrize(
    ("job", "node", "why"),
    [
        (OVER, DRAINED.replace("+DRAIN", ""), "not drained by Holdfast"),
        (OVER, DRAINED.replace("holdfast[1m7x4r7qdyd0]: xid", "psu"), "not drained by Holdfast"),
        (OVER, DRAINED.partition(" Reason=")[0] + "\n", "not drained by Holdfast"),
        (OVER.replace("COMPLETING", "RUNNING"), DRAINED, "RUNNING"),
        (OVER.replace("COMPLETING", "COMPLETED"), DRAINED, "COMPLETED"),
        (OVER.replace(" 1\n", " 2\n"), DRAINED, "another one"),
    ],
)
def test_nothing_is_killed_unless_slurm_says_what_the_order_claims(
    family: Callable[..., Family], job: str, node: str, why: str
) -> None:
    step = family()
    slurm = FakeSlurm(job, node)
    slurm.steps = [Stepd(*step.named, 7, "0")]
    with pytest.raises(Rejected, match=why):
        end_stuck_job(slurm)(order())
    assert step.all_alive()


@pytest.mark.parametrize(
    "args", [{"restarts": -1}, {"restarts": True}, {"restarts": None}, {"job_id": 0}, {"grace_s": 99}]
)
def test_bad_arguments_are_refused(args: dict[str, object]) -> None:
    with pytest.raises(Rejected):
        end_stuck_job(FakeSlurm())(order(**args))


@pytest.mark.parametrize("text", ["", OVER.replace("7", "70"), OVER + OVER, "7 COMPLETING\n"])
def test_an_answer_that_does_not_name_the_job_proves_nothing(text: str) -> None:
    with pytest.raises(Unavailable, match="does not say"):
        job_seen(FakeSlurm(text), 7)


def test_what_slurm_says_is_read() -> None:
    assert job_seen(FakeSlurm("8 RUNNING 0\n" + OVER), 7) == JobInSlurm("COMPLETING", 1), "an array's other task"
    requeued = FakeSlurm("6 PENDING 0\n")
    requeued.texts["each"] = "6 PENDING 0\n7 PENDING 1\n"
    assert job_seen(requeued, 7) == JobInSlurm("PENDING", 1), (
        "without -r it is in the line of those that have not started"
    )
    found = node_seen(FakeSlurm(node=DRAINED.replace("IDLE+", "DOWN*+")))
    assert (found.flags >= {"DOWN", "DRAIN"}, found.reason.startswith("holdfast[1m7x4r7qdyd0]: xid")) == (True, True)
    slurm = FakeSlurm(node="slurm_load_node error: Unable to contact slurm controller\n")
    slurm.lets_go = False
    with pytest.raises(Unavailable):
        node_seen(slurm)
    assert isinstance(found, NodeSeen)


HOLD = "ReservationName=holdfast-node-1m7x4r7qdyd0-n2 StartTime=1 EndTime=2 Nodes=n2 NodeCnt=1 Users=root\n"


@pytest.mark.parametrize(
    ("reservations", "held"),
    [
        (HOLD, True),
        ("ReservationName=course StartTime=1 Nodes=n[1-4] NodeCnt=4 Users=bob\n" + HOLD, True),
        (HOLD.replace("Nodes=n2", "Nodes=n[2-3]"), False),
        (HOLD.replace("n2", "n22"), False),
        (HOLD.replace("holdfast-node-1m7x4r7qdyd0-", "holdfast-1m7x4r7qdyd0-"), False),
        ("No reservations in the system\n", False),
    ],
)
def test_a_node_that_is_kept_by_a_reservation_counts_as_drained(reservations: str, held: bool) -> None:
    slurm = FakeSlurm(node="NodeName=n2 Arch=x86_64 State=MIXED+COMPLETING+RESERVED ThreadsPerCore=1\n")
    slurm.texts["reservation"] = reservations
    slurm.lets_go = False
    found = node_seen(slurm)
    assert ("DRAIN" in found.flags) is held
    assert (incident_of_reason(found.reason) == "1m7x4r7qdyd0") is held


@pytest.fixture
def slurmd(tmp_path: Path) -> Iterator[SlurmNode]:
    """A process of that name with an epilog of job 7, one of job 8, a prolog of job 7, and a grandchild that only looks like one."""
    shutil.copy("/bin/sh", tmp_path / "slurmd")
    script = """
    run() { SLURM_SCRIPT_CONTEXT=$1 SLURM_JOB_ID=$2 sleep $3 & }
    run epilog_slurmd 7 71; run epilog_slurmd 8 72; run prolog_slurmd 7 73
    sh -c 'SLURM_SCRIPT_CONTEXT=epilog_slurmd SLURM_JOB_ID=7 sleep 74; :' &
    echo up; wait
    """
    process = subprocess.Popen(
        [tmp_path / "slurmd", "-c", script, "slurmd", "-N", "epilogs-n2"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert process.stdout is not None
    process.stdout.readline()
    (tmp_path / "pid").write_text(f"{process.pid}\n")
    yield SlurmNode("epilogs-n2", tmp_path / "pid", "false", None)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_only_slurmds_own_epilog_of_that_job_counts(slurmd: SlurmNode, tmp_path: Path) -> None:
    deadline = time.monotonic() + 5
    while not (found := slurmd.epilogs(7)) and time.monotonic() < deadline:
        time.sleep(0.02)  # the shell has forked, and not exec'ed yet
    assert [Path(f"/proc/{s.pid}/cmdline").read_bytes().split(b"\0")[:2] for s in found] == [[b"sleep", b"71"]]
    assert 0 < age_s(found[0]) < 10
    assert age_s(EpilogProcess(found[0].pid, found[0].started_ticks + 1)) == 0.0
    assert slurmd.epilogs(9) == []
    with pytest.raises(Unavailable):
        slurmd.show("job", "7")
    (tmp_path / "pid").unlink()
    assert slurmd.epilogs(7) == found, "Slurm 23.11 and later write no pid file"
