"""Jobs whose frameworks save without reporting to Holdfast: what an agent's survey of their directory changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.agent.orders import survey_plan
from holdfast.agent.sending import answers
from holdfast.controller.timing.survey_turns import SurveyTurns
from holdfast.decisions.recovery.checkpoint_surveys import named
from holdfast.decisions.recovery.run_checkpoints import Complete, _reached
from holdfast.model.actions.action import IntentState, SendOrder, Verb
from holdfast.model.agents.report import Statement
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import Recovery, RecoveryPhase
from holdfast.model.jobs.surveys import SURVEYED, Written, dump_written
from holdfast.model.slurm.cluster import JobKey
from support.simulated import Site
from support.simulated.machines import Machine
from support.simulated.site import POLICY

PATIENT = replace(POLICY, repair=replace(POLICY.repair, rungs=()))


class Framework:
    """A job of one node that saves into its directory and reports only where that is."""

    def __init__(self, nodes: int = 12, *, registers: bool = True, **job: object) -> None:
        policy = replace(PATIENT, job=replace(PATIENT.job, **job))  # type: ignore[arg-type]
        self.site = Site(nodes, policy=policy)
        self.saved: dict[int | None, datetime] = {}
        self.readable = True
        self.hangs = False
        self.saves_late: int | None = None
        """The step that it saves once right after its directory was read."""
        self.faults = 0
        self.site.agents.survey = self._survey
        self.job = self.site.slurm.submit(1, comment="holdfast", exclusive=True)
        self.site.run(2)
        self.registers = registers
        self.register()

    def register(self) -> None:
        if self.registers:
            machine = self.site.machine(self.job.nodes[0])
            self.site.agents.state(
                machine,
                "checkpoint.register",
                self.job.job_id,
                self.job.restarts,
                path="/ckpt",
                detail={"layout": "dcp"},
            )
            self.site.run(1)

    def save(self, step: int | None) -> None:
        self.saved[step] = self.site.clock.now()

    def _survey(self, machine: Machine, args: Mapping[str, Any]) -> Statement | None:
        assert machine.node in self.job.nodes, "an agent of another job's node"
        now = self.site.clock.now()
        newest = sorted(self.saved.items(), key=lambda each: -1 if each[0] is None else each[0], reverse=True)[:3]
        complete = [Written(step, (now - at).total_seconds()) for step, at in newest] if self.readable else []
        detail: dict[str, str | bool] = {
            "known": self.readable,
            "complete": dump_written(complete),
            "layout": "dcp",
            "problem": "",
        }
        said = Statement(
            SURVEYED,
            args["job_id"],
            args["uid"],
            args["restarts"],
            now,
            complete[0].step if complete else None,
            args["dir"],
            detail,
        )
        if self.saves_late is not None:
            self.save(self.saves_late)
            self.saves_late = None
        return None if self.hangs else said

    def turn_up(self) -> None:
        """Each agent reads the directory that the controller names, as it does from time to time."""
        world = self.site.loop.world
        assert world is not None
        for node, targets in named(world).items():
            for target in targets:
                said = self._survey(self.site.machine(node), target)
                if said is not None:
                    self.site.agents.report(self.site.machine(node), statements=(said,))
        self.site.run(1)

    def fails(self, wait_s: float = 601) -> None:
        """A fault of its node, another one each time; then its next run begins and registers."""
        self.faults += 1
        self.site.fault(self.job.nodes[0], check=f"gpu.fault{self.faults}", code="x")
        self.site.run(8)
        if self.job.state == "RUNNING":
            self.register()
            self.site.run(wait_s, step_s=10)

    @property
    def recovery(self) -> Recovery:
        return self.site.recovery(self.job.job_id)


def test_a_framework_that_saves_is_not_held_whatever_fails() -> None:
    run = Framework()
    for number in range(5):
        run.save(20 * (number + 1))
        run.fails()
        assert not run.job.held, number
        assert run.recovery.checkpoint_step == 20 * (number + 1)
    assert run.job.state == "RUNNING"


def test_without_knowledge_no_job_is_held_for_lack_of_progress() -> None:
    for run in (Framework(registers=False), Framework()):
        run.readable = False
        for _ in range(7):
            run.fails()
        assert (run.job.held, run.job.state) == (False, "RUNNING")


def test_a_framework_that_is_known_to_save_nothing_newer_is_held_at_the_third() -> None:
    run = Framework()
    run.save(20)
    for number in range(3):
        assert not run.job.held, number
        run.fails()
    assert run.job.held
    assert run.recovery.phase is RecoveryPhase.HELD
    assert "3 failures with no checkpoint newer than step 20" in run.recovery.note


def test_a_run_that_registers_two_directories_is_not_judged_by_the_last_one() -> None:
    """Two trainings in one job: nothing is in the second one's directory yet."""
    run = Framework()
    for _ in range(4):
        machine = run.site.machine(run.job.nodes[0])
        said = {"path": "/ckpt/later", "detail": {"layout": "auto"}}
        run.site.agents.state(machine, "checkpoint.register", run.job.job_id, run.job.restarts, **said)
        run.site.run(1)
        run.fails()
    assert (run.job.held, run.job.state) == (False, "RUNNING")


