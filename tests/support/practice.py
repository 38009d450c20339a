"""Fixtures of the practice cluster: ``pytest_plugins = ["support.practice"]`` in the root conftest makes them known."""

from __future__ import annotations

import contextlib
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
    """Makes clusters for a single test; they are removed after it."""
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
    """The session's cluster, up, without jobs, reservations, drains or faults of another test."""
    clean(shared_practice)
    return shared_practice


def clean(practice: Practice) -> None:
    """Bring a cluster back to idle."""
    practice.up(wait=False)
    inject = Injector(practice)
    for name in practice.nodes:
        inject.heal(name)
        practice.machine(name).host.reset_gpus()
    end_jobs(practice)
    for line in practice.command("scontrol", "-a", "show", "reservation", "-o").splitlines():
        if line.startswith("ReservationName="):
            practice.command("scontrol", "delete", line.split()[0])
    eventually(lambda: all_idle(practice), within_s=60, every_s=0.2, why=lambda: said(practice))


def end_jobs(practice: Practice) -> None:
    """Wait until no job is left. A job that a test's fault keeps COMPLETING ends with its node's DOWN, as on any cluster."""

    def gone() -> bool:
        jobs = practice.command("squeue", "-h", "-a", "-o", "%A %T").split()
        waiting = [job for job, state in zip(jobs[::2], jobs[1::2], strict=True) if state != "COMPLETING"]
        if waiting:
            with contextlib.suppress(Rejected):  # gone meanwhile
                practice.command("scancel", *waiting)
        return not jobs

    began = time.monotonic()
    while not gone() and time.monotonic() - began < 5.0:
        time.sleep(0.1)
    for name in set(practice.command("squeue", "-h", "-a", "-o", "%N").split()):
        practice.command("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=test")
    eventually(gone, within_s=30, every_s=0.2, why=lambda: said(practice))


def all_idle(practice: Practice) -> bool:
    """Whether every node is idle. Those that are not are resumed, again and again: a node that was DOWN when slurmd
    came back, or that registers a boot after it was resumed, is taken out once more by slurmctld."""
    states = dict(line.split() for line in practice.command("sinfo", "-h", "-N", "-o", "%N %T").splitlines())
    away = [name for name in practice.nodes if states.get(name) != "idle"]
    for name in away:
        with contextlib.suppress(Rejected):  # in service, or becoming so
            practice.command("scontrol", "update", f"NodeName={name}", "State=RESUME")
    return not away


def said(practice: Practice) -> str:
    """State of a cluster on which a wait timed out, as Slurm reports it."""
    answers = (
        practice.command("sinfo", "-h", "-N", "-o", "%N %T %E"),
        practice.command("squeue", "-h", "-a", "-o", "%A %T %r %N"),
        *(practice.folder / "log" / "slurmctld.log").read_text(errors="replace").splitlines()[-15:],
    )
    return "\n".join(answers)


def eventually(
    true: Callable[[], bool], *, within_s: float = 10.0, every_s: float = 0.05, why: Callable[[], str] | None = None
) -> float:
    """Wait until a condition holds and return how long that took; fails the test, with ``why``, when it does not."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > within_s:
            pytest.fail(f"did not come true within {within_s:g} s\n{why() if why else ''}", pytrace=True)
        time.sleep(every_s)
    return time.monotonic() - began
