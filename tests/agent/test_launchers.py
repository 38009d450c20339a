"""A group is ordered to leave: only through the launcher that asked for its rendezvous."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.agent.jobs.launchers import LauncherConnection, Launchers, ask_group_to_leave, event_line
from holdfast.agent.orders.orders import OrderResult, ReceivedOrder
from holdfast.model.errors import Rejected

NOW = datetime(2026, 11, 22, 8, 0, 0, 250_000, tzinfo=UTC)
ARGS: dict[str, Any] = {"job_id": 7, "restarts": 1, "reason": "drain", "deadline_s": 120, "target": 2}
EVENT = {"v": 1, "kind": "event", "reason": "drain", "deadline": "2026-11-22T08:02:00.250Z", "target": 2}


class Ends:
    """Two ends of a connection: the launcher's, and the agent's as the registry has it."""

    def __init__(self) -> None:
        self.agent, self.launcher = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.agent.setblocking(False)
        self.launcher.settimeout(5)

    def close(self) -> None:
        self.agent.close()
        self.launcher.close()


@pytest.fixture
def ends() -> Iterator[list[Ends]]:
    made = [Ends(), Ends()]
    yield made
    for each in made:
        each.close()


def leave(launchers: Launchers, **more: object) -> OrderResult:
    order = ReceivedOrder("o1", "ask_group_to_leave", {**ARGS, **more}, "", "", time.monotonic() + 60)
    return ask_group_to_leave(launchers, lambda: NOW)(order)


def test_the_launchers_of_the_run_are_told_and_no_others(ends: list[Ends]) -> None:
    launchers = Launchers()
    launchers.add(LauncherConnection(7, 1, 101, ends[0].agent))
    launchers.add(LauncherConnection(8, 1, 102, ends[1].agent))
    done = leave(launchers)
    assert (done.ok, done.summary) == (True, "notified 1 launcher(s) of run 1 of job 7")
    assert done.detail == {"launchers": [101]}
    assert json.loads(ends[0].launcher.recv(1000)) == EVENT
    ends[1].launcher.setblocking(False)
    with pytest.raises(BlockingIOError):
        ends[1].launcher.recv(1)


def test_who_does_not_listen_is_said(ends: list[Ends]) -> None:
    launchers = Launchers()
    assert leave(launchers).summary == "no launcher of run 1 of job 7 listens on this node"
    launchers.add(LauncherConnection(7, 2, 101, ends[0].agent))
    done = leave(launchers)
    assert (done.ok, done.detail) == (False, {"launchers": []})
    assert done.summary == "no launcher of run 1 of job 7 listens on this node; those of run 2 do"
    launchers.remove(ends[0].agent)
    assert launchers.runs_of(7) == []


def test_one_that_has_gone_or_does_not_read_is_not_told_and_holds_nobody_up(ends: list[Ends]) -> None:
    launchers = Launchers()
    for pid, each in enumerate(ends):
        launchers.add(LauncherConnection(7, 1, pid, each.agent))
    ends[0].launcher.close()
    assert leave(launchers).detail == {"launchers": [1]}
    with suppress(BlockingIOError):
        while ends[1].agent.send(b"x" * 65536):
            pass
    began_s = time.monotonic()
    assert not leave(launchers).ok
    assert time.monotonic() - began_s < 10.0


def test_asking_again_for_a_later_run_changes_what_a_launcher_stands_for(ends: list[Ends]) -> None:
    launchers = Launchers()
    launchers.add(LauncherConnection(7, 1, 101, ends[0].agent))
    launchers.add(LauncherConnection(7, 2, 101, ends[0].agent))
    assert launchers.runs_of(7) == [2]


def test_an_event_may_have_no_deadline_and_no_target() -> None:
    line = event_line({"reason": "spot"}, NOW)
    assert json.loads(line) == {"v": 1, "kind": "event", "reason": "spot", "deadline": None, "target": None}
    assert line.endswith(b"\n")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"job_id": 0}, "job_id"),
        ({"restarts": None}, "restarts"),
        ({"restarts": True}, "restarts"),
        ({"reason": "Drain now\n"}, "reason"),
        ({"reason": None}, "reason"),
        ({"deadline_s": -1}, "deadline_s"),
        ({"deadline_s": "soon"}, "deadline_s"),
        ({"target": -1}, "target"),
        ({"target": 1.5}, "target"),
    ],
)
def test_an_order_that_makes_no_sense_tells_nobody(ends: list[Ends], wrong: dict[str, object], why: str) -> None:
    launchers = Launchers()
    launchers.add(LauncherConnection(7, 1, 101, ends[0].agent))
    with pytest.raises(Rejected, match=why):
        leave(launchers, **wrong)
    ends[0].launcher.setblocking(False)
    with pytest.raises(BlockingIOError):
        ends[0].launcher.recv(1)
