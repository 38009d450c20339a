"""Scenes of elastic jobs: sizes, groups that leave, a group that is slow, the quorum service's record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast.controller.quorum.quorum_watch import QuorumWatch
from holdfast.model.elastic_jobs.rooms import RoomRules
from holdfast.model.policies.resizing import ElasticPolicy
from holdfast.ports import Store
from recording.scene_jobs import stands
from support.rooms import MemoryRooms
from support.simulated.arrays import ElasticSite
from support.simulated.site import POLICY, Site

Watch = Callable[[Site], None]


def slow(store: Store, watch: Watch) -> None:
    """A group of an elastic job is slower than the others and is ordered to leave."""
    policy = replace(POLICY, stragglers=replace(POLICY.stragglers, act="leave"))
    site = Site(6, store=store, policy=policy)
    site.agents.leave = lambda _machine, _job_id, _restarts: ""
    watch(site)
    stands(site)


def elastic(store: Store, watch: Watch) -> None:
    """An elastic job is preempted, grows again, yields nodes, and loses one."""
    site = ElasticSite(7, store=store, policy=POLICY)
    watch(site)
    site.slurm.submit_elastic("2:4:2", spares=1)
    site.run(5)
    high = site.slurm.submit(3, exclusive=True)
    site.run(200, step_s=5)
    site.slurm.finish(high, "COMPLETED")
    site.run(60, step_s=2)
    site.fault("n1")
    site.run(60, step_s=2)


def sizes(store: Store, watch: Watch) -> None:
    """Too few nodes for the next legal size: starts are delayed, groups of no use leave, the array is throttled; then it grows."""
    policy = ElasticPolicy(grow_after_idle_s=5.0, shrink_useless_after_s=20.0, settle_s=2.0)
    site = ElasticSite(4, store=store, policy=replace(POLICY, elastic=policy))
    watch(site)
    site.slurm.operator_drains("n4")
    site.slurm.submit_elastic("2:4:2")
    site.run(60)
    site.slurm.operator_resumes("n4")
    site.run(20)
    site.slurm.preempts = False
    high = site.slurm.submit(1, exclusive=True, priority=10)
    site.run(60)
    site.slurm.finish(high, "COMPLETED")
    site.run(150, step_s=2)


def groups_recover(store: Store, watch: Watch) -> None:
    """A group without its own opt-in loses its node; the quorum service's record is read on."""
    site = ElasticSite(6, store=store, policy=POLICY)
    watch(site)
    base, flexible = site.slurm.submit_elastic("2:4", comment="elastic=2:4")
    for element in site.slurm.elements(flexible):
        element.comment = f"elastic=2:4 of={base}"
    site.run(5)
    hurt = site.slurm.elements(flexible)[0]
    rooms = _met(hurt.job_id)
    _read(site, store, rooms)
    site.fault(hurt.nodes[0])
    site.run(3)
    reason = f"holdfast[{site.incident(hurt.excluded[0] if hurt.excluded else 'n3').id}]: gpu.xid 79"
    rooms.evict("job-71", f"2~{hurt.job_id}.0", reason)
    rooms.now_s += 1
    rooms.meet("job-71", "0~72.0:a", "1~71.0:b")
    site.run(40)
    rooms.meet("job-71", "0~72.0:a", "1~71.0:b", f"2~{hurt.job_id}.1:e")
    _read(site, store, rooms)
    site.run(20)


def _met(job_id: int) -> MemoryRooms:
    """Three groups that have met."""
    rooms = MemoryRooms()
    rooms.open("job-71", RoomRules(1, 4))
    rooms.meet("job-71", "0~72.0:a", "1~71.0:b", f"2~{job_id}.0:c")
    return rooms


def _read(site: Site, store: Store, rooms: MemoryRooms) -> None:
    """As the controller reads the quorum service's record."""
    assert site.loop.world is not None
    assert site.loop.lease is not None
    QuorumWatch(rooms, store, site.clock).read_on(site.loop.world, site.loop.lease.fence)
