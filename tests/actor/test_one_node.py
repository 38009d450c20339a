"""A step at a provider or in Slurm reads its own node and job, never the whole cluster; what it proves is as strict as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from holdfast.actor.adapters import Outside
from holdfast.actor.carry_out import carry_out
from holdfast.model.actions.action import Intent, IntentState, Reboot, Replace, Requeue, SetDown, StopStart, Terminate
from holdfast.model.book import NodeMark
from holdfast.model.ids import slurm_reason
from holdfast.model.slurm.cluster import ClusterView
from holdfast.ports import IntentOutcome, Scheduler
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE
from support.simulated.slurm import SimJob, SimNode

INCIDENT = "0a1b2c3d4e5f"
STEPS: dict[str, Callable[[Site], Any]] = {
    "terminate": lambda _: Terminate("i-0001", "n1"),
    "replace": lambda _: Replace("n1", "i-0001", "boot", "token"),
    "reboot": lambda _: Reboot("n1", "i-0001", "boot", "token", via_slurm=False),
    "reboot through Slurm": lambda _: Reboot("n1", "i-0001", "boot", "token", via_slurm=True),
    "stop and start": lambda _: StopStart("n1", "i-0001", "boot", "token"),
}
IRREVERSIBLE = pytest.mark.parametrize("step", STEPS)


class OneNode:
    """A scheduler that shows no whole cluster, and counts what is read."""

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner
        self.reads: list[str] = []

    def view(self) -> ClusterView:
        raise AssertionError("the step reads all nodes, jobs and reservations")

    def __getattr__(self, name: str) -> Any:
        self.reads += [name] if name in ("node", "job", "jobs_on", "components", "all_nodes") else []
        return getattr(self._inner, name)


def _outside(site: Site) -> tuple[Outside, OneNode]:
    scheduler = OneNode(site.slurm)
    drained = {name: _mark(name, node) for name, node in site.slurm.nodes.items() if node.drain}
    real = site.actor.outside.marks
    return replace(
        site.actor.outside, scheduler=cast(Scheduler, scheduler), marks=lambda: {**drained, **real()}
    ), scheduler


def _mark(name: str, node: SimNode) -> NodeMark:
    """The proof that the drain is ours in its present form."""
    return NodeMark(name, INCIDENT, node.reason, node.user, node.time)


def _done(site: Site, action: Any) -> tuple[IntentOutcome, list[str]]:
    outside, scheduler = _outside(site)
    intent = Intent(f"{INCIDENT}/x/n1/1", INCIDENT, action, "drill", 1, IntentState.STARTED, site.clock.now())
    return carry_out(intent, outside), scheduler.reads


def _site(step: str) -> Site:
    return Site(3, can=IN_PLACE if step == "replace" else FULL, warm=False)


def _drained(site: Site) -> None:
    site.slurm.drain("n1", slurm_reason(INCIDENT, "gpu.xid: GPU 3 has fallen off the bus"))


@IRREVERSIBLE
def test_a_free_node_is_proved_free_by_two_reads(step: str) -> None:
    site = _site(step)
    _drained(site)
    outcome, reads = _done(site, STEPS[step](site))
    assert outcome.state is IntentState.DONE, outcome.text
    assert reads[:2] == ["node", "jobs_on"]
    assert set(reads) == {"node", "jobs_on"}


@IRREVERSIBLE
@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "STOPPED", "STAGE_OUT"])
def test_a_job_in_any_state_that_holds_the_node_stops_the_step(step: str, state: str) -> None:
    site = _site(step)
    job = site.slurm.submit(1, required=("n1",))
    _drained(site)
    job.state = state
    outcome, _ = _done(site, STEPS[step](site))
    assert (outcome.state, outcome.retryable) == (IntentState.FAILED, True), outcome.text
    assert not site.provider.terminated
    assert not site.provider.cycled
    assert not site.provider.replaced


@IRREVERSIBLE
def test_a_job_that_starts_between_the_two_reads_stops_the_step(step: str) -> None:
    """An operator resumed the node after it was read: the job that started is seen all the same."""
    site = _site(step)
    _drained(site)
    node = site.slurm.node

    def resumed_after(name: str) -> Any:
        shown = node(name)
        site.slurm.operator_resumes(name)
        site.slurm.submit(1, required=(name,))
        return shown

    site.slurm.node = resumed_after  # type: ignore[method-assign]
    outcome, _ = _done(site, STEPS[step](site))
    assert outcome.retryable
    assert not site.provider.terminated
    assert not site.provider.cycled


def _two_parts(site: Site) -> tuple[SimJob, ...]:
    parts = site.slurm.submit_together(1, 1, comment="holdfast", exclusive=True)
    assert [p.nodes for p in parts] == [("n1",), ("n2",)]
    return parts


def test_a_down_knows_a_heterogeneous_job_by_its_leader() -> None:
    site = Site(3, warm=False)
    leader, part = _two_parts(site)
    reason = slurm_reason(INCIDENT, "node.dead: no sign of life")
    outcome, reads = _done(site, SetDown("n2", reason, jobs=(leader.job_id,)))
    assert outcome.state is IntentState.DONE, outcome.text
    assert reads == ["node", "jobs_on", "components", "node"]
    site = Site(3, warm=False)
    leader, part = _two_parts(site)
    outcome, _ = _done(site, SetDown("n2", reason, jobs=(part.job_id,)))
    assert outcome.retryable
    assert f"job {leader.job_id} " in outcome.text


def test_a_down_is_not_set_under_a_job_that_came_since() -> None:
    site = Site(3, warm=False)
    job = site.slurm.submit(1, required=("n1",))
    reason = slurm_reason(INCIDENT, "node.dead: no sign of life")
    outcome, reads = _done(site, SetDown("n1", reason, jobs=()))
    assert (outcome.state, outcome.retryable) == (IntentState.FAILED, True)
    assert str(job.job_id) in outcome.text
    assert reads == ["node", "jobs_on"]
    assert not site.slurm.nodes["n1"].down


def test_a_requeue_reads_the_components_of_its_own_job() -> None:
    site = Site(3, warm=False)
    leader, part = _two_parts(site)
    shown = site.slurm.job(leader.job_id)
    outcome, reads = _done(site, Requeue(shown.key, 0))
    assert outcome.state is IntentState.DONE, outcome.text
    assert reads == ["job", "components"]
    assert (leader.state, part.state) == ("COMPLETING", "COMPLETING")


def test_all_of_an_incident_is_carried_out_without_a_view() -> None:
    """From the drain to the return of a node: only the controller's own poll reads the whole cluster."""
    site = Site(4, spares=("n4",))
    outside, _ = _outside(site)
    site.actor.outside = outside
    site.slurm.submit_together(1, 1, comment="holdfast", exclusive=True)
    site.run(2)
    site.fault("n1", remedy=Remedy.REPLACE)
    site.run(300, step_s=5)
    assert {"Drain", "Requeue", "Release", "Launch", "Terminate", "Assign", "Undrain"} <= set(site.kinds())
