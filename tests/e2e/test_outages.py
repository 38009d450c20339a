"""What Holdfast depends on fails in the middle of a recovery, and comes back."""

from __future__ import annotations

import os
import signal
import time

import pytest

from holdfast.model.errors import Unavailable
from support.postgres_outage import MortalPostgres
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

SHORT_S = 10.0
LONG_S = 60.0
_SAVED_S = 10.0
"""slurmctld writes its state some seconds late; this test is not about a job whose start it forgets."""
LENGTHS = [pytest.param(SHORT_S, id="short"), pytest.param(LONG_S, id="minute", marks=pytest.mark.soak)]


@pytest.fixture(params=LENGTHS)
def away_s(request: pytest.FixtureRequest) -> float:
    length: float = request.param
    return length


def goes_on(drill: Drill, job_id: int) -> None:
    """Check that each step happened once and nothing is left."""
    drill.closed(1, within_s=150)
    drill.trains(job_id, restarts=1)
    assert (len(drill.launched()), len(drill.terminated())) == (1, 1)
    assert len(drill.faults()) == 1
    drill.nothing_left([job_id])


def drained(drill: Drill, node: str) -> None:
    eventually(lambda: drill.node(node).draining, within_s=PATIENCE_S, every_s=0.01)


@pytest.mark.parametrize("kill", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["stopped", "killed"])
def test_slurmctld_away(make_drill: MakeDrill, away_s: float, kill: bool) -> None:
    drill = make_drill(heartbeat_s=2.0)
    job_id = drill.train()
    bad = drill.job(job_id).nodes[1]
    time.sleep(_SAVED_S if kill else 0.0)
    drill.inject.xid(bad, 79, 3)
    drained(drill, bad)
    drill.inject.stop_slurmctld(kill=kill)
    time.sleep(away_s)
    drill.inject.start_slurmctld()
    goes_on(drill, job_id)


@pytest.mark.soak
def test_slurmctld_away_when_the_fault_comes(make_drill: MakeDrill) -> None:
    drill = make_drill(heartbeat_s=2.0)
    job_id = drill.train()
    bad = drill.job(job_id).nodes[1]
    drill.inject.stop_slurmctld()
    drill.inject.xid(bad, 79, 3)
    time.sleep(SHORT_S)
    drill.inject.start_slurmctld()
    goes_on(drill, job_id)


@pytest.mark.parametrize("how", [pytest.param("frozen", marks=pytest.mark.soak), "killed"])
def test_ec2_away(make_drill: MakeDrill, away_s: float, how: str) -> None:
    drill = make_drill(heartbeat_s=2.0)
    job_id = drill.train()
    bad = drill.job(job_id).nodes[1]
    pid = drill.practice.processes.main_pid("aws")
    assert pid is not None
    drill.inject.xid(bad, 79, 3)
    drained(drill, bad)
    if how == "frozen":
        os.kill(pid, signal.SIGSTOP)
    else:
        drill.practice.processes.kill("aws")
    drill.trains(job_id, restarts=1)
    time.sleep(away_s)
    if how == "frozen":
        os.kill(pid, signal.SIGCONT)
    else:
        drill.site._start_aws()
    goes_on(drill, job_id)


def test_the_controller_away(make_drill: MakeDrill, away_s: float) -> None:
    drill = make_drill(heartbeat_s=2.0)
    job_id = drill.train()
    bad = drill.job(job_id).nodes[1]
    drill.inject.xid(bad, 79, 3)
    drained(drill, bad)
    drill.practice.processes.kill("controller")
    time.sleep(away_s)
    drill.site.start_controller()
    goes_on(drill, job_id)


@pytest.mark.soak
def test_the_controller_away_when_the_fault_comes(make_drill: MakeDrill) -> None:
    drill = make_drill(heartbeat_s=2.0)
    job_id = drill.train()
    drill.practice.processes.kill("controller")
    drill.inject.xid(drill.job(job_id).nodes[1], 79, 3)
    time.sleep(SHORT_S)
    drill.site.start_controller()
    goes_on(drill, job_id)


@pytest.mark.postgresql
@pytest.mark.parametrize("how", [pytest.param("frozen", marks=pytest.mark.soak), "killed"])
def test_the_database_away(own_postgres: MortalPostgres, make_drill: MakeDrill, away_s: float, how: str) -> None:
    server = own_postgres
    drill = make_drill(heartbeat_s=2.0, store_url=server.url)
    job_id = drill.train()
    bad = drill.job(job_id).nodes[1]
    drill.inject.xid(bad, 79, 3)
    drained(drill, bad)
    if how == "frozen":
        server.freeze()
    else:
        server.stop()
    time.sleep(away_s)
    if how == "frozen":
        server.thaw()
    else:
        server.start()
    goes_on(drill, job_id)


def test_everything_is_told_of_an_outage_in_one_line(make_drill: MakeDrill) -> None:
    drill = make_drill(heartbeat_s=2.0)
    drill.inject.stop_slurmctld()
    eventually(lambda: "event=slurm_unavailable" in drill.words(), within_s=PATIENCE_S)
    with pytest.raises(Unavailable):
        drill.scheduler.view()
    drill.inject.start_slurmctld()
    eventually(lambda: "event=slurm_back" in drill.words(), within_s=PATIENCE_S)
    assert drill.words().count("event=slurm_unavailable") == 1
