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

from holdfast.agent import verbs
from holdfast.agent.orders import Done, Order
from holdfast.agent.processes import SlurmNode, Stepd, start_ticks

pytestmark = pytest.mark.slow

WITH_TASK = "sleep 0.6 & wait; exec sleep 60"
"""A task that ends soon, in a step that then waits for somebody's word."""
BUSY = "sleep 60 & wait"
IDLE = "exec sleep 60"


class _Steps(SlurmNode):
    """A node with processes of ours for its slurmstepd."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []
        self.steps: list[Stepd] = []

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


def _order(node: _Steps, **args: float) -> Done:
    return verbs.end_leftover_step(node)(
        Order("o1", "end_leftover_step", {"job_id": 7, **args}, "", "", time.monotonic() + 60)
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
