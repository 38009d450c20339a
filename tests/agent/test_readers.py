"""Reading for users: one child for each, no second one while the first cannot be ended, and no thread that waits for ever."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.agent.node import readers as module
from holdfast.agent.node.readers import LeftBehind, ReaderPool, TooManyReads
from holdfast.model.errors import Unavailable
from holdfast_checks.probes.child import Children, Finished

UID = os.geteuid()
HANGS = "open(sys.argv[1]).read()"
"""Waits for the test to open the other end of a FIFO."""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """Where readers hang until the test writes to it."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    yield path
    path.unlink()


def _open(gate: Path) -> None:
    """Readers that wait there continue."""
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return


def unkillable() -> tuple[Children, list[int]]:
    """Children that SIGKILL does not end, as one in state D, and the pids that were sent it."""
    killed: list[int] = []
    return Children(kill=killed.append), killed


def eventually(true: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + 5.0
    while not true() and time.monotonic() < until_s:
        time.sleep(0.02)
    return true()


@pytest.mark.slow
def test_a_reader_that_cannot_be_ended_is_left_behind_and_its_user_refused_until_it_has_ended(gate: Path) -> None:
    children, killed = unkillable()
    readers = ReaderPool(children)
    began_s = time.monotonic()
    with pytest.raises(LeftBehind, match=rf"reader of uid {UID} \(pid \d+\) has hung in the kernel"):
        readers.run(UID, HANGS, (gate,), 1.0)
    (left,) = children.left_behind()
    for _ in range(5):
        with pytest.raises(LeftBehind, match=f"pid {left}"):
            readers.run(UID, "print('read')", (), 1.0)
    assert time.monotonic() - began_s < 5.0
    assert killed == [left], "no second one was started"
    assert readers.run(UID + 1, "print('read')", (), 10.0).out == b"read\n", "another user is read for"
    _open(gate)
    assert eventually(lambda: not children.left_behind())
    assert readers.run(UID, "print('read')", (), 10.0).out == b"read\n"


@pytest.mark.slow
def test_one_user_has_one_reader_at_a_time_and_cannot_take_all_places(
    gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_A_TIME", 2)
    children, _killed = unkillable()
    readers = ReaderPool(children)
    outcomes: list[object] = []

    def read() -> None:
        try:
            outcomes.append(readers.run(UID, HANGS, (gate,), 3.0))
        except Unavailable as error:
            outcomes.append(error)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(outcomes) >= 3), "four wait, three are refused at once"
    assert readers.run(UID + 1, "print('read')", (), 10.0).out == b"read\n"
    for thread in threads:
        thread.join(10.0)
    assert len(children.left_behind()) == 1
    assert all(isinstance(each, TooManyReads | LeftBehind) for each in outcomes), outcomes
    _open(gate)
    assert eventually(lambda: not children.left_behind())


@pytest.mark.slow
def test_those_who_wait_get_their_turn() -> None:
    readers = ReaderPool()
    outcomes: list[Finished] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(readers.run(UID, "print(1)", (), 20.0))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert [done.out for done in outcomes] == [b"1\n"] * 4


@pytest.mark.skipif(UID != 0, reason="only root becomes another user")
def test_the_reader_has_the_users_rights_alone() -> None:
    script = (
        "become_user(int(sys.argv[1]), 5.0)\n"
        "caps = [l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapPrm', 'CapEff'))]\n"
        "try: os.fork(); forked = True\n"
        "except OSError: forked = False\n"
        "print(os.getresuid(), caps, forked, sorted(os.environ))"
    )
    done = ReaderPool().run(65534, script, (65534,), 10.0)
    none = "0" * 16
    assert done.text == f"{(65534,) * 3} {[none, none]} False ['LC_ALL']\n"
