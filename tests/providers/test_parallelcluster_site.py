"""Next to clustermgtd and with SuspendTime on: what Holdfast keeps is not replaced, and what it requests is."""

from __future__ import annotations

import pytest

from holdfast.decisions.common import node_incidents
from holdfast.model.incidents.incident import IncidentState
from holdfast_checks.result import Severity
from support.clustermgtd import LOOP_S
from support.parallelcluster import ClusterSite
from support.simulated.slurm import PowerSaving

pytestmark = pytest.mark.slow
STATIC = {f"gpu-st-p5-{n}": f"i-{n:04d}" for n in range(1, 6)}
DYNAMIC = {f"gpu-dy-p5-{n}": f"i-{n + 5:04d}" for n in range(1, 3)}
NODES = {**STATIC, **DYNAMIC}
BAD, SPARES = "gpu-st-p5-2", ("gpu-st-p5-4", "gpu-st-p5-5")
SAVING = PowerSaving(excluded=frozenset(STATIC))
"""As ParallelCluster sets it: static nodes in SuspendExcNodes, the others off after ten idle minutes."""


def site(**given: object) -> ClusterSite:
    return ClusterSite(NODES, saving=SAVING, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("old", [False, True])
def test_an_hour_of_quiet_keeps_the_spares(old: bool) -> None:
    """With clustermgtd from 3.16 on, and before."""
    quiet = site(spares=SPARES, old=old)
    quiet.run(3600, step_s=5)
    assert quiet.slurm.reservations["holdfast-spares"].nodes == SPARES
    assert quiet.slurm.suspended
    assert {name for _, name in quiet.slurm.suspended} == set(DYNAMIC)
    assert set(quiet.given_away()) == set(DYNAMIC)
    assert all(quiet.machine(name).powered for name in STATIC)
    assert quiet.store.incidents() == (), "a node that Slurm has put off is not silent"


@pytest.mark.parametrize("old", [False, True])
def test_a_fault_is_recovered_and_nothing_that_is_held_is_given_away(old: bool) -> None:
    busy = site(spares=SPARES, old=old)
    job = busy.slurm.submit(3, comment="holdfast", exclusive=True)
    assert BAD in job.nodes
    old_machine = busy.machine(BAD).instance_id
    held_at: list[float] = []
    ended_at: list[float] = []
    busy.provider.on_terminate = lambda i: ended_at.append(busy.clock.elapsed_s) if i == old_machine else None
    busy.fault(BAD)
    for step_s in (*[1] * 300, *[5] * 660):
        busy.run(step_s, step_s=step_s)
        if busy.seen.node(BAD).draining and not held_at:
            held_at.append(busy.clock.elapsed_s)
    incident = busy.incident(BAD)
    assert incident.state is IncidentState.CLOSED, busy.story(incident.id)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert BAD not in job.nodes
    assert held_at
    assert "PowerDown" not in busy.kinds(incident.id)
    assert ("power_down", BAD) in busy.slurm.calls
    assert held_at[0] < ended_at[0]
    assert [node for node in busy.given_away() if node in STATIC] == [BAD], "once, and nothing else"
    assert busy.machine(BAD).instance_id != old_machine
    pool = busy.slurm.reservations["holdfast-spares"].nodes
    assert BAD in pool, "the new machine is a spare"
    assert set(busy.slurm.reservations) == {"holdfast-spares"}
    assert not busy.slurm.nodes[BAD].drain


def test_a_node_under_validation_is_not_given_away() -> None:
    """A new machine that takes long to be proved is idle for many turns of clustermgtd."""
    slow = site(spares=SPARES)
    slow.provider.launches_broken = True
    slow.fault(BAD)
    slow.run(5 * LOOP_S)
    first = slow.given_away().count(BAD)
    assert first == 1
    slow.run(600, step_s=2)
    asked = sum(call == ("power_down", BAD) for call in slow.slurm.calls)
    assert slow.given_away().count(BAD) == asked, "only what Holdfast asked for"
    assert slow.seen.node(BAD).out_of_service


def test_a_dead_node_is_exchanged_by_clustermgtd_and_proved_by_holdfast() -> None:
    dead = site(spares=SPARES)
    job = dead.slurm.submit(2, comment="holdfast", exclusive=True)
    assert BAD in job.nodes
    old = dead.machine(BAD).instance_id
    dead.machine(BAD).powered = False
    dead.run(2400, step_s=2)
    incident = dead.incident(BAD)
    assert incident.dead
    assert incident.state is IncidentState.CLOSED, dead.story(incident.id)
    assert job.state == "RUNNING"
    assert dead.machine(BAD).instance_id != old
    assert [node for node in dead.given_away() if node in STATIC] == [BAD]
    assert not dead.seen.node(BAD).out_of_service


def test_drains_are_not_respected_which_is_why_nodes_are_held_otherwise() -> None:
    """The look-alike acts like the original: kept by a drain, a node under validation is replaced each minute that it waits."""
    naive = site(holding=False)
    naive.slurm.drain(BAD, "holdfast[0a1b2c3d4e5f]: being looked at")
    naive.run(3 * LOOP_S)
    assert naive.given_away() == [BAD]


def test_a_dynamic_node_comes_back_without_a_job() -> None:
    dynamic = site()
    name = "gpu-dy-p5-1"
    old = dynamic.machine(name).instance_id
    dynamic.fault(name)
    while dynamic.clock.elapsed_s < 900 and (not dynamic.store.incidents() or dynamic.store.incidents()[0].open):
        dynamic.run(1)
    assert dynamic.incident(name).state is IncidentState.CLOSED, dynamic.story()
    assert ("power_up", name) in dynamic.slurm.calls
    assert dynamic.machine(name).instance_id != old
    assert dynamic.given_away().count(name) == 1


def test_a_dynamic_spare_is_put_off_unless_slurm_is_told_to_leave_it() -> None:
    """Slurm suspends reserved nodes as well: SuspendExcNodes or SuspendExcStates=RESERVED has to name spares (see doctor)."""
    spare = "gpu-dy-p5-1"
    lost = ClusterSite(NODES, saving=SAVING, spares=(spare,))
    lost.run(900, step_s=5)
    assert lost.slurm.node(spare).asleep
    job = lost.slurm.submit(2, comment="holdfast", exclusive=True)
    lost.fault(job.nodes[0])
    lost.run(120)
    assert job.state == "RUNNING"
    assert spare not in job.nodes, "one that is off is no spare"
    assert "PromoteSpare" not in lost.kinds()
    told = PowerSaving(excluded=SAVING.excluded | {spare})
    kept = ClusterSite(NODES, saving=told, spares=(spare,))
    kept.run(900, step_s=5)
    assert not kept.slurm.node(spare).asleep
    assert kept.given_away() == ["gpu-dy-p5-2"]


def test_no_recovered_job_lands_on_a_held_node() -> None:
    """A drain keeps every job off. A reservation does not keep off a job in a hold of ours, so such a node is excluded."""
    here = site()
    here.fault(BAD, severity=Severity.DEGRADED)
    here.run(5)
    assert here.loop.world is not None
    assert here.seen.node(BAD).draining, here.story()
    assert BAD in node_incidents.suspect_nodes(here.loop.world)
