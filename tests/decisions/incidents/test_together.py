"""Heterogeneous jobs: recovered as one job, through their leader."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.decisions.common.het_jobs import stragglers, whole_jobs
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from support.simulated import Site
from support.simulated.slurm import SimJob


def _training(site: Site, *sizes: int, **changed: Any) -> tuple[SimJob, ...]:
    parts = site.slurm.submit_together(*sizes, **{"comment": "holdfast", "exclusive": True, **changed})
    site.run(2)
    assert [p.state for p in parts] == ["RUNNING"] * len(sizes)
    return parts


def _ran(parts: tuple[SimJob, ...]) -> list[tuple[str, int]]:
    return [(p.state, p.restarts) for p in parts]


def _closed(site: Site, bad: str) -> None:
    site.run(400, step_s=10)
    assert site.incident(bad).state is IncidentState.CLOSED
    assert set(site.slurm.reservations) == {"holdfast-spares"}
    assert not site.slurm.nodes[bad].drain
    assert site.notices.sent == []


@pytest.mark.parametrize("bad", ["n1", "n2", "n3"])
def test_a_fault_under_any_component_restarts_the_whole_once(bad: str) -> None:
    site = Site(5, spares=("n5",))
    parts = _training(site, 1, 2)
    site.fault(bad)
    site.run(4)
    assert _ran(parts) == [("RUNNING", 1)] * 2
    assert {n for p in parts for n in p.nodes} == {"n1", "n2", "n3", "n5"} - {bad}
    assert site.slurm.requeued == {(p.job_id, 0): 1 for p in parts}
    assert [c for c in site.slurm.calls if c[0] == "requeue"] == [("requeue", str(parts[0].job_id))]
    assert all(bad in p.excluded for p in parts)
    recovery = site.recovery(parts[0].job_id)
    assert (recovery.nodes_before, recovery.gpus) == (("n1", "n2", "n3"), 24)
    assert site.store.recoveries(job_id=parts[1].job_id) == ()
    _closed(site, bad)


def test_each_component_keeps_what_its_user_excluded() -> None:
    site = Site(6)
    parts = _training(site, 1, 1)
    parts[0].excluded, parts[1].excluded = ("n6",), ("n5",)
    site.fault("n1")
    site.run(4)
    assert [set(p.excluded) for p in parts] == [{"n6", "n1"}, {"n5", "n1"}]
    site.run(700, step_s=10)
    site.slurm.requeue(parts[0].job_id)  # by its user
    site.run(5)
    assert [p.excluded for p in parts] == [("n6",), ("n5",)]


@pytest.mark.parametrize("bad", ["n1", "n2"])
def test_a_dead_node_restarts_the_whole(bad: str) -> None:
    """A DOWN of the leader's only node requeues the leader alone; the other components are requeued with it."""
    site = Site(5)
    parts = _training(site, 1, 2)
    detail = {"fenced": True}
    site.agents.state(site.machine("n1"), "checkpoint.register", parts[0].job_id, 0, path="/ckpt", detail=detail)
    site.run(2)
    site.machine(bad).powered = False
    site.run(60)
    assert _ran(parts) == [("RUNNING", 1)] * 2
    assert all(bad not in p.nodes for p in parts)


@pytest.mark.parametrize("kind", ["Requeue", "Release"])
@pytest.mark.parametrize("moment", ["started", "acted", "finished"])
def test_the_actor_may_die_at_every_boundary(kind: str, moment: str) -> None:
    site = Site(5, spares=("n5",))
    parts = _training(site, 1, 2)
    site.kill_at = (kind, moment)
    site.fault("n2")
    site.run(6)
    assert site.killed == 1
    assert _ran(parts) == [("RUNNING", 1)] * 2
    assert site.slurm.requeued == {(p.job_id, 0): 1 for p in parts}


