"""Which jobs a fault of a GPU hits: by the map of the node's own slurmd, never by the index alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from holdfast.decisions.common.gpu_link import HIT, PROOF_WAIT_S, GpuLink, link, may_have_hit
from holdfast.model.actions.action import Intent, TellOwner
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Book, NodeRecord, World
from holdfast.model.incidents.incident import RecoveryPhase
from holdfast.model.slurm.cluster import Node
from support.rooms import T0, group_job, view_of
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob
from support.store_nouns import incident

Gres = Mapping[str, tuple[int, ...]]
SAME: Gres = {"gpu": tuple(range(8))}
SHIFTED: Gres = {"gpu": tuple(range(1, 9))}
REVERSED: Gres = {"gpu": tuple(reversed(range(8)))}
GAP: Gres = {"gpu": (0, 1, 2, 4, 5, 6, 7)}
MIG: Gres = {"gpu": (1, 1, 2, 2)}
SHARDS: Gres = {"gpu": tuple(range(1, 9)), "shard": tuple(range(1, 9))}
MPS: Gres = {"gpu": (0, 1), "mps": (0, 1)}


def of(
    gres: Gres | None,
    at_fault: set[int] | None,
    held: set[int],
    shared: Mapping[str, set[int]] | None = None,
    *,
    exclusive: bool = False,
    gpus: int = 8,
    boot: str = "boot-1",
    inventory: int = 0,
) -> GpuLink:
    minors = None if at_fault is None else frozenset(at_fault)
    fault = incident(node="n1", instance_id="i-1", boot_id="boot-1", gpu_minors=minors)
    shares = {"n1": {kind: frozenset(indices) for kind, indices in (shared or {}).items()}} if shared else {}
    job = group_job(72, exclusive=exclusive, gpu_indices={"n1": frozenset(held)} if held else {}, shared_indices=shares)
    view = view_of(job)
    view = replace(view, nodes={"n1": Node("n1", "MIXED", frozenset(), gpu_count=gpus)})
    agent = AgentView("n1", "i-1", boot, T0, T0, gres=gres)
    record = NodeRecord("n1", gpu_uuids=frozenset(f"GPU-{n}" for n in range(inventory)))
    return link(World(T0, POLICY, Book(nodes={"n1": record}), view, agents={"n1": (agent,)}), fault, job)


@pytest.mark.parametrize(
    ("gres", "at_fault", "held", "shared", "expected"),
    [
        # gres.conf lists the files in the order of the minors
        (SAME, {3}, {2, 3}, None, GpuLink.HOLDS),
        (SAME, {3}, {0, 1}, None, GpuLink.HOLDS_OTHERS),
        # File=/dev/nvidia[1-8]: index 3 is minor 4
        (SHIFTED, {3}, {2, 3}, None, GpuLink.HOLDS),
        (SHIFTED, {3}, {3, 4}, None, GpuLink.HOLDS_OTHERS),
        (SHIFTED, {8}, {7}, None, GpuLink.HOLDS),
        (SHIFTED, {0}, {0}, None, GpuLink.HOLDS_OTHERS),
        (REVERSED, {7}, {0}, None, GpuLink.HOLDS),
        (REVERSED, {7}, {7}, None, GpuLink.HOLDS_OTHERS),
        # MIG: an index is an instance, several are of one GPU
        (MIG, {1}, {0}, None, GpuLink.HOLDS),
        (MIG, {1}, {1}, None, GpuLink.HOLDS),
        (MIG, {1}, {2}, None, GpuLink.HOLDS_OTHERS),
        (MIG, {0}, {0}, None, GpuLink.HOLDS_OTHERS),
        # shares of a GPU
        (SHARDS, {3}, set(), {"shard": {2}}, GpuLink.HOLDS),
        (SHARDS, {3}, set(), {"shard": {3}}, GpuLink.HOLDS_OTHERS),
        (MPS, {1}, set(), {"mps": {1}}, GpuLink.HOLDS),
        (MPS, {1}, set(), {"mps": {0}}, GpuLink.HOLDS_OTHERS),
        (SHARDS, {3}, {0}, {"shard": {2}}, GpuLink.HOLDS),
        # no proof
        (None, {3}, {3}, None, GpuLink.UNPROVEN),
        ({}, {3}, {3}, None, GpuLink.UNPROVEN),
        (MIG, {1}, {4}, None, GpuLink.UNPROVEN),
        (SAME, {3}, set(), {"shard": {3}}, GpuLink.UNPROVEN),
        (SAME, {3}, {2}, {"mps": {1}}, GpuLink.UNPROVEN),
        # nothing of the GPUs is the job's
        (SAME, {3}, set(), None, GpuLink.NO_GPU),
        (None, {3}, set(), None, GpuLink.NO_GPU),
        # no map is needed
        (None, {3}, set(range(8)), None, GpuLink.WHOLE_NODE),
        # gres.conf leaves GPU 3 out: File=/dev/nvidia[0-2,4-7]
        (GAP, {3}, set(range(7)), None, GpuLink.HOLDS_OTHERS),
        (GAP, {3}, set(), None, GpuLink.HOLDS_OTHERS),
        (GAP, {4}, {3}, None, GpuLink.HOLDS),
        (GAP, {3, 4}, {3}, None, GpuLink.HOLDS),
        (None, None, {1}, None, GpuLink.NODE),
        (None, None, set(), None, GpuLink.NODE),
    ],
)
def test_the_map_decides(
    gres: Gres | None,
    at_fault: set[int] | None,
    held: set[int],
    shared: Mapping[str, set[int]] | None,
    expected: GpuLink,
) -> None:
    assert of(gres, at_fault, held, shared) is expected


def test_a_job_alone_on_its_node_needs_a_map_only_if_it_holds_some_of_the_gpus() -> None:
    assert of(None, {3}, set(), exclusive=True) is GpuLink.WHOLE_NODE
    assert of(None, {3}, {0, 1}, exclusive=True) is GpuLink.UNPROVEN
    assert of(SAME, {3}, {0, 1}, exclusive=True) is GpuLink.HOLDS_OTHERS
    assert of(None, {0}, {0}, gpus=1) is GpuLink.WHOLE_NODE


def test_all_that_slurm_gives_out_is_not_all_of_a_node_with_more() -> None:
    """gres.conf leaves out a GPU that waits for its replacement: the job that holds all seven others does not hold it."""
    seven = set(range(7))
    assert of(GAP, {3}, seven, gpus=7) is GpuLink.HOLDS_OTHERS
    assert of(GAP, {4}, seven, gpus=7) is GpuLink.WHOLE_NODE
    assert of(GAP, {3}, set(), exclusive=True, gpus=7) is GpuLink.HOLDS_OTHERS
    assert of(None, {3}, seven, gpus=7, inventory=8) is GpuLink.UNPROVEN
    assert of(None, {3}, seven, gpus=7, inventory=7) is GpuLink.WHOLE_NODE


def test_a_map_of_another_boot_proves_nothing() -> None:
    assert of(SAME, {3}, {3}, boot="boot-2") is GpuLink.UNPROVEN


def test_only_what_is_proved_stops_a_running_job() -> None:
    assert {GpuLink.NODE, GpuLink.WHOLE_NODE, GpuLink.HOLDS} == HIT


# The whole controller


def _two_jobs(gres: Gres | None) -> tuple[Site, list[int]]:
    """Two jobs of four GPUs on n1. GPU 4 fails: it is index 4, the second job's, or by a shift index 3, the first one's."""
    site = Site(2)
    site.machine("n1").gres = gres
    first, second = (site.slurm.submit(1, gpus=4, comment="holdfast") for _ in range(2))
    site.run(15)
    assert (first.nodes, second.nodes) == (("n1",), ("n1",))
    site.fault("n1", minor=4)
    site.run(5)
    assert site.slurm.nodes["n1"].drain
    site.run(PROOF_WAIT_S)
    return site, [first.restarts, second.restarts]


@pytest.mark.parametrize(
    ("gres", "restarts"), [(SAME, [0, 1]), (SHIFTED, [1, 0]), (None, [0, 0]), ({"gpu": (0, 1)}, [0, 0])]
)
def test_the_innocent_job_runs_on(gres: Gres | None, restarts: list[int]) -> None:
    assert _two_jobs(gres)[1] == restarts


def test_without_proof_the_record_says_why_and_the_owner_is_told_once() -> None:
    site, _ = _two_jobs(None)
    recoveries = [r for r in site.book.recoveries.values() if r.incident_id == site.incident("n1").id]
    assert [r.phase for r in recoveries] == [RecoveryPhase.AWAITING_CONSENT] * 2
    assert all("nothing proves whether the job holds this GPU" in r.note for r in recoveries)
    told = [i for i in site.store.intents() if isinstance(i.action, TellOwner)]
    assert len(told) == 2


def test_a_proof_that_comes_later_counts() -> None:
    site, _ = _two_jobs(None)
    site.machine("n1").gres = SHIFTED
    site.run(30)
    jobs = sorted(site.slurm.jobs.values(), key=lambda j: j.job_id)
    assert [j.restarts for j in jobs] == [1, 0]


def test_a_job_that_fails_of_it_is_recovered_without_proof() -> None:
    site, _ = _two_jobs(None)
    job = min(site.slurm.jobs.values(), key=lambda j: j.job_id)
    site.slurm.finish(job, "FAILED")
    site.run(60)
    assert job.restarts == 1


def test_who_failed_and_held_another_gpu_was_not_hit() -> None:
    view = view_of(group_job(72))
    fault = incident(node="n1", instance_id="i-1", boot_id="boot-1", gpu_minors=frozenset({3}))
    job = group_job(72, exclusive=False, gpu_indices={"n1": frozenset({3})})
    for gres, hit in ((SAME, True), (SHIFTED, False), (None, True)):
        agent = AgentView("n1", "i-1", "boot-1", T0, T0, gres=gres)
        assert may_have_hit(World(T0, POLICY, Book(), view, agents={"n1": (agent,)}), fault, job) is hit


# Proof that is missing yet, and proof that comes late


def _started_as_the_gpu_fails(gres: Gres | None) -> tuple[Site, list[SimJob]]:
    """The controller has just started, the agents' next heartbeats are to come, and GPU 4 of n1 fails."""
    site = Site(2)
    site.machine("n1").gres = gres
    jobs = [site.slurm.submit(1, gpus=4, comment="holdfast") for _ in range(2)]
    site.run(15)
    site.start_controller()
    site.machine("n1").next_beat_s = site.clock.elapsed_s + 8
    site.fault("n1", minor=4)
    return site, jobs