def test_a_framework_that_never_saves_is_held_as_well() -> None:
    run = Framework()
    for _ in range(3):
        run.fails()
    assert run.job.held
    assert "no checkpoint at all" in run.recovery.note


def test_names_without_steps_count_by_their_time() -> None:
    run = Framework()
    for _ in range(4):
        run.save(None)  # last.ckpt, written again
        run.fails()
        assert not run.job.held
    for _ in range(2):
        run.fails()
    assert run.job.held
    assert "no checkpoint newer than the one of 2026-" in run.recovery.note


def test_a_dead_file_server_delays_no_drain_and_a_recovery_by_seconds_at_most() -> None:
    run = Framework()
    run.save(20)
    run.fails()
    run.fails()
    run.hangs = True
    bad = run.job.nodes[0]
    run.site.fault(bad, check="gpu.other", code="x")
    run.site.run(1)
    assert run.site.slurm.node(bad).draining or run.site.slurm.node(bad).out_of_service
    assert run.recovery.phase is RecoveryPhase.WAITING
    run.site.run(PATIENT.job.survey_wait_s + 3)
    assert (run.job.held, run.job.state, run.job.restarts) == (False, "RUNNING", 3)


def test_no_other_failure_waits_for_a_survey() -> None:
    run = Framework()
    run.hangs = True
    run.site.fault(run.job.nodes[0], check="gpu.other", code="x")
    run.site.run(3)
    assert (run.job.state, run.job.restarts) == ("RUNNING", 1)


@pytest.mark.parametrize("registers", [True, False])
def test_runs_that_die_at_once_are_bounded_though_nothing_is_known(registers: bool) -> None:
    run = Framework(registers=registers)
    run.readable = False
    for number in range(PATIENT.job.quick_deaths):
        assert not run.job.held, number
        run.fails(wait_s=400)
    assert run.job.held
    assert "5 runs in a row ended within 10 min of their start" in run.recovery.note


def test_steps_lost_and_from_where_it_went_on() -> None:
    run = Framework()
    for step in (20, 40, 60):
        run.site.run(100, step_s=10)
        run.save(step)
    run.site.run(50, step_s=10)  # 10 steps more
    run.fails(wait_s=20)
    recovery = run.recovery
    assert (recovery.checkpoint_step, recovery.checkpoint_known, recovery.stopped_step) == (60, True, 70)
    assert recovery.phase is RecoveryPhase.RUNNING
    run.save(80)
    run.turn_up()
    assert (run.recovery.phase, run.recovery.resumed_step) == (RecoveryPhase.RESUMED, 60)
    (event,) = run.site.store.events(kinds=(EventKind.JOB_RESUMED,))
    assert event.text.endswith("resumed from step 60, about 10 steps lost")
    assert event.detail["lost_steps"] == 10