@pytest.mark.parametrize(("changed", "word"), [({"requeue": False}, "cannot be requeued"), ({"comment": ""}, "opt in")])
def test_one_component_that_may_not_be_stopped_keeps_all(changed: dict[str, Any], word: str) -> None:
    site = Site(3)
    parts = _training(site, 1, 1)
    for name, value in changed.items():
        setattr(parts[0], name, value)
    site.fault("n2")
    site.run(30)
    assert _ran(parts) == [("RUNNING", 0)] * 2
    assert all(word in p.admin_comment for p in parts)


def test_a_job_that_failed_comes_back_as_a_whole() -> None:
    site = Site(4)
    parts = _training(site, 1, 1)
    at = site.clock.now()
    for part in parts:
        site.slurm.finish(part, "FAILED")
    site.run(3)
    site.fault("n2", fault_at=at)
    site.run(4)
    assert _ran(parts) == [("RUNNING", 1)] * 2


def test_a_component_may_speak_for_the_whole() -> None:
    site = Site(4)
    parts = _training(site, 1, 1, comment="")
    machine = site.machine("n2")
    site.agents.state(machine, "checkpoint.register", parts[1].job_id, 0, path="/ckpt")
    site.agents.state(machine, "checkpoint.saved", parts[1].job_id, 0, step=70)
    site.fault("n1")
    site.run(4)
    assert _ran(parts) == [("RUNNING", 1)] * 2
    recovery = site.recovery(parts[0].job_id)
    assert (recovery.consent, recovery.checkpoint_step) == ("registered checkpoint", 70)


def test_a_component_that_starts_a_moment_before_its_leader_is_no_straggler() -> None:
    site = Site(3)
    parts = _training(site, 1, 1)
    parts[0].state, parts[0].restarts, parts[1].restarts = "PENDING", 1, 1
    whole = whole_jobs(site.slurm.view()).jobs[parts[0].job_id]
    assert stragglers(whole) == ()


@pytest.mark.parametrize(
    ("leader", "other", "seen", "left"),
    [
        ("RUNNING", "RUNNING", "RUNNING", 0),
        ("PENDING", "PENDING", "PENDING", 0),
        ("PENDING", "COMPLETING", "COMPLETING", 0),
        ("COMPLETING", "PENDING", "COMPLETING", 0),
        ("PENDING", "RUNNING", "COMPLETING", 1),
        ("PENDING", "FAILED", "COMPLETING", 1),
        ("PENDING", "CANCELLED", "PENDING", 0),
        ("FAILED", "FAILED", "FAILED", 0),
        ("FAILED", "RUNNING", "COMPLETING", 0),
        ("CANCELLED", "CANCELLED", "CANCELLED", 0),
    ],
)
def test_the_state_of_the_whole(leader: str, other: str, seen: str, left: int) -> None:
    site = Site(3)
    parts = _training(site, 1, 1)
    parts[0].state, parts[1].state = leader, other
    parts[0].restarts = 1 if leader == "PENDING" else 0  # it was requeued, whatever happened to the other
    whole = whole_jobs(site.slurm.view()).jobs[parts[0].job_id]
    assert (whole.state, len(stragglers(whole))) == (seen, left)
    assert parts[1].job_id not in whole_jobs(site.slurm.view()).jobs


def test_an_ordinary_view_is_left_as_it_is() -> None:
    site = Site(2)
    site.slurm.submit(1)
    view = site.slurm.view()
    assert whole_jobs(view) is view


def test_a_poison_job_is_held_as_a_whole_and_told_how_to_go_on() -> None:
    site = Site(6)
    parts = _training(site, 1, 1)
    for _ in range(2):
        site.fault(parts[1].nodes[0], check="gpu.xid", code="109")
        site.run(5)
    assert all(p.held for p in parts)
    assert site.recovery(parts[0].job_id).phase is RecoveryPhase.HELD
    advice = f"scontrol release {parts[0].job_id}; scontrol update jobid={parts[0].job_id} StartTime=now"
    assert advice in parts[0].admin_comment
