"""One elastic job that really trains (torch, torchft over gloo), and every kind of fault, on a real Slurm with real daemons.

All on one site and one job, in this order; the groups' records are checked after each fault and as a set in the end."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.metrics.timings import Phase, measure
from holdfast.model.elastic_jobs.elastic import REQUEUE_EXIT
from holdfast.model.errors import HoldfastError
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import Incident
from holdfast.model.slurm.cluster import Job
from holdfast.practice.cluster.processes import start_ticks
from holdfast.practice.elastic import steps
from holdfast.practice.elastic.run import MICRO_BATCHES, ElasticRun
from support.practice import eventually
from support.site import PATIENCE_S, Drill, raise_site, raze

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(importlib.util.find_spec("torchft") is None, reason="torch and torchft are not installed"),
]
LEAST, MOST = 2, 3
BASE = frozenset(range(LEAST))
CRED_EXPIRE_S = 120.0
"""Slurm's own delay of a requeued job, for which no test should wait."""


class Training:
    """The job: two groups that are never preempted, one that may be, and a warm spare."""

    def __init__(self, drill: Drill) -> None:
        self.drill = drill
        self.run = ElasticRun(drill.site, f"{LEAST}:{MOST}", spares=1)
        self.run.submit()

    def whole(self) -> None:
        """Full strength, the spare ready, no fault left, and every step so far correct."""
        eventually(
            lambda: len(self.run.inside()) == MOST and len(self.run.outside()) == 1,
            within_s=PATIENCE_S,
            why=self._stand,
        )
        self.goes_on(MOST)
        assert steps.problems(self.run.attempts(), MICRO_BATCHES) == []

    def goes_on(self, groups: int, since_s: float | None = None) -> float:
        """Wait for three steps with this many groups; how long that took, in seconds."""
        began_s = time.time() if since_s is None else since_s
        try:
            return self.run.trains_with(groups, began_s, within_s=PATIENCE_S).at_s - began_s
        except HoldfastError as error:
            pytest.fail(f"{error}\n{self._stand()}")

    def element(self, group: int) -> Job:
        job = self.run.job_of(group)
        assert job is not None, f"Slurm shows nothing of group {group}"
        return job

    def starts(self) -> dict[int, str]:
        """The newest process of each group that trained."""
        return {a.group: a.start for a in self.run.attempts()}

    def runs_elsewhere(self, group: int, before: Job) -> float:
        """Wait until a group was queued again, once, and runs off the nodes that it had; how long that took, in seconds."""

        def yes() -> bool:
            job = self.element(group)
            return job.state == "RUNNING" and job.restarts > before.restarts and not set(job.nodes) & set(before.nodes)

        took_s = eventually(yes, within_s=CRED_EXPIRE_S - 30, why=self._stand)
        assert self.element(group).restarts == before.restarts + 1, "queued again more than once"
        return took_s

    def taken_over(self, hit: int, spare: int, since_s: float) -> None:
        """The spare trains in place of the faulty group, whose start is over for good."""
        gone = self.starts()[hit]
        eventually(
            lambda: any(a.group == spare and a.at_s > since_s for a in self.run.attempts()),
            within_s=PATIENCE_S,
            why=self._stand,
        )
        first_s = min(a.at_s for a in self.run.attempts() if a.group == spare and a.at_s > since_s)
        self.goes_on(MOST, first_s)
        assert not any(a.start == gone and a.at_s > first_s for a in self.run.attempts())

    def base_never_stopped(self) -> None:
        assert [self.element(group).restarts for group in BASE] == [0] * LEAST
        assert len({(a.group, a.start) for a in self.run.attempts() if a.group in BASE}) <= LEAST

    def left(self, group: int) -> int:
        """How often it has ended with 85: Slurm would have requeued it also without Holdfast."""
        said = (self.drill.practice.folder / "jobs" / f"elastic-{group}.out").read_text()
        return said.count(f"Exited with exit code {REQUEUE_EXIT}")

    def milestones(self, incident_id: str) -> list[str]:
        """The rendezvous events in the incident's record, in order and each once."""
        kinds = (EventKind.QUORUM_EVICTED, EventKind.QUORUM_FORMED)
        texts = [e.text for e in self.drill.store.events(incident_id=incident_id, kinds=kinds)]
        return [word for text in texts for word in ("shut out", "as many as before") if word in text]

    def _stand(self) -> str:
        shown = self.drill.practice.command("squeue", "-a", "-o", "%i %T %r %N %V %S %p")
        return f"inside {self.run.inside()} outside {self.run.outside()} now {time.time():.1f}\n{shown}"


