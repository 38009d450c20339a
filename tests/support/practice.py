"""Fixtures of the practice cluster: ``pytest_plugins = ["support.practice"]`` in the root conftest makes them known."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.model.errors import Rejected
from holdfast.practice import Injector, Practice

SLURM_HERE = shutil.which("slurmctld", path="/usr/sbin:/sbin:/usr/bin:/bin") is not None


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A folder with a short path that other users may enter; pytest's own are too long for Unix sockets and closed."""
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def make_practice(short_folder: Path) -> Iterator[Callable[..., Practice]]:
    """Makes clusters of a test's own; they are gone after it."""
    made: list[Practice] = []

    def make(**options: int | str) -> Practice:
        practice = Practice.create(tempfile.mkdtemp(prefix="c", dir=short_folder), **options)  # type: ignore[arg-type]
        made.append(practice)
        return practice

    yield make
    for practice in made:
        practice.remove()


@pytest.fixture(scope="session")
def shared_practice(short_folder: Path) -> Iterator[Practice]:
    """One cluster of five nodes for the whole session; use ``practice``, which cleans it."""
    practice = Practice.create(short_folder / "shared", nodes=5)
    try:
        practice.up()
        yield practice
    finally:
        practice.remove()


@pytest.fixture
def practice(shared_practice: Practice) -> Practice:
    """The session's cluster, up, with no job, reservation, drain or fault left from another test."""
    clean(shared_practice)
    return shared_practice


def clean(practice: Practice) -> None:
    """Bring a cluster back to idle."""
    practice.up(wait=False)
    inject = Injector(practice)
    for name in practice.nodes:
        inject.heal(name)
        practice.machine(name).host.reset_gpus()
    jobs = practice.command("squeue", "-h", "-a", "-o", "%A").split()
    if jobs:
        practice.command("scancel", *jobs)
    eventually(lambda: not practice.command("squeue", "-h", "-a").strip(), within_s=20)
    for line in practice.command("scontrol", "-a", "show", "reservation", "-o").splitlines():
        if line.startswith("ReservationName="):
            practice.command("scontrol", "delete", line.split()[0])
    for name in practice.nodes:
        try:
            practice.command("scontrol", "update", f"NodeName={name}", "State=RESUME")
        except Rejected:
            continue  # in service
    idle = len(practice.nodes)
    eventually(lambda: practice.command("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * idle, within_s=20)


def eventually(true: Callable[[], bool], *, within_s: float = 10.0, every_s: float = 0.05) -> float:
    """Wait until a condition holds and return how long that took; fails the test when it does not."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > within_s:
            pytest.fail(f"did not come true within {within_s:g} s", pytrace=True)
        time.sleep(every_s)
    return time.monotonic() - began
