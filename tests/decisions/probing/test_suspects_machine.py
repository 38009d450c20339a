"""Jobs fail, paths break, and other faults occur: only nodes whose path was broken are ever taken out of service."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site

node_names = st.sampled_from([f"n{n + 1}" for n in range(8)])


class Paths(RuleBasedStateMachine):
    """What may happen to a cluster without any fault that a check could see."""

    convicted = 0

    def __init__(self) -> None:
        super().__init__()
        self.site = Site(8)
        self.broken: set[str] = set()

    @rule(name=node_names)
    def a_path_breaks(self, name: str) -> None:
        self.site.machine(name).path_broken = True
        self.broken.add(name)

    @rule(name=node_names)
    def a_path_heals(self, name: str) -> None:
        self.site.machine(name).path_broken = False

    @rule(nodes=st.integers(2, 6), seconds=st.sampled_from([1, 12, 40]))
    def a_job_fails(self, nodes: int, seconds: int) -> None:
        job = self.site.slurm.submit(nodes, comment="holdfast", exclusive=True)
        self.site.run(1)
        self.site.slurm.finish(job, "FAILED")
        self.site.run(seconds)

    @rule(nodes=st.integers(1, 3))
    def a_job_runs(self, nodes: int) -> None:
        self.site.slurm.submit(nodes, comment="holdfast", exclusive=True)

    @rule()
    def jobs_complete(self) -> None:
        for job in list(self.site.slurm.jobs.values()):
            self.site.slurm.finish(job, "COMPLETED")

    @rule(name=node_names, up=st.booleans())
    def an_agent(self, name: str, up: bool) -> None:
        self.site.machine(name).agent_up = up

    @rule()
    def the_controller_restarts(self) -> None:
        self.site.start_controller()

    @rule(away=st.booleans())
    def slurm(self, away: bool) -> None:
        self.site.slurm.away = away

    @rule(verb=st.sampled_from(["pause", "resume"]))
    def an_operator(self, verb: str) -> None:
        self.site.operate(verb)

    @rule(seconds=st.sampled_from([1, 5, 30, 300]))
    def time_passes(self, seconds: int) -> None:
        self.site.run(seconds, step_s=1 if seconds <= 30 else 5)

    @invariant()
    def only_broken_paths_are_taken_out(self) -> None:
        assert {node for _, node in self.site.slurm.taken_out} <= self.broken

    def teardown(self) -> None:
        self.site.slurm.away = False
        self.site.operate("resume")
        for machine in self.site.machines.values():
            machine.agent_up, machine.path_broken = True, False
        self.jobs_complete()
        self.site.run(2400, step_s=5)
        self.only_broken_paths_are_taken_out()
        probes = [i for i in self.site.store.intents(limit=10_000) if _is_probe(i.action)]
        assert all(i.settled for i in probes)
        still = [i for i in self.site.book.open_incidents() if i.suspects]
        assert not still, self.site.story(still[0].id)
        for incident in self.site.store.incidents():
            Paths.convicted += incident.check == "probe.pair"
            ended = (IncidentState.CLOSED, IncidentState.AWAITING_HUMAN)
            assert incident.state in ended, self.site.story(incident.id)


def _is_probe(action: Any) -> bool:
    return isinstance(action, SendOrder) and action.verb is Verb.PROBE_PAIR


@pytest.mark.slow
def test_whatever_happens_to_paths() -> None:
    quick = settings(
        max_examples=12,
        stateful_step_count=20,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    run_state_machine_as_test(Paths, settings=quick)
    assert Paths.convicted, "too little happened"