@pytest.fixture(scope="module")
def shared_training(short_folder: Path) -> Iterator[Training]:
    drill = raise_site(
        Path(tempfile.mkdtemp(prefix="e", dir=short_folder)),
        nodes=6,
        spares=0,
        heartbeat_s=2.0,
        quorum=True,
        elastic=True,
    )
    try:
        yield Training(drill)
    finally:
        raze(drill)


@pytest.fixture
def training(shared_training: Training) -> Training:
    shared_training.whole()
    return shared_training


def test_a_more_important_job_takes_what_is_not_guaranteed_and_gives_it_back(training: Training) -> None:
    run, since_s = training.run, time.time()
    important = run.other_job(4, 3.0)
    training.goes_on(LEAST)
    eventually(lambda: run.state(important) == "RUNNING", within_s=PATIENCE_S)
    told(f"{waited_s(training.drill.job(important), since_s):.1f} s until it ran")
    eventually(lambda: run.state(important) not in ("RUNNING", "COMPLETING"), within_s=PATIENCE_S)
    grown_s = training.goes_on(MOST)
    told(f"{grown_s:.1f} s until full strength again")
    assert grown_s < CRED_EXPIRE_S - 30
    training.base_never_stopped()


def test_a_group_on_a_bad_gpu_is_shut_out_and_a_spare_takes_its_place(training: Training) -> None:
    drill, run = training.drill, training.run
    hit, spare = max(run.inside()), min(run.outside())
    before, left = training.element(hit), training.left(hit)
    since_s = time.time()
    drill.inject.xid(before.nodes[0], 79, gpu=3)
    training.taken_over(hit, spare, since_s)
    took_s = training.runs_elsewhere(hit, before)
    told(
        f"fault → the group's element runs elsewhere: {time.time() - since_s:.1f} s ({took_s:.1f} s after the take-over)"
    )
    incident = drill.incident_on(before.nodes[0])
    eventually(lambda: {Phase.GO_ON, Phase.REGROW} <= phases(drill, incident).keys(), within_s=PATIENCE_S)
    told(f"{ {phase.value: round(seconds, 2) for phase, seconds in phases(drill, incident).items()} }")
    assert training.milestones(incident.id) == ["shut out", "as many as before"]
    shown = holdfast(drill, "incident", "show", incident.id)
    assert f"group {hit}" in shown
    assert "node.out_of_service" in shown
    assert "as many as before" in shown
    assert f"job-{run.arrays[0]}" in holdfast(drill, "jobs")
    assert training.left(hit) == left + 1


def test_a_group_that_hangs_is_found_by_its_stacks_and_stopped_alone(training: Training) -> None:
    drill, run = training.drill, training.run
    hit, spare = max(run.inside()), min(run.outside())
    before, left = training.element(hit), training.left(hit)
    hang = run.folder / f"hang-{hit}"
    since_s = time.time()
    hang.touch()
    try:
        training.taken_over(hit, spare, since_s)
        stall_s = steps.stall_s(run.attempts(), since_s, BASE, within_s=PATIENCE_S)
        told(f"longest time between two steps of the others: {stall_s:.1f} s")
        training.runs_elsewhere(hit, before)
    finally:
        hang.unlink()
    told(f"hang → the group's element runs elsewhere: {time.time() - since_s:.1f} s")
    incident = hang_of(drill, before)
    shown = holdfast(drill, "incident", "show", incident.id)
    assert f"odd: rank 0 on {before.nodes[0]}" in shown
    assert "rest (watched.py" in shown
    training.base_never_stopped()
    assert training.left(hit) == left + 1


