"""When a slurmstepd counts as left over: real processes in its place."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.agent.node.processes import SlurmNode, Stepd, start_ticks
from holdfast.agent.orders import verbs
from holdfast.agent.orders.orders import OrderResult, ReceivedOrder
from holdfast.model.errors import Rejected

pytestmark = pytest.mark.slow

WITH_TASK = "sleep 0.6 & wait; exec sleep 60"
"""A task that ends soon, in a step that then waits for a message."""
BUSY = "sleep 60 & wait"
IDLE = "exec sleep 60"


class _Steps(SlurmNode):
    """A node with processes of ours for its slurmstepd."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []
        self.steps: list[Stepd] = []
        self.state = "COMPLETING"
        """By slurmctld's answer."""

    def squeue(self, job_id: int, *, each: bool) -> str:
        assert (job_id, each) == (7, False)
        return f"7 {self.state} 1\n"

    def start(self, script: str, step: str = "0") -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True)
        self.running.append(process)
        ticks = start_ticks(process.pid)
        assert ticks is not None
        self.steps.append(Stepd(process.pid, ticks, 7, step))
        return process

    def stepds(self, job_id: int | None = None) -> list[Stepd]:
        assert job_id == 7
        return list(self.steps)


@pytest.fixture
def node() -> Iterator[_Steps]:
    steps = _Steps()
    yield steps
    for process in steps.running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _order(node: _Steps, **args: float) -> OrderResult:
    return verbs.end_leftover_step(node, 0.1)(
        ReceivedOrder("o1", "end_leftover_step", {"job_id": 7, **args}, "", "", time.monotonic() + 60)
    )


def test_tasks_that_are_just_being_killed_are_waited_for_and_then_the_grace(node: _Steps) -> None:
    step = node.start(WITH_TASK)
    began_s = time.monotonic()
    done = _order(node, grace_s=0.3, wait_s=10.0)
    took_s = time.monotonic() - began_s
    assert (done.ok, done.detail["ended"]) == (True, ["7.0"]), done
    assert step.wait(1) == -signal.SIGKILL
    assert 0.6 + 0.3 <= took_s < 5.0, (
        "not before the task was gone and the grace over, and not only when the patience ends"
    )


def test_a_step_that_keeps_its_tasks_is_left_alone(node: _Steps) -> None:
    step = node.start(BUSY)
    done = _order(node, grace_s=0.1, wait_s=0.5)
    assert (done.ok, done.detail["busy"], done.detail["ended"]) == (False, ["0"], [])
    assert step.poll() is None


def test_one_that_ends_by_itself_meanwhile_is_not_waited_for(node: _Steps) -> None:
    reaper = threading.Thread(target=node.start("exec sleep 0.4").wait)
    reaper.start()
    began_s = time.monotonic()
    done = _order(node, grace_s=0.6, wait_s=10.0)
    assert (done.ok, done.detail["ended"]) == (True, [])
    assert time.monotonic() - began_s < 5.0
    reaper.join()


@pytest.mark.parametrize("step", ["batch", "extern", "interactive"])
def test_some_steps_are_never_ended(node: _Steps, step: str) -> None:
    process = node.start(IDLE, step)
    done = _order(node, grace_s=0.0, wait_s=0.3)
    assert (done.ok, done.detail["ended"]) == (True, [])
    assert process.poll() is None


@pytest.mark.parametrize("state", ["RUNNING", "CONFIGURING", "SUSPENDED", "STAGE_OUT"])
def test_no_step_is_ended_while_the_job_is_not_over_by_slurms_own_word(node: _Steps, state: str) -> None:
    """One that has no task yet, since its container is fetched, looks like one that has none any more."""
    step = node.start(IDLE)
    node.state = state
    time.sleep(0.2)
    with pytest.raises(Rejected, match=f"job 7 is {state}, its run is not over"):
        _order(node, grace_s=0.0)
    assert step.poll() is None


def test_a_step_of_a_run_that_begins_after_slurms_word_is_left_alone(node: _Steps) -> None:
    old = node.start(IDLE)
    started: list[subprocess.Popen[bytes]] = []
    said = node.squeue

    def squeue(job_id: int, *, each: bool) -> str:
        text = said(job_id, each=each)
        started.append(node.start(IDLE, "1"))
        return text

    node.squeue = squeue  # type: ignore[method-assign]
    time.sleep(0.2)
    assert _order(node, grace_s=0.0).detail["ended"] == ["7.0"]
    assert old.wait(1) == -signal.SIGKILL
    assert [each.poll() for each in started] == [None]


def test_no_order_makes_the_grace_shorter_than_the_agents_own(node: _Steps) -> None:
    node.start(IDLE)
    time.sleep(0.5)
    began_s = time.monotonic()
    done = verbs.end_leftover_step(node, 0.4)(
        ReceivedOrder("o1", "end_leftover_step", {"job_id": 7, "grace_s": 0}, "", "", time.monotonic() + 60)
    )
    assert done.detail["ended"] == ["7.0"]
    assert time.monotonic() - began_s >= 0.4