@pytest.mark.parametrize("saves_on", [True, False])
def test_a_run_that_saves_the_step_that_it_loaded_once_more(saves_on: bool) -> None:
    """``for step in range(start, …): if step % k == 0: save(step)``."""
    run = Framework()
    run.save(20)
    run.site.run(10)
    run.save(40)
    run.site.run(10)
    run.fails(wait_s=20)
    run.save(40)
    run.turn_up()
    assert run.recovery.phase is RecoveryPhase.RUNNING, "nothing shows it yet"
    if saves_on:
        run.site.run(10)
        run.save(60)
        run.turn_up()
    else:
        run.site.run(3600, step_s=10)
    assert (run.recovery.phase, run.recovery.resumed_step) == (RecoveryPhase.RESUMED, 40 if saves_on else None)
    assert "did not resume" not in run.recovery.note


@pytest.mark.parametrize(("step", "words"), [(20, "saved step 20 though"), (30, "saved step 30 though")])
def test_a_run_that_starts_over_although_a_checkpoint_is_there_is_told(step: int, words: str) -> None:
    run = Framework()
    run.save(20)
    run.site.run(10)
    run.save(40)
    run.site.run(10)
    run.fails(wait_s=20)
    run.save(step)
    run.turn_up()
    assert (run.recovery.phase, run.recovery.resumed_step) == (RecoveryPhase.RESUMED, None)
    assert f"{words} step 40 was there: it did not resume from that checkpoint" in run.recovery.note


@pytest.mark.parametrize(("step", "told"), [(0, True), (40, True), (140, False), (150, False)])
def test_a_run_that_reports_that_it_resumed_before_what_was_saved_is_told(step: int, told: bool) -> None:
    site = Site(3)
    job = site.slurm.submit(1, comment="holdfast")
    site.run(5)

    def say(kind: str, **more: Any) -> None:
        site.agents.state(site.machine(job.nodes[0]), f"checkpoint.{kind}", job.job_id, job.restarts, **more)

    say("register", path="/ckpt", detail={"fenced": True})
    say("saved", step=140)
    site.run(5)
    site.fault(job.nodes[0])
    site.run(20)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    say("register", path="/ckpt", detail={"fenced": True})
    say("resumed", step=step)
    site.run(10)
    recovery = site.recovery(job.job_id)
    assert (recovery.phase, recovery.resumed_step) == (RecoveryPhase.RESUMED, step)
    assert (f"it resumed from step {step} though step 140 was saved" in recovery.note) == told


def test_a_run_that_saves_nothing_for_long_is_taken_to_have_gone_on_from_the_newest() -> None:
    run = Framework()
    run.save(40)
    run.site.run(10)
    run.fails()
    run.site.run(20)
    assert (run.recovery.phase, run.recovery.resumed_step) == (RecoveryPhase.RESUMED, 40)
    assert "by its newest checkpoint" in run.recovery.note


def test_what_the_next_run_finds_tells_of_the_one_before() -> None:
    """The node died: its agent could not read any more."""
    run = Framework()
    run.save(20)
    run.hangs = True
    run.site.run(10)
    run.fails(wait_s=10)
    assert not run.recovery.checkpoint_known
    run.hangs = False
    run.turn_up()
    assert (run.recovery.checkpoint_known, run.recovery.checkpoint_step) == (True, 20)


def test_what_is_saved_between_the_survey_and_the_stop_counts() -> None:
    run = Framework()
    for step in (20, 40):
        run.save(step)
        run.site.run(100, step_s=10)
    run.saves_late = 60
    run.fails(wait_s=20)
    assert run.recovery.checkpoint_step == 40
    run.save(80)
    run.turn_up()
    recovery = run.recovery
    assert (recovery.checkpoint_step, recovery.resumed_step, recovery.stopped_step) == (60, 60, 60)


def test_a_job_that_saves_until_it_is_stopped_is_judged_by_its_last_save() -> None:
    """A survey of long before the failure does not count as known."""
    run = Framework()
    run.save(20)
    run.fails()
    run.fails()
    run.turn_up()
    run.save(40)
    run.fails()
    assert (run.job.held, run.recovery.checkpoint_step) == (False, 40)


