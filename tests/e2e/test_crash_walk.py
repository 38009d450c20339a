"""The actor and the controller, killed at every boundary of a recovery and restarted: every step happens, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.practice import eventually
from support.site import Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(480)]

STEPS = (
    *("Drain", "HoldNodes", "PromoteSpare", "Requeue", "Release", "DropHold"),
    *("Launch", "Terminate", "Assign", "AdoptSpare", "Undrain"),
)
MOMENTS = ("planned", "started", "acted", "finished")


# What a database keeps of a commit when its client dies is in store/test_durability.py, for both; ./dev soak walks on both.
@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.soak])])
def make_walk(request: pytest.FixtureRequest, make_drill: MakeDrill) -> Callable[[], Drill]:
    """A site on each database."""

    def make() -> Drill:
        if request.param == "sqlite":
            return make_drill(heartbeat_s=2.0)
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return make_drill(heartbeat_s=2.0, store_url=server.url(server.create()))

    return make


def recovered_once(drill: Drill, job_id: int) -> None:
    """The complete recovery, counted from Slurm and at EC2, not from Holdfast's reports."""
    drill.closed(1, within_s=300)
    drill.trains(job_id, restarts=1)
    assert len(drill.launched()) == 1
    assert len(drill.terminated()) == 1
    drill.nothing_left([job_id])
    assert drill.job(job_id).restarts == 1
    assert len(drill.faults()) == 1


def test_the_actor_killed_at_every_boundary(make_walk: Callable[[], Drill]) -> None:
    drill = make_walk()
    job_id = drill.train()
    before = drill.job(job_id)
    crossed = drill.crashing("actor")
    drill.inject.xid(before.nodes[1], 79, 3)
    recovered_once(drill, job_id)
    assert drill.job(job_id).priority == before.priority
    assert _missing(crossed) == []


def _missing(crossed: Path) -> list[str]:
    """Boundaries of the recovery at which the actor did not die."""
    lines = crossed.read_text().splitlines()
    assert len(lines) == len(set(lines))
    return [
        f"{step} {moment}"
        for step in STEPS
        for moment in MOMENTS
        if not any(f"/{step}/" in line and line.endswith(moment) for line in lines)
    ]


def test_the_controller_killed_at_every_commit(make_walk: Callable[[], Drill]) -> None:
    drill = make_walk()
    job_id = drill.train()
    crossed = drill.crashing("controller")
    drill.inject.xid(drill.job(job_id).nodes[1], 79, 3)
    recovered_once(drill, job_id)
    lives = crossed.read_text().splitlines()
    assert sum(" before commit" in line for line in lives) >= 5
    assert sum(" after commit" in line for line in lives) >= 5
    assert any(line.startswith("accept ") for line in lives)
    eventually(lambda: drill.practice.processes.alive("controller"))