@pytest.mark.parametrize(("gres", "hit"), [(SAME, 1), (SHIFTED, 0)])
def test_a_fault_right_after_a_start_waits_for_the_map(gres: Gres, hit: int) -> None:
    site, jobs = _started_as_the_gpu_fails(gres)
    site.run(5)
    assert site.slurm.nodes["n1"].drain, "the node goes out of service at once"
    assert (site.store.recoveries(), [j.admin_comment for j in jobs]) == ((), ["", ""])
    site.run(40)
    assert [j.restarts for j in jobs] == [int(n == hit) for n in range(2)]
    assert jobs[1 - hit].admin_comment == ""
    assert [r.job.job_id for r in site.store.recoveries()] == [jobs[hit].job_id]


def test_an_agent_that_proves_nothing_is_waited_for_no_longer_than_that() -> None:
    site, jobs = _started_as_the_gpu_fails(None)
    site.run(PROOF_WAIT_S - 2)
    assert site.store.recoveries() == ()
    site.run(5)
    assert len(site.store.recoveries()) == 2
    assert all("nothing proves" in j.admin_comment for j in jobs)


def test_a_late_proof_for_the_job_takes_everything_back() -> None:
    site, _ = _two_jobs(None)
    first, second = sorted(site.slurm.jobs.values(), key=lambda j: j.job_id)
    assert "nothing proves" in first.admin_comment
    site.machine("n1").gres = SAME  # the second one holds GPU 4
    site.run(20)
    assert (first.restarts, second.restarts, first.admin_comment) == (0, 1, "")
    left = site.recovery(first.job_id)
    assert (left.phase, left.ground) == (RecoveryPhase.GONE, None)
    assert "holds none of the GPUs at fault" in left.note
    site.slurm.finish(first, "FAILED")  # by its own bug
    site.run(60)
    assert (first.state, first.restarts) == ("FAILED", 0)