def test_one_agent_of_a_job_reads_and_each_run_once() -> None:
    site = Site(6)
    job = site.slurm.submit(4, comment="holdfast", exclusive=True)
    site.run(2)
    for node in job.nodes:
        site.agents.state(site.machine(node), "checkpoint.register", job.job_id, 0, path="/ckpt")
    site.run(2)
    world = site.loop.world
    assert world is not None
    assert {node: len(targets) for node, targets in named(world).items()} == {job.nodes[0]: 1}
    turns = SurveyTurns(lambda: world, site.clock)
    assert turns.of(job.nodes[0]) == [
        {"job_id": job.job_id, "uid": 1000, "restarts": 0, "dir": "/ckpt", "every_s": 600.0}
    ]
    assert turns.of(job.nodes[1]) == []
    site.machine(job.nodes[0]).agent_up = False
    site.run(60)
    world = site.loop.world
    assert world is not None
    assert list(named(world)) == [job.nodes[1]]
    site.fault(job.nodes[2], check="gpu.other", code="x")
    site.run(5)
    orders = [i for i in site.book.intents.values() if isinstance(i.action, SendOrder) and i.action.verb is Verb.SURVEY]
    assert [(i.action.target.node, i.state) for i in orders] == [(job.nodes[1], IntentState.DONE)]


def test_it_can_be_switched_off() -> None:
    run = Framework(survey_s=0.0)
    for _ in range(4):
        run.fails()
    assert not run.job.held
    assert not any(
        isinstance(i.action, SendOrder) and i.action.verb is Verb.SURVEY for i in run.site.book.intents.values()
    )


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _found(*pairs: tuple[int | None, float | None]) -> tuple[Complete, ...]:
    return tuple(Complete(step, None if ago is None else NOW - timedelta(seconds=ago)) for step, ago in pairs)


@pytest.mark.parametrize(
    ("found", "reached"),
    [
        (_found((60, 50), (40, 150), (20, 250)), 70),
        (_found((60, 50), (40, 150)), 70),
        (_found((60, 0), (40, 100)), 60),
        (_found((60, -3), (40, 100)), 60),  # the file server's clock is ahead
        (_found((60, 50)), None),
        (_found((60, 50), (40, 5000)), None),  # of the run before
        (_found((60, 50), (None, 150)), None),
        (_found((60, None), (40, 150)), None),
        (_found((60, 50), (60, 150)), None),
        (_found((60, 150), (40, 50)), None),  # copied in another order
        ((), None),
    ],
)
def test_the_step_that_a_run_had_reached(found: tuple[Complete, ...], reached: int | None) -> None:
    recovery = Recovery(
        job=JobKey("c", 7, NOW),
        restarts_before=0,
        incident_id="i",
        phase=RecoveryPhase.STOPPING,
        user="ann",
        uid=1000,
        nodes_before=("n1",),
        excluded_before=(),
        partition="gpu",
        gpus=8,
        created_at=NOW,
        started_at=NOW - timedelta(seconds=1000),
    )
    assert _reached(recovery, found) == reached


def test_many_small_jobs_of_one_user_keep_no_other_users_directory_from_being_read() -> None:
    """200 jobs of one CPU with names of directories as long as the job socket takes; bob's job comes last."""
    site = Site(1)
    jobs = [site.slurm.submit(1, gpus=0, stderr="") for _ in range(200)]
    jobs.append(site.slurm.submit(1, gpus=0, user="bob", uid=1001))
    site.run(2)
    path = "/" + "\U0001f4be" * 2_000
    for job in jobs:
        site.agents.state(site.machine("n1"), "checkpoint.register", job.job_id, 0, path=path, uid=job.uid)
    site.run(3)
    assert site.loop.world is not None
    mine = named(site.loop.world)["n1"]
    assert jobs[-1].job_id in [each["job_id"] for each in mine]
    assert len(mine) == survey_plan.MOST
    assert len(json.dumps(mine, ensure_ascii=False).encode()) < answers.MOST_BYTES - 100_000
