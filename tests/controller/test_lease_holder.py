"""The lease holder is a process and not a name. Two controllers of one name never lead together, a successor waits for none."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.clock import SystemClock
from holdfast.config.controller import load
from holdfast.controller import loop as loop_module
from holdfast.controller.lease_holder import REMEMBERED, Holder, ObservedLease, claim, current, latest
from holdfast.controller.wakeup import Alone
from holdfast.head.serving import Controller, build_controller
from holdfast.model.book import Change
from holdfast.model.errors import ConfigError, LeaderFencedOff
from holdfast.ports import Lease
from holdfast.store import SqlStore, open_store
from support.simulated.clock import SimClock
from support.simulated.store import MemoryStore
from support.store_nouns import NOW, later

TTL_S = 15.0


# The lock file


def _boot(folder: Path, boot_id: str = "boot-1") -> Path:
    path = folder / "boot_id"
    path.write_text(f"{boot_id}\n")
    return path


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "endless"])
def test_what_a_controller_puts_in_place_of_its_file_holds_up_no_actor(tmp_path: Path, kind: str) -> None:
    """It does not fill its memory either, nor make it read what belongs to the actor alone."""
    lock, secret = tmp_path / "lock", tmp_path / "secret"
    secret.write_text("boot\nsecret/0123456789ab\n")
    if kind == "fifo":
        os.mkfifo(lock)
    elif kind == "link":
        lock.symlink_to(secret)
    elif kind == "folder":
        lock.mkdir()
    else:
        with lock.open("wb") as file:
            file.truncate(1 << 40)
    assert current(lock) is None


_LOCKS: list[Alone] = []


@pytest.fixture(autouse=True)
def no_lock_is_left() -> Iterator[None]:
    yield
    while _LOCKS:
        _LOCKS.pop().release()


def _lock(folder: Path) -> Alone:
    _LOCKS.append(Alone(folder / "controller.lock"))
    return _LOCKS[-1]


def _process(folder: Path, name: str = "head", boot_id: str = "boot-1") -> tuple[Alone, Holder]:
    lock = _lock(folder)
    return lock, claim(lock, name, _boot(folder, boot_id))


def test_each_process_has_an_id_of_its_own_and_a_name_for_people(tmp_path: Path) -> None:
    lock, first = _process(tmp_path)
    lock.release()
    _, second = _process(tmp_path)
    assert first.id.startswith("head/")
    assert first.id != second.id
    assert first.ended == frozenset()
    assert second.ended == {first.id}
    assert current(tmp_path / "controller.lock") == second.id


def test_a_second_process_on_the_machine_neither_starts_nor_harms_the_file(tmp_path: Path) -> None:
    _lock, first = _process(tmp_path)
    with pytest.raises(ConfigError, match="another process of this kind runs here"):
        Alone(tmp_path / "controller.lock")
    assert current(tmp_path / "controller.lock") == first.id


def test_a_copy_of_the_machine_does_not_believe_that_the_original_has_ended(tmp_path: Path) -> None:
    _process(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy"))
    _lock, cloned = _process(copy, boot_id="boot-2")
    assert cloned.ended == frozenset()


def test_an_unknown_boot_believes_nothing(tmp_path: Path) -> None:
    lock, _ = _process(tmp_path, boot_id="")
    lock.release()
    lock, again = _process(tmp_path, boot_id="")
    assert again.ended == frozenset()
    lock.release()
    assert claim(_lock(tmp_path), "head", tmp_path / "missing").ended == frozenset()


def test_processes_that_died_before_they_led_are_remembered_a_while(tmp_path: Path) -> None:
    ids = []
    for _ in range(REMEMBERED + 3):
        lock, holder = _process(tmp_path)
        lock.release()
        ids.append(holder.id)
    lock, last = _process(tmp_path)
    assert last.ended == set(ids[-REMEMBERED:])


@pytest.mark.parametrize(
    "text", ["", "\n", "boot-1\nnonsense\n", "boot-1\n\n\n", "\x00\xff", "boot-1\nhead/123\nx y/0123456789ab"]
)
def test_whatever_the_file_says_the_actor_acts_for_nobody_or_for_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "controller.lock"
    path.write_bytes(text.encode("latin-1"))
    assert current(path) is None
    _, holder = _process(tmp_path)
    assert holder.ended == frozenset()
    assert current(path) == holder.id
    assert current(tmp_path / "missing") is None


def test_the_file_that_was_locked_last_names_the_controller_of_this_machine(tmp_path: Path) -> None:
    """The release before had its lock in the shared folder: during an upgrade, and after a way back, both are there."""
    lock, former = tmp_path / "lock", tmp_path / "former"
    assert latest(lock, former) == lock
    former.touch()
    assert latest(lock, former) == former
    lock.touch()
    os.utime(former, ns=(1, 1))
    assert latest(lock, former) == lock
    os.utime(lock, ns=(0, 0))
    assert latest(lock, former) == former
    former.unlink()
    assert latest(lock, former) == lock


def test_an_older_release_left_an_empty_file_and_a_host_name_in_the_lease(tmp_path: Path) -> None:
    """It is unknown on which machine that name is: its lease is waited for once."""
    (tmp_path / "controller.lock").touch()
    store = MemoryStore()
    old = store.take_lease("head", NOW, TTL_S)
    _, holder = _process(tmp_path)
    assert store.take_lease(holder.id, later(1), TTL_S, holder.ended) is None
    assert store.take_lease(holder.id, later(TTL_S + 1), TTL_S, holder.ended) == Lease(
        holder.id, 2, later(2 * TTL_S + 1)
    )
    assert old is not None
    assert store.take_lease("head", later(TTL_S + 2), TTL_S) is None


# The state machine of leading


@dataclass
class _Controller:
    """One process; ``lease``: the last one it was given."""

    folder: Path
    lock: Alone
    holder: Holder
    lease: Lease | None = None


class Leading(RuleBasedStateMachine):
    """Machines of one name, one database; processes start, die, hang and lead in any order."""

    make_store: Callable[[], SqlStore | MemoryStore]
    folder: Path
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        self.clock = SimClock()
        self.store = type(self).make_store()
        type(self).runs += 1
        self.place = type(self).folder / str(type(self).runs)
        self.alive: dict[int, _Controller] = {}
        self.died: set[str] = set()
        self.fences: dict[int, str] = {}

    def teardown(self) -> None:
        for each in self.alive.values():
            each.lock.release()
        if isinstance(self.store, SqlStore):
            self.store.close()

    @rule(machine=st.integers(0, 2))
    def starts(self, machine: int) -> None:
        folder = self.place / str(machine)
        folder.mkdir(parents=True, exist_ok=True)
        if machine in self.alive:
            with pytest.raises(ConfigError):
                Alone(folder / "controller.lock")
            return
        lock, holder = _process(folder, boot_id=f"boot-{machine}")
        assert holder.ended <= self.died, "one that lives was taken for dead"
        self.alive[machine] = _Controller(folder, lock, holder)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        gone = self.alive.pop(data.draw(st.sampled_from(sorted(self.alive))))
        self.died.add(gone.holder.id)
        gone.lock.release()

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def turns(self, data: st.DataObject) -> None:
        """One cycle of a controller: take the lease, write under its fence."""
        me = self.alive[data.draw(st.sampled_from(sorted(self.alive)))]
        before, now = self.store.lease(), self.clock.now()
        me.lease = self.store.take_lease(me.holder.id, now, TTL_S, me.holder.ended)
        if me.lease is None:
            assert before is not None
            assert before.expires_at > now
            assert before.holder not in me.holder.ended, "a dead predecessor was waited for"
            return
        if before is not None and before.holder != me.holder.id:
            assert me.lease.fence == before.fence + 1
            assert before.expires_at <= now or before.holder in self.died, "a living leader was overthrown"
        assert self.fences.setdefault(me.lease.fence, me.holder.id) == me.holder.id, "two processes under one fence"
        self.store.commit(Change(), me.lease.fence)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def writes_after_a_pause(self, data: st.DataObject) -> None:
        """A process that hung continues where it was: its write is refused once another one has led."""
        me = self.alive[data.draw(st.sampled_from(sorted(self.alive)))]
        held = self.store.lease()
        if me.lease is None or held is None:
            return
        if held.fence == me.lease.fence:
            self.store.commit(Change(), me.lease.fence)
        else:
            with pytest.raises(LeaderFencedOff):
                self.store.commit(Change(), me.lease.fence)

    @rule(seconds=st.sampled_from([0.5, 5.0, TTL_S + 0.5]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def at_most_one_may_act(self) -> None:
        """An actor acts for the controller that its machine's file names, while that one holds the lease."""
        held = self.store.lease()
        if held is None or held.expires_at <= self.clock.now():
            return
        acting = [m for m in range(3) if current(self.place / str(m) / "controller.lock") == held.holder]
        assert len(acting) <= 1


