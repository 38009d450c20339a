"""Orders that test a node or its network."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.findings.trust import Weighed
from holdfast.agent.node.node_idle import busy, held_by
from holdfast.agent.node.processes import SlurmNode, Stepd, may_be_of
from holdfast.agent.orders.orders import OrderResult, ReceivedOrder
from holdfast.agent.orders.probing import probe_pair, run_checks
from holdfast.agent.orders.verbs import validate
from holdfast.model.errors import Rejected, Unavailable
from holdfast_checks.active.pair import PairAnswer, PairSide, run_side
from holdfast_checks.known import all_checks
from holdfast_checks.probes import process_files
from holdfast_checks.result import Result, Severity, Verdict
from holdfast_checks.settings import ActiveSettings
from support.practice import eventually

IDLE = "NodeName=n1 Arch=x86_64 State=IDLE CPUAlloc=0"
ARGS: dict[str, Any] = {
    "role": "listen",
    "listener": "n1",
    "address": "127.0.0.1",
    "port": 8462,
    "secret": "a long secret",
}
GOOD = PairAnswer("done", wrong=0, rounds=8, gigabytes_s=1.5)


class Node(SlurmNode):
    """Answers of slurmd and slurmctld, one after the other; the last one repeats."""

    def __init__(
        self, *records: str, jobs: tuple[int, ...] = (), strays: tuple[str, ...] = (), slurmd: bool | None = None
    ) -> None:
        """``slurmd``: whether it runs; None: where slurmctld answers."""
        super().__init__("n1", Path("/nowhere"), "scontrol", None)
        self._records = list(records or (IDLE,))
        self._jobs = jobs
        self._strays = strays
        self._slurmd = self._records != [""] if slurmd is None else slurmd

    def has_slurmd(self) -> bool:
        return self._slurmd

    def strays(self) -> list[str]:
        return list(self._strays)

    def address_of(self, name: str) -> tuple[str, int]:
        if self._records == [""]:
            raise Unavailable("slurmctld does not answer")
        if name != "n1":
            raise Rejected(f"Slurm has no node {name}")
        return "127.0.0.1", 6818

    def stepds(self, job_id: int | None = None) -> list[Stepd]:
        return [Stepd(1, 1, job, "0") for job in self._jobs]

    def show(self, what: str, name: str = "") -> str:
        record = self._records.pop(0) if len(self._records) > 1 else self._records[0]
        if not record:
            raise Unavailable("slurmctld does not answer")
        return record


def order(**args: object) -> ReceivedOrder:
    return ReceivedOrder("o1", "probe_pair", args, "", "", time.monotonic() + 60)


@pytest.mark.parametrize(
    ("state", "free"),
    [
        ("IDLE", True),
        ("IDLE+DRAIN", True),
        ("DOWN+DRAIN", True),
        ("IDLE*", True),
        ("IDLE+PLANNED", True),
        ("IDLE+COMPLETING", False),
        ("IDLE+COMPLETING+DRAIN", False),
        ("ALLOCATED", False),
        ("MIXED+DRAIN", False),
        ("UNKNOWN", False),
    ],
)
def test_a_node_is_free_only_when_slurm_says_so(state: str, free: bool) -> None:
    assert (busy(f"NodeName=n1 State={state} ThreadsPerCore=1") is None) is free


def test_both_witnesses_are_asked() -> None:
    assert held_by(Node()) is None
    assert held_by(Node(jobs=(7,))) == "job 7"
    assert "ALLOCATED" in str(held_by(Node("State=ALLOCATED")))
    assert "no state" in str(held_by(Node("gibberish")))
    with pytest.raises(Unavailable):
        held_by(Node(""))


def said(done: OrderResult) -> tuple[bool, object]:
    return done.ok, done.detail["said"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (GOOD, (True, "done")),
        (dataclasses.replace(GOOD, wrong=2), (False, "failed")),
        (PairAnswer("failed", "timed out"), (False, "failed")),
        (PairAnswer("unknown", "no PyTorch"), (False, "unknown")),
    ],
)
def test_what_one_side_saw(answer: PairAnswer, told: tuple[bool, str]) -> None:
    assert said(probe_pair(lambda _side: answer, Node())(order(**ARGS))) == told


def test_a_job_on_the_node_means_no_probe_and_no_word_about_the_path() -> None:
    asked: list[PairSide] = []

    def run(side: PairSide) -> PairAnswer:
        asked.append(side)
        return PairAnswer("failed", "timed out")

    assert said(probe_pair(run, Node("State=MIXED"))(order(**ARGS))) == (False, "unknown")
    assert said(probe_pair(run, Node(jobs=(7,)))(order(**ARGS))) == (False, "unknown")
    assert asked == []
    came = probe_pair(run, Node(IDLE, "State=ALLOCATED"))(order(**ARGS))
    assert said(came) == (False, "unknown")
    assert len(asked) == 1


def test_a_machine_that_does_not_serve_yet_has_no_slurm_to_ask() -> None:
    assert said(probe_pair(lambda _side: GOOD, Node(""))(order(**ARGS, serves=False))) == (True, "done")


@pytest.mark.parametrize(
    "changed",
    [
        {"role": "umpire"},
        {"transport": "pigeon"},
        {"address": ""},
        {"address": "169.254.169.254"},
        {"listener": "n2"},
        {"listener": None},
        {"secret": "short"},
        {"secret": None},
        {"port": 22},
        {"port": 70000},
        {"rounds": 0},
        {"size_bytes": 1},
        {"deadline_s": 0},
        {"deadline_s": 1000},
    ],
)
def test_what_makes_no_sense_is_rejected(changed: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        probe_pair(lambda _side: GOOD, Node())(order(**{**ARGS, **changed}))


@pytest.mark.parametrize("role", ["listen", "connect"])
def test_a_pair_is_probed_at_the_address_of_a_node_of_this_cluster_alone(role: str) -> None:
    def elsewhere(node: Node, **more: object) -> OrderResult:
        return probe_pair(lambda _side: GOOD, node)(order(**{**ARGS, "role": role, "address": "10.9.9.9"}, **more))

    for serves in (True, False):
        with pytest.raises(Rejected, match=r"node n1 is at 127\.0\.0\.1 in Slurm, not at 10\.9\.9\.9"):
            elsewhere(Node(), serves=serves)
    with pytest.raises(Unavailable):
        elsewhere(Node(""))


def result(check: str, verdict: Verdict, severity: Severity = Severity.FATAL) -> Weighed:
    if verdict in (Verdict.OK, Verdict.UNKNOWN, Verdict.SKIPPED):
        return Weighed(Result(check, verdict, summary="what it saw"))
    failed = verdict is Verdict.FAILED
    return Weighed(Result.finding(check, severity, failed=failed, code="x", summary="what it saw"))


KNOWN = {name: all_checks()[name] for name in ("active.burn", "active.memory", "dcgm.diag1", "host.disk")}


def checked(results: Mapping[str, tuple[Weighed, ...]], node: SlurmNode | None = None, **args: object) -> OrderResult:
    def run(names: list[str]) -> dict[str, tuple[Weighed, ...]]:
        return {name: results[name] for name in names if name in results}

    return run_checks(run, KNOWN, node or Node())(order(**{"checks": list(results), **args}))


OK, FAILED = Verdict.OK, Verdict.FAILED


@pytest.mark.parametrize(
    ("results", "outcome"),
    [
        ({"active.burn": (result("active.burn", OK),)}, "ok"),
        ({"active.burn": (result("active.burn", Verdict.SKIPPED),)}, "ok"),
        ({"active.burn": (result("active.burn", OK), result("active.burn", FAILED))}, "bad"),
        ({"active.burn": (result("active.burn", FAILED, Severity.WARNING),)}, "ok"),
        ({"active.burn": (result("active.burn", Verdict.UNKNOWN),)}, "unknown"),
        ({"active.burn": ()}, "unknown"),
        (
            {"active.burn": (result("active.burn", FAILED),), "host.disk": (result("host.disk", Verdict.UNKNOWN),)},
            "bad",
        ),
    ],
)
def test_checks_by_order(results: dict[str, tuple[Weighed, ...]], outcome: str) -> None:
    done = checked(results)
    assert (done.detail["outcome"], done.ok) == (outcome, outcome == "ok")


def test_checks_say_what_is_bad_what_is_unknown_and_what_was_skipped() -> None:
    done = checked(
        {
            "active.burn": (result("active.burn", FAILED),),
            "active.memory": (result("active.memory", Verdict.SKIPPED),),
            "host.disk": (result("host.disk", Verdict.UNKNOWN),),
        },
        checks=["active.burn", "active.memory", "host.disk", "custom.elsewhere"],
    )
    assert [text.split()[0] for text in (*done.detail["bad"], *done.detail["unknown"])] == ["active.burn", "host.disk"]
    assert done.detail["skipped"] == ["active.memory", "custom.elsewhere"]


def test_checks_wait_for_an_empty_node_and_for_no_longer_than_they_may() -> None:
    results = {"active.burn": (result("active.burn", OK),)}
    assert checked(results, Node("State=ALLOCATED")).detail["outcome"] == "held"
    assert checked(results, Node(""), serves=False).ok
    assert checked(results, deadline_s=0).detail["outcome"] == "unknown"
    with pytest.raises(Rejected):
        checked({}, checks=[])


STRAY = ("slurmstepd 4711 of job 77",)


@pytest.mark.parametrize(
    ("node", "holder"),
    [
        (Node(jobs=(77,)), "job 77"),
        (Node("State=MIXED"), "Slurm shows the node MIXED"),
        (Node("", strays=STRAY, slurmd=False), STRAY[0]),
        (Node(strays=("process 4712 of job 77",)), "process 4712 of job 77"),
    ],
)
def test_no_order_has_a_running_job_disturbed_whatever_it_says(node: Node, holder: str) -> None:
    """A listener that was taken over reports that the machine does not serve yet."""
    ran: list[object] = []

    def run(what: Any) -> Any:
        ran.append(what)
        return {}

    check = run_checks(run, KNOWN, node)(order(checks=["active.burn"], serves=False))
    pair = probe_pair(run, node)(order(**ARGS, serves=False))
    active = order(checks=["active.burn"], expect_no_job=False)
    valid = validate(run, {}, list, int, node, KNOWN)(active)
    assert (check.detail["held"], pair.detail["held"], valid.detail["held"]) == (holder, holder, holder)
    assert (check.ok, pair.ok, valid.ok) == (False, False, False)
    assert ran == []


def test_where_slurmd_runs_and_slurm_cannot_be_asked_nothing_is_tried() -> None:
    node = Node("", slurmd=True)
    for verb, args in (
        (run_checks(lambda _names: {}, KNOWN, node), {"checks": ["active.burn"], "serves": False}),
        (probe_pair(lambda _side: GOOD, node), {**ARGS, "serves": False}),
        (validate(lambda _names: {}, {}, list, int, node, KNOWN), {"checks": ["active.burn"], "expect_no_job": False}),
    ):
        with pytest.raises(Unavailable):
            verb(order(**args))


@pytest.mark.parametrize("serves", [True, False])
def test_the_node_is_looked_at_again_before_each_active_check(serves: bool) -> None:
    ran: list[str] = []

    def taken(node: Node) -> Callable[[list[str]], dict[str, tuple[Weighed, ...]]]:
        def run(names: list[str]) -> dict[str, tuple[Weighed, ...]]:
            ran.extend(names)
            node._strays = STRAY
            return {name: (result(name, OK),) for name in names}

        return run

    both = ["active.burn", "active.memory"]
    record = IDLE if serves else ""
    node = Node(record)
    checked = run_checks(taken(node), KNOWN, node)(order(checks=both, serves=serves))
    assert (checked.ok, checked.detail["held"], ran) == (False, STRAY[0], ["active.burn"])
    ran.clear()
    node = Node(record)
    valid = validate(taken(node), {}, list, int, node, KNOWN)(order(checks=both, expect_no_job=serves))
    assert (valid.ok, valid.detail["held"], ran) == (False, STRAY[0], ["active.burn"])


@pytest.mark.parametrize(
    ("cgroup", "ours"),
    [
        ("/slurm/uid_1000/job_77", True),
        ("/system.slice/slurmstepd.scope/job_77", True),
        ("/system.slice/n1_slurmstepd.scope/job_77", True),
        ("/system.slice/n2_slurmstepd.scope/job_77", False),
    ],
)
def test_a_jobs_cgroup_counts_unless_it_names_another_node(cgroup: str, ours: bool) -> None:
    assert may_be_of(cgroup, "n1") is ours


@contextlib.contextmanager
def started(folder: Path, name: str, title: str, *more: str) -> Iterator[int]:
    """A program of this name, with this command line."""
    shutil.copy("/bin/sh", folder / name)
    process = subprocess.Popen(
        [title, "-c", "sleep 60 & wait", name, *more], executable=folder / name, start_new_session=True
    )
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_what_shows_a_job_where_no_slurmd_can_be_asked(tmp_path: Path) -> None:
    """Real processes: the node's slurmd has died; another node's, of a simulated cluster, is there or not."""
    conf = tmp_path / "slurm.conf"
    node = SlurmNode("lone7", None, "scontrol", conf)
    with started(tmp_path, "slurmstepd", "slurmstepd: [77.0]") as step:
        trace = f"slurmstepd {step} of job 77"
        eventually(lambda: trace in node.strays())
        assert not node.has_slurmd()
        with started(tmp_path, "slurmd", "slurmd", "-N", "lone8", "-f", str(conf)):
            eventually(lambda: trace not in node.strays())  # this process has started both
            assert not node.has_slurmd()
        assert trace in node.strays()
        with started(tmp_path, "slurmd", "slurmd", "-N", "lone7", "-f", str(conf)):
            eventually(node.has_slurmd)
            assert trace in node.strays()


@pytest.mark.slow
@pytest.mark.parametrize(("args", "of_a_job"), [(["infinity"], False), (["infinity", "77"], True), (["60"], True)])
def test_what_keeps_the_scope_of_all_steps_is_no_trace_of_a_job(
    tmp_path: Path, args: list[str], of_a_job: bool
) -> None:
    """With cgroup/v2 each node has a ``slurmstepd infinity`` for as long as it is up."""
    shutil.copy("/bin/sleep", tmp_path / "slurmstepd")
    process = subprocess.Popen(["/usr/sbin/slurmstepd", *args], executable=tmp_path / "slurmstepd")
    try:
        eventually(lambda: process_files.words(Path(f"/proc/{process.pid}"))[1:] == args)  # set after the executable
        assert (f"slurmstepd {process.pid}" in SlurmNode("lone7", None, "scontrol", None).strays()) is of_a_job
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process: needs root")
def test_a_user_who_calls_a_program_slurmstepd_keeps_no_node_from_being_tested() -> None:
    node = SlurmNode("lone7", None, "scontrol", None)
    process = subprocess.Popen(["slurmstepd: [77.0]", "-c", "while :; do :; done"], executable="/bin/sh", user=65534)
    try:
        time.sleep(0.1)
        assert process.poll() is None
        assert [each for each in node.strays() if str(process.pid) in each] == []
    finally:
        process.kill()
        process.wait()


def test_two_nodes_in_children_of_their_own() -> None:
    """The complete path except Slurm: orders, children, the secret on stdin, the sums."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])

    def side(role: str) -> OrderResult:
        args = {**ARGS, "role": role, "port": port, "size_bytes": 4096, "rounds": 2, "deadline_s": 8}
        return probe_pair(_child, Node())(order(**args))

    with ThreadPoolExecutor(2) as pool:
        listening, connecting = pool.map(side, ("listen", "connect"))
    assert (said(listening), said(connecting)) == ((True, "done"), (True, "done")), (listening, connecting)
    assert listening.detail["rounds"] == 2


def _child(side: PairSide) -> PairAnswer:
    """Two agents on one machine: each has its own children."""
    import json  # noqa: PLC0415 - here alone

    from holdfast_checks.active.check import child_argv  # noqa: PLC0415

    ran = subprocess.run(
        child_argv("", "pair_side"),
        input=json.dumps(dataclasses.asdict(side)),
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    told = json.loads(ran.stdout)
    return PairAnswer(told["said"], told.get("text", ""), told.get("wrong", 0), told.get("rounds", 0))


@pytest.mark.parametrize("python", ["", "/nonexistent/python"])
def test_a_port_that_is_taken_and_a_python_that_is_not_there_say_nothing_of_the_path(python: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        side = PairSide("listen", "127.0.0.1", int(server.getsockname()[1]), "a long secret", "tcp", 64, 1, 1.0)
        if python:
            with pytest.raises(OSError, match="nonexistent"):
                run_side(side, ActiveSettings(python=python))
            return
        answer = run_side(side, ActiveSettings())
    assert answer.said == "unknown"
    assert "cannot listen" in answer.text
