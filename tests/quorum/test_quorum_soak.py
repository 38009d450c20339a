"""Real groups in a real rendezvous under random faults, for minutes."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.kit.rooms import Group, Rooms, diverging, wait_for_groups

from holdfast.practice.elastic import steps
from support.watched_job import M, WatchedJob, wait

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(importlib.util.find_spec("torchft") is None, reason="torchft is not installed: the extra train"),
]

ROUNDS = int(os.environ.get("HOLDFAST_SOAK_ROUNDS", "12"))
NAMES = ("0", "1", "2")


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    made = Rooms(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def job(rooms: Rooms) -> Iterator[WatchedJob]:
    chosen = int(os.environ.get("HOLDFAST_SOAK_SEED", "0")) or int.from_bytes(os.urandom(4))
    print(f"seed {chosen}")  # noqa: T201
    made = WatchedJob(rooms, random.Random(chosen))
    made.begin()
    yield made
    made.stop()


FAULTS = {
    "kill": {-signal.SIGKILL},
    "kill and evict": {-signal.SIGKILL},
    "hang and evict": {85},
    "hiccup": {85},
    "evict": {85},
    "leave": {85, -signal.SIGUSR1},
    "start beside it": {1, 85},  # word: a fault's key
    "service": {85},
    "service and kill": {-signal.SIGKILL},
}
"""Each with the exit statuses of a start that it hits. A start that is ordered to leave before it listens ends by the signal."""


@pytest.mark.timeout(7200)
def test_random_faults_never_split_a_training_nor_lose_or_double_a_micro_batch(job: WatchedJob) -> None:
    job.go_on(3)
    for turn in range(1, ROUNDS + 1):
        group, fault = job.victim(), job.dice.choice(list(FAULTS))
        print(f"{time.strftime('%H:%M:%S')} turn {turn}: {fault} {group}~{job.start_of(group)}", flush=True)  # noqa: T201
        job.strike(group, fault)
        job.go_on(2)
        assert steps.problems(steps.read(job.rooms.folder), M) == []
        time.sleep(job.dice.random())
    job.go_on(3)
    attempts = steps.read(job.rooms.folder)
    print(f"{max(a.step for a in attempts)} steps, {len(attempts)} attempts, {dict(job.faults)}")  # noqa: T201
    assert steps.problems(attempts, M) == []
    wait(lambda: all(process.poll() is not None for _fault, process in job.ended), 120, lambda: str(job.ended))
    assert [(f, p.returncode) for f, p in job.ended if p.returncode not in FAULTS[f]] == []
    formed = [e["quorum_id"] for e in job.rooms.ask(do="events", limit=10_000)["events"] if e["kind"] == "quorum"]
    assert formed == sorted(set(formed)), "a quorum id was given twice"


@pytest.mark.timeout(1800)
def test_random_faults_never_split_a_job_nor_lose_a_step(rooms: Rooms) -> None:
    chosen = int(os.environ.get("HOLDFAST_SOAK_SEED", "0")) or int.from_bytes(os.urandom(4))
    print(f"seed {chosen}")  # noqa: T201
    dice = random.Random(chosen)
    opened = rooms.ask(do="open", room="r", rules={"min_groups": 1, "heartbeat_timeout_s": 2})
    living = {name: rooms.join(opened, name, "s0") for name in NAMES}
    wait_for_groups(list(living.values()), len(NAMES))
    for turn in range(1, ROUNDS + 1):
        time.sleep(dice.random())
        name = dice.choice(NAMES)
        fault = dice.choice(["kill", "kill and evict", "hang and evict", "leave", "service", "service and kill"])
        print(f"turn {turn}: {fault} {name}")  # noqa: T201
        strike(rooms, living[name], fault, dice)
        if fault != "service":
            living[name] = rooms.join(opened, name, f"s{turn}")
        wait_for_groups(list(living.values()), len(NAMES))
    assert diverging(rooms.groups) == 0
    for group in rooms.groups:
        steps = [s["step"] for s in group.steps()]
        assert steps == sorted(set(steps)), "a step was committed twice"
    formed = [e["quorum_id"] for e in rooms.ask(do="events", limit=10_000)["events"] if e["kind"] == "quorum"]
    assert formed == sorted(set(formed)), "a quorum id was given twice"


def strike(rooms: Rooms, group: Group, fault: str, dice: random.Random) -> None:
    if fault == "leave":
        group.send(signal.SIGUSR1)
        group.process.wait(30)
    elif fault.startswith("hang"):
        group.send(signal.SIGSTOP)
    elif "kill" in fault:
        group.process.kill()
    if fault.startswith("service"):
        rooms.kill()
        time.sleep(dice.uniform(0, 2))
        rooms.start()
    if fault.endswith("evict"):
        rooms.ask(do="evict", room="r", member=group.name, reason="drill")
        group.send(signal.SIGCONT)  # a hang that ends: it must be refused
