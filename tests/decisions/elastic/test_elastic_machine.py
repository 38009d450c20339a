"""An elastic job among other users' jobs, drains, outages and crashes, in any order: what must always hold for its size."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.elastic_jobs.sizes import parse_sizes
from holdfast.model.policies.resizing import ElasticPolicy
from holdfast.model.slurm.cluster import HOLDING_STATES
from support.simulated.arrays import ElasticSite
from support.simulated.machines import Machine
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

NODES = 6
STEPS = ("Release", "DelayStart", "SetThrottle", "Requeue")
ELASTIC = ElasticPolicy(
    grow_after_idle_s=10.0,
    shrink_useless_after_s=30.0,
    settle_s=10.0,
    priority_wait_s=15.0,
    leave_drained_nodes=True,
    leave_deadline_s=30,
)
node_names = st.sampled_from([f"n{n + 1}" for n in range(NODES)])


class Elastic(RuleBasedStateMachine):
    """Rules are what may happen to the site; what is asserted are the promises of docs/elastic.md, "Who decides the size"."""

    @initialize(
        sizes=st.sampled_from(["2:6", "2:6:2", "1:6:1+4+6", "2:4"]),
        spares=st.sampled_from([0, 2]),
        preempts=st.booleans(),
    )
    def begin(self, sizes: str, spares: int, preempts: bool) -> None:
        self.site = ElasticSite(NODES, policy=replace(POLICY, elastic=ELASTIC))
        self.slurm = self.site.slurm
        self.sizes = parse_sizes(sizes)
        self.most = min(NODES, self.sizes.most + spares)
        self.base, self.flexible = self.slurm.submit_elastic(sizes, spares=spares)
        self.slurm.preempts = preempts
        if not preempts:  # all in one partition: no job is preempted
            for element in self.groups():
                element.partition = "gpu"
        self.others: list[SimJob] = []
        self.leaving: set[tuple[int, int]] = set()
        self.site.agents.leave = self._told
        self.slurm.on_requeue = self.site.watched(self._requeued)
        self.site.run(2)

    def groups(self) -> list[SimJob]:
        return [*self.slurm.elements(self.base), *self.slurm.elements(self.flexible)]

    def running(self) -> list[SimJob]:
        return [e for e in self.groups() if e.state == "RUNNING"]

    # Checks at the moment of each action

    def _told(self, machine: Machine, job_id: int, restarts: int) -> str:
        job = self.slurm.jobs[job_id]
        args = self._args(job_id, restarts)
        if (job_id, restarts) in self.leaving or job.state != "RUNNING" or job.restarts != restarts:
            return self.slurm.leave(machine, job_id, restarts)
        assert args["target"] in self.sizes.legal, "an illegal target"
        if args["reason"] == "preempt":
            assert job.array_job_id == self.flexible, "a base group left for a job's priority"
            assert any(o.state == "PENDING" and o.priority > job.priority for o in self.others), "for no job"
        elif args["reason"] == "scale":
            assert job.array_job_id == self.flexible
            assert len(self.running()) not in self.sizes.legal, "it was of use"
        else:
            assert any(self.slurm.nodes[n].drain for n in job.nodes), "its node serves"
        self._leaves(job)
        return self.slurm.leave(machine, job_id, restarts)

    def _args(self, job_id: int, restarts: int) -> dict[str, Any]:
        orders = [i.action for i in self.site.book.intents.values() if isinstance(i.action, SendOrder)]
        mine = [
            o.args
            for o in orders
            if o.verb is Verb.LEAVE and (o.args["job_id"], o.args["restarts"]) == (job_id, restarts)
        ]
        return dict(mine[-1])

    def _requeued(self, job: SimJob) -> None:
        assert self.slurm.requeued[job.job_id, job.restarts] == 0, "requeued twice"
        if job.state == "RUNNING":
            self._leaves(job)

    def _leaves(self, job: SimJob) -> None:
        """Holdfast reduced it, so the least number must remain."""
        if (job.job_id, job.restarts) not in self.leaving:
            self.leaving.add((job.job_id, job.restarts))
            left = [e for e in self.running() if (e.job_id, e.restarts) not in self.leaving]
            assert len(left) >= self.sizes.least, f"{len(left)} groups are left, {self.sizes.least} is the least"

    # What the environment does

    @rule(num_nodes=st.integers(1, NODES), priority=st.sampled_from([-1, 0, 5]))
    def somebody_submits(self, num_nodes: int, priority: int) -> None:
        self.others.append(self.slurm.submit(num_nodes, exclusive=True, priority=priority))

    @precondition(lambda self: self.others)
    @rule(data=st.data())
    def somebodys_job_ends(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(range(len(self.others))))
        self._end(self.others.pop(job))

    def _end(self, job: SimJob) -> None:
        if job.state == "PENDING":
            job.state, job.end = "CANCELLED", self.site.clock.now()
        self.slurm.finish(job, "COMPLETED")

    @rule(name=node_names)
    def operator_drains(self, name: str) -> None:
        self.slurm.operator_drains(name)

    @rule(name=node_names)
    def operator_resumes(self, name: str) -> None:
        self.slurm.operator_resumes(name)

    @rule(index=st.integers(0, NODES - 1), deaf=st.booleans())
    def a_launcher_hears_nothing(self, index: int, deaf: bool) -> None:
        job_id = self.groups()[index % len(self.groups())].job_id
        self.slurm.deaf = self.slurm.deaf | {job_id} if deaf else self.slurm.deaf - {job_id}

    @rule(name=node_names, up=st.booleans())
    def an_agent_falls_silent(self, name: str, up: bool) -> None:
        self.site.machine(name).agent_up = up

    @rule(away=st.booleans())
    def slurm_answers(self, away: bool) -> None:
        self.slurm.away = away

    @rule(kind=st.sampled_from(STEPS), moment=st.sampled_from(["planned", "started", "acted"]))
    def the_actor_will_crash(self, kind: str, moment: str) -> None:
        self.site.kill_at = (kind, moment)

    @rule()
    def the_controller_starts_anew(self) -> None:
        self.site.start_controller()

    @rule(seconds=st.sampled_from([1, 5, 20, 60, 150]))
    def time_passes(self, seconds: int) -> None:
        self.site.run(seconds, step_s=1 if seconds < 20 else 3)

    def teardown(self) -> None:
        """Without further events it grows to the largest possible size, and stays there."""
        if not hasattr(self, "site"):
            return
        self.slurm.away, self.slurm.deaf = False, set()
        for name in self.slurm.nodes:
            self.slurm.operator_resumes(name)
            self.site.machine(name).agent_up = True
        for job in self.others:
            self._end(job)
        self.site.run(400, step_s=2)
        assert len(self.running()) == self.most, self.site.slurm.view().jobs
        told = len(self.slurm.told)
        self.site.run(300, step_s=5)
        assert (len(self.running()), len(self.slurm.told)) == (self.most, told), "it does not come to rest"
        held = [n for j in self.slurm.jobs.values() if j.state in HOLDING_STATES for n in j.nodes]
        assert len(held) == len(set(held))


_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def test_whatever_happens_to_an_elastic_job() -> None:
    fast = settings(
        max_examples=6,
        stateful_step_count=12,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=_QUIET,
        phases=[Phase.generate],
    )
    run_state_machine_as_test(Elastic, settings=fast)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_whatever_happens_to_an_elastic_job_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    number = int(os.environ.get("HOLDFAST_SOAK_SEED") or random.randrange(2**32))
    examples = int(os.environ.get("HOLDFAST_SOAK_EXAMPLES") or 400)
    long = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        suppress_health_check=_QUIET,
        print_blob=True,
    )
    try:
        run_state_machine_as_test(seed(number)(Elastic), settings=long)
    finally:
        with capsys.disabled():  # needed to read a failure
            print(f"\nseed {number}: {examples} examples")  # noqa: T201