def test_leading_in_memory(tmp_path: Path) -> None:
    Leading.make_store, Leading.folder = MemoryStore, tmp_path
    Leading.TestCase.settings = how(max_examples=60, stateful_step_count=40, deadline=None)
    Leading.TestCase("runTest").runTest()


@pytest.mark.slow
def test_leading_in_a_database(tmp_path: Path) -> None:
    template = tmp_path / "template.db"
    open_store(f"sqlite:///{template}").close()

    def make() -> SqlStore:
        path = tmp_path / f"{Leading.runs}.db"
        shutil.copy(template, path)
        return open_store(f"sqlite:///{path}")

    Leading.make_store, Leading.folder = make, tmp_path
    Leading.TestCase.settings = how(max_examples=15, stateful_step_count=30, deadline=None)
    Leading.TestCase("runTest").runTest()


# Real loops


def _head(folder: Path, store: str, name: str = "head") -> Path:
    folder.mkdir()
    path = folder / "controller.toml"
    path.write_text(
        f'[cluster]\nslurm_client = "commands"\n[server]\nport = 0\n[store]\nurl = "{store}"\n'
        f'[run]\ndir = "run"\nholder = "{name}"\n[quorum]\nenabled = false\n'
    )
    return path


@pytest.fixture
def two_heads(tmp_path: Path) -> Iterator[tuple[Controller, Controller]]:
    """Two machines with the same configured name, one database."""
    store = f"sqlite:///{tmp_path}/holdfast.db"
    heads = [build_controller(load(_head(tmp_path / name, store))) for name in ("a", "b")]
    yield heads[0], heads[1]
    for head in heads:
        head.bell.close()
        head.store.close()
        head.alone.release()
        cast(Any, head.loop.ring).__self__.close()