def test_the_word_of_another_stays() -> None:
    site, _ = _two_jobs(None)
    first = min(site.slurm.jobs.values(), key=lambda j: j.job_id)
    first.admin_comment = "call me first. ops"
    site.machine("n1").gres = SAME
    site.run(20)
    assert (first.admin_comment, site.recovery(first.job_id).phase) == ("call me first. ops", RecoveryPhase.GONE)


def test_a_word_that_another_replaced_since_the_decision_stays() -> None:
    site, _ = _two_jobs(None)
    first = min(site.slurm.jobs.values(), key=lambda j: j.job_id)

    def somebody_writes(intent: Intent, moment: str) -> None:
        if isinstance(intent.action, TellOwner) and intent.action.instead_of is not None and moment == "started":
            first.admin_comment = "call me first. ops"

    site.at_boundary = somebody_writes
    site.machine("n1").gres = SAME
    site.run(20)
    assert first.admin_comment == "call me first. ops"


def test_a_true_hit_after_a_proof_of_innocence_counts() -> None:
    site, _ = _two_jobs(None)
    first = min(site.slurm.jobs.values(), key=lambda j: j.job_id)
    site.machine("n1").gres = SAME
    site.run(20)
    assert site.recovery(first.job_id).phase is RecoveryPhase.GONE
    site.fault("n1", minor=2)  # now one of its GPUs
    site.run(20)
    assert first.restarts == 1


def test_a_job_whose_gpus_slurm_has_forgotten_may_have_been_hit() -> None:
    """Slurm shows a job's GPUs while it holds them: a controller that was down at the time never learns which they were."""
    site = Site(2)
    job = site.slurm.submit(1, gpus=4, comment="holdfast")
    site.run(15)
    failed_at = site.clock.now()
    site.slurm.finish(job, "FAILED")  # while no controller runs
    for _ in range(3):
        site.clock.advance(1)
        site.world_moves()
    site.start_controller()
    site.fault("n1", minor=1, fault_at=failed_at)
    site.run(60)
    assert job.restarts == 1


def test_a_job_that_was_seen_to_hold_no_gpu_was_not_hit() -> None:
    site = Site(2)
    job = site.slurm.submit(1, gpus=0, comment="holdfast")
    site.run(15)
    site.slurm.finish(job, "FAILED")
    site.fault("n1", minor=1)
    site.run(60)
    assert (job.state, job.restarts) == ("FAILED", 0)