def test_daemons_that_are_killed_disturb_nobody(shared_training: Training) -> None:
    training, drill = shared_training, shared_training.drill
    training.goes_on(MOST)
    began, restarts = training.starts(), [training.element(g).restarts for g in range(MOST + 1)]
    drill.practice.processes.kill("controller")
    training.goes_on(MOST)
    drill.site.start_controller()
    drill.practice.processes.kill("quorum")
    time.sleep(3)
    back_s = time.time()
    drill.site.start_quorum()
    told(f"{training.goes_on(MOST, back_s):.1f} s from the start of the quorum service to the next step")
    node = training.element(1).nodes[0]
    ranks = processes_on(drill, node)
    drill.inject.kill_agent(node)
    training.goes_on(MOST)
    drill.practice.machine(node).start_agent()
    drill.site.wait_for_agents()
    training.goes_on(MOST)
    assert processes_on(drill, node) == ranks
    assert [training.element(g).restarts for g in range(MOST + 1)] == restarts
    assert training.starts() == began


def test_a_group_without_power_is_replaced(training: Training) -> None:
    drill, run = training.drill, training.run
    hit, spare = max(run.inside()), min(run.outside())
    before = training.element(hit)
    since_s = time.time()
    drill.inject.power_loss(before.nodes[0], shown_off=True)
    training.taken_over(hit, spare, since_s)
    told(f"longest time between two steps: {steps.stall_s(run.attempts(), since_s, BASE, within_s=PATIENCE_S):.1f} s")
    training.runs_elsewhere(hit, before)
    told(f"power loss → the group's element runs elsewhere: {time.time() - since_s:.1f} s")
    eventually(lambda: "shut out" in training.milestones(drill.incident_on(before.nodes[0]).id), within_s=PATIENCE_S)


def test_in_the_end_nothing_is_missing_or_doubled_and_who_was_not_hit_never_stopped(shared_training: Training) -> None:
    attempts = shared_training.run.attempts()
    told(f"{max(a.step for a in attempts)} steps by {sorted({(a.group, a.start) for a in attempts})}")
    assert steps.problems(attempts, MICRO_BATCHES) == []
    assert max(a.step for a in attempts) > 100
    shared_training.base_never_stopped()


def told(text: str) -> None:
    print(text)  # noqa: T201 - figures for whoever asks, with pytest -s


def waited_s(job: Job, since_s: float) -> float:
    return job.start_time.timestamp() - since_s if job.start_time is not None else float("nan")


def phases(drill: Drill, incident: Incident) -> dict[Phase, float]:
    events = drill.store.events(incident_id=incident.id)
    return dict(measure(events)[0].phases) if events else {}


def hang_of(drill: Drill, job: Job) -> Incident:
    """The incident for which a run was stopped because it hung."""
    mine = (r for r in drill.recoveries(job.key.job_id) if r.restarts_before == job.restarts)
    return next(i for r in mine for i in drill.store.incidents() if i.id == r.incident_id)


def holdfast(drill: Drill, *words: str) -> str:
    """Run the command line as an operator does; returns its output in one line."""
    env = {**drill.site.client_env(), "COLUMNS": "200"}
    said = drill.practice.command("env", *(f"{name}={value}" for name, value in env.items()), "holdfast", *words)
    return " ".join(said.split())


def processes_on(drill: Drill, node: str) -> dict[int, int | None]:
    """The training's processes on a node, with their start times."""
    return {pid: start_ticks(pid) for pid in drill.practice.machine(node).tree()}