@pytest.mark.slow
def test_of_two_loops_with_one_name_exactly_one_leads(
    two_heads: tuple[Controller, Controller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "LEASE_TTL_S", 2.0)
    monkeypatch.setattr(loop_module, "TICK_S", 0.1)
    one, other = two_heads
    led: list[tuple[bool, bool]] = []

    async def both() -> None:
        runs = [asyncio.create_task(head.loop.run()) for head in two_heads]
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            await asyncio.sleep(0.05)
            led.append((one.loop.leads, other.loop.leads))
        first = one if one.loop.leads else other
        second = two_heads[1 - two_heads.index(first)]
        assert second.loop.led_by == first.loop.holder
        first.loop.stopping = True
        await runs[two_heads.index(first)]
        async with asyncio.timeout(10):
            while not second.loop.leads:
                await asyncio.sleep(0.05)
        assert first.loop.lease is not None
        assert second.loop.lease is not None
        assert second.loop.lease.fence == first.loop.lease.fence + 1
        second.loop.stopping = True
        await asyncio.gather(*runs)

    asyncio.run(both())
    assert (True, True) not in led
    assert len({pair for pair in led if any(pair)}) == 1, "and it is always the same one"


class _Head:
    """A controller in a separate process."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.log = config.with_suffix(".log")
        self._start()

    def _start(self) -> None:
        command = (sys.executable, "-m", "holdfast.head", "controller", "--config", str(self.config))
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))

    @property
    def id(self) -> str | None:
        return current(self.config.parent / "run" / "controller" / "lock")

    def killed_and_started(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self._start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def _until(done: Callable[[], bool], within_s: float, *heads: _Head) -> float:
    began = time.monotonic()
    while time.monotonic() - began < within_s:
        if done():
            return time.monotonic() - began
        time.sleep(0.05)
    raise AssertionError("\n".join(head.log.read_text()[-1500:] for head in heads))


@pytest.mark.slow
def test_a_killed_controller_leads_again_at_once_and_its_namesake_never(tmp_path: Path) -> None:
    """SIGKILL: the lock goes with the process, so the next one on the machine knows that its predecessor is dead."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    store = open_store(url)
    heads: list[_Head] = []
    try:
        heads.append(_Head(_head(tmp_path / "a", url)))
        _until(lambda: store.lease() is not None, 40, *heads)
        heads.append(_Head(_head(tmp_path / "b", url)))
        first, namesake = heads
        _until(lambda: namesake.id is not None, 40, *heads)
        before = store.lease()
        assert before is not None
        assert before.holder == first.id
        first.killed_and_started()
        _until(lambda: (now := store.lease()) is not None and now.fence != before.fence, 30, *heads)
        after = store.lease()
        assert after is not None
        assert (after.holder, after.fence) == (first.id, before.fence + 1)
        assert "event=leader " not in namesake.log.read_text()
        assert before.expires_at > SystemClock().now() - timedelta(seconds=30)
    finally:
        for head in heads:
            head.stop()
        store.close()


def test_a_lease_that_no_one_renews_ends_whatever_the_clock_says() -> None:
    standing = ObservedLease(15.0)
    lease = Lease("a", 1, NOW + timedelta(hours=1))
    assert standing.ended(lease, 100.0) == frozenset()
    assert standing.ended(lease, 115.0) == frozenset()
    assert standing.ended(lease, 115.1) == {"a"}
    renewed = replace(lease, expires_at=lease.expires_at + timedelta(seconds=5))
    assert standing.ended(renewed, 116.0) == frozenset(), "its holder lives"
    assert standing.ended(None, 200.0) == frozenset()
