"""What happens on the sites whose databases are recorded. Each scene drives the real control loop and actor over the simulated site.

A scene uses only what the simulated site offers to every test, so that it can be played on a later release as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from holdfast.model.machine import NoticeKind
from holdfast.model.operators.node_orders import OrderVerb
from holdfast.model.operators.suppression import Suppression
from holdfast.model.policies.policy import Mode
from holdfast.ports import Operation, Store
from holdfast_checks.result import Remedy, Severity
from recording.scene_jobs import (
    announced,
    asks_to_save,
    drains_before_undrain,
    job_that_saves,
    ordered,
    started,
    stuck_stacks,
    training,
    with_bundles,
)
from recording.scenes_elastic import elastic, groups_recover, sizes, slow
from support.simulated.provider import FULL, IN_PLACE, NOTHING
from support.simulated.site import POLICY, Site

Watch = Callable[[Site], None]
"""Called with the site before anything happens there."""


def replaced_beside(store: Store, watch: Watch) -> None:
    """A fatal fault under a job that registered a checkpoint: a spare takes over, the machine is replaced and becomes the spare."""
    site = Site(4, spares=("n4",), store=store, warm=False)
    watch(site)
    with_bundles(site)
    site.run(31)
    job = job_that_saves(site)
    site.fault("n1")
    site.react()
    site.run(320, step_s=5)
    site.slurm.finish(job, "COMPLETED")
    site.run(30, step_s=5)


def in_place(store: Store, watch: Watch) -> None:
    """Reset of a GPU, reboot, replacement in place; consent by partition; an operator puts a node back by hand."""
    policy = replace(POLICY, job=replace(POLICY.job, consent_partitions=frozenset({"gpu"})))
    site = Site(6, store=store, policy=policy, can=replace(IN_PLACE, report_fault=True))
    watch(site)
    started(site, 1, comment="")
    site.fault("n1", code="109", remedy=Remedy.RESET_GPU)
    site.run(60, step_s=2)
    site.fault("n2", code="119", remedy=Remedy.REBOOT)
    site.run(120, step_s=4)
    site.slurm.reboot_program = "/usr/sbin/reboot"
    site.run(30, step_s=5)
    site.fault("n3", check="host.pcie", code="fatal", minor=None, remedy=Remedy.REBOOT)
    site.run(120, step_s=4)
    site.fault("n4", remedy=Remedy.REPLACE)
    site.run(40, step_s=2)
    site.provider.launches_broken = True
    site.fault("n5", check="gpu.ecc", code="dbe", remedy=Remedy.REPLACE)
    site.run(400, step_s=5)
    site.slurm.operator_resumes("n5")
    site.run(30)


def other_host(store: Store, watch: Watch) -> None:
    """A machine is stopped and started on another host; consent by QOS; a degraded GPU waits for the end of its job."""
    policy = replace(POLICY, job=replace(POLICY.job, consent_qos=frozenset({"normal"})))
    site = Site(4, store=store, policy=policy, can=replace(FULL, report_fault=True))
    watch(site)
    started(site, 1, comment="")
    job = started(site, 1, comment="")
    site.fault("n1", check="cloud.status", code="system", minor=None, remedy=Remedy.STOP_START)
    site.fault(
        job.nodes[0],
        check="gpu.remap",
        code="pending",
        severity=Severity.DEGRADED,
        remedy=Remedy.RESET_GPU,
        sticky=True,
    )
    site.run(60, step_s=2)
    site.slurm.finish(job, "COMPLETED")
    site.run(120, step_s=4)
    site.fault("n3", remedy=Remedy.REPLACE)
    site.fault("n3", check="gpu.ecc", code="dbe", minor=5)
    site.run(60, step_s=2)


def dead(store: Store, watch: Watch) -> None:
    """A node without power: two witnesses, the fence, DOWN, leftover steps on the survivor; another one reports again."""
    policy = replace(POLICY, death=replace(POLICY.death, end_leftover_steps=True))
    site = Site(6, spares=("n6",), store=store, policy=policy)
    watch(site)
    job = started(site, 2)
    site.machine(job.nodes[0]).powered = False
    site.machine("n5").agent_up = False
    site.run(60)
    site.machine("n5").agent_up = True
    site.run(300, step_s=4)


def dead_unknown(store: Store, watch: Watch) -> None:
    """A dead node, and a provider that cannot report whether its power is off: the job waits for an operator, or for its own fence."""
    site = Site(4, store=store, can=replace(NOTHING, status=True))
    watch(site)
    plain = started(site, 1)
    site.machine(plain.nodes[0]).powered = False
    site.run(150, step_s=2)
    fenced = job_that_saves(site)
    site.machine(fenced.nodes[0]).powered = False
    site.run(500, step_s=5)


def for_a_human(store: Store, watch: Watch) -> None:
    """No rung is left; operators acknowledge, retry, close, suppress; a job that did not opt in, one that cannot be requeued."""
    site = Site(8, store=store, can=NOTHING)
    watch(site)
    first = started(site, 1, comment="")
    second = started(site, 1, requeue=False)
    lost, other = first.nodes[0], second.nodes[0]
    for node in (lost, other):
        site.fault(node, check="host.psu", code="psu", minor=None, remedy=Remedy.HUMAN)
    site.run(10)
    awaits = {node: site.incident(node).id for node in (lost, other)}
    site.slurm.finish(first, "FAILED")
    site.run(30)
    site.fault("n3", code="31", severity=Severity.WARNING, remedy=Remedy.NONE)
    site.fault("n4", check="gpu.thermal", code="slow", severity=Severity.DEGRADED, remedy=Remedy.REBOOT, sticky=True)
    site.fault("n5", code="94", remedy=Remedy.RESTART_JOB)
    site.run(10)
    site.operate("acknowledge", site.incident("n4").id)
    site.operate("retry", awaits[lost])
    site.run(20)
    site.operate("close", awaits[other])
    at = site.clock.now()
    wanted = Suppression("sup1", at + timedelta(days=3), "ops", "known since Monday", at, node="n6", check="gpu.*")
    site.store.operate(Operation("suppress", "ops", "sup1", "known since Monday", suppression=wanted), at)
    site.fault("n6")
    site.agents.clear(site.machine("n4"), "gpu.thermal", site.machine("n4").gpu_uuids[3])
    for role, subject in (("agent", "n1"), ("user", "1000"), ("viewer", "board"), ("operator", "ops")):
        site.store.add_token(role, subject, f"{len(role):064x}", at)  # type: ignore[attr-defined]
    site.run(30)


def observed(store: Store, watch: Watch) -> None:
    """Observe mode: everything is decided, nothing is done."""
    site = Site(6, spares=("n6",), store=store, policy=replace(POLICY, mode=Mode.OBSERVE))
    watch(site)
    job = started(site, 2)
    site.fault(job.nodes[0])
    site.fault(
        "n4",
        check="gpu.nvlink",
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        evidence={"would_severity": "fatal", "would_remedy": "replace"},
    )
    site.run(20)
    announced(site, "n5", NoticeKind.STOP, "instance-retirement", 300)
    site.machine("n3").powered = False
    site.run(120, step_s=4)
    site.slurm.finish(job, "FAILED")
    site.run(20)


def braked(store: Store, watch: Watch) -> None:
    """More nodes fail than the brakes allow; an operator releases them; a pause."""
    brake = replace(POLICY.brake, drains_10min=1, drains_60min=2, stopped_jobs_60min=1)
    site = Site(10, store=store, policy=replace(POLICY, brake=brake))
    watch(site)
    jobs = [started(site, 1) for _ in range(6)]
    site.fault(jobs[0].nodes[0])
    site.run(5)
    site.fault(jobs[1].nodes[0])
    site.fault(jobs[2].nodes[0])
    site.run(20)
    site.slurm.finish(jobs[1], "FAILED")
    site.run(10)
    for kind in sorted(site.book.brakes):
        site.operate("release_brake", kind)
    site.run(20)
    site.operate("pause")
    site.fault(jobs[4].nodes[0])
    site.run(20)


def planned(store: Store, watch: Watch) -> None:
    """What the provider announces: spot, retirement, reboot, failing checks, the end of a capacity block."""
    site = Site(10, spares=("n10",), store=store)
    watch(site)
    job = job_that_saves(site)
    asks_to_save(site, job.nodes[0])
    site.run(5)
    site.agents.state(site.machine(job.nodes[0]), "checkpoint.saved", job.job_id, job.restarts, step=17)
    site.run(8)
    node = site.machine(job.nodes[0])
    site.agents.state(node, "checkpoint.register", job.job_id, job.restarts, path="/ckpt", detail={"fenced": True})
    site.agents.state(node, "checkpoint.resumed", job.job_id, job.restarts, step=17)
    site.run(2)
    block = job_that_saves(site)
    announced(site, "n4", NoticeKind.REBOOT, "instance-reboot", 3000)
    announced(site, "n5", NoticeKind.STOP, "instance-retirement", 7200)
    announced(site, "n6", NoticeKind.IMPAIRED, "system-status", 0)
    announced(site, "n7", NoticeKind.REBALANCE, "rebalance", None)
    announced(site, block.nodes[0], NoticeKind.CAPACITY_END, "capacity-block-end", 900)
    site.run(420, step_s=6)
    site.provider.announced = [n for n in site.provider.announced if n.node != "n4"]
    site.run(60, step_s=5)


def unexplained(store: Store, watch: Watch) -> None:
    """A job fails without a finding: pair probes convict one of its nodes."""
    site = Site(6, store=store)
    watch(site)
    job = started(site, 4)
    site.machine("n3").path_broken = True
    site.slurm.finish(job, "FAILED")
    site.run(60)


def hung(store: Store, watch: Watch) -> None:
    """A job stops reporting steps: its stacks are read, it is restarted, the outlier node is probed; in the end it is held."""
    site = Site(5, store=store)
    watch(site)
    job = training(site)
    stuck_stacks(site, "n2")
    site.run(130)
    for _ in range(2):
        training(site, job=job)
        site.run(100, step_s=2)


def let_go(store: Store, watch: Watch) -> None:
    """A requeued job that its node releases once the agent ends it; an operator drains the node by hand before it returns."""
    site = Site(3, store=store)
    watch(site)
    started(site, 2)
    site.slurm.nodes["n1"].stuck = True
    site.fault("n1")
    site.run(30)
    site.at_boundary = drains_before_undrain(site, site.at_boundary)
    site.run(300, step_s=5)


def stuck(store: Store, watch: Watch) -> None:
    """A requeued job that its node does not release: the agent ends it, then a DOWN; a node's exclusion is withdrawn."""
    site = Site(4, store=store)
    watch(site)
    job = started(site, 2, excluded=("n4",))
    site.slurm.nodes["n1"].stuck = True
    site.machine("n1").kill_helps = False
    site.fault("n1")
    site.run(90)
    site.run(400, step_s=10)
    site.slurm.requeue(job.job_id)
    site.run(10)


def spares(store: Store, watch: Watch) -> None:
    """Spares are checked hourly and nightly, the pool is filled; a spare fails its check."""
    kept = replace(POLICY.spares, wanted=2)
    site = Site(5, spares=("n4",), store=store, policy=replace(POLICY, spares=kept))
    watch(site)
    site.machine("n4").deep_ok = False
    site.run(3600 * 14, step_s=300)


def store_lost(store: Store, watch: Watch) -> None:
    """A store that was lost: drains of ours that it has no record of are adopted."""
    site = Site(3, warm=False)
    site.run(31)
    started(site, 1)
    site.fault("n1")
    site.run(10)
    site.store = store
    site.agents._store = store
    site.start_controller()
    site.start_actor()
    watch(site)
    site.run(100, step_s=2)


def by_others(store: Store, watch: Watch) -> None:
    """What others do to nodes in Slurm, and what operators order and note through Holdfast."""
    site = Site(4, store=store)
    watch(site)
    site.slurm.operator_drains("n1", "bad fan", "ops")
    site.run(5)
    site.slurm.operator_resumes("n1")
    site.slurm.finds_rebooted("n2")
    site.slurm.operator_reboots("n3")
    site.run(60)
    ordered(site, OrderVerb.DRAIN, "0000000000aa", "n1")
    site.run(5)
    ordered(site, OrderVerb.RELEASE, "0000000000ab", "n1")
    site.run(10)
    site.store.operate(Operation("note_node", "ops", "n1", "fan swapped", node="n1", ticket="OPS-12"), site.clock.now())


def machine_ordered(store: Store, watch: Watch) -> None:
    """An operator orders another machine for a node that another one drained, and for one whose machine is exchanged meanwhile."""
    policy = replace(POLICY, repair=replace(POLICY.repair, budget_cluster_share=1.0))
    site = Site(4, store=store, policy=policy)
    watch(site)
    site.slurm.operator_drains("n1", "bad fan", "eve")
    site.run(5)
    ordered(site, OrderVerb.REPLACE, "0000000000ac", "n1")
    site.run(200, step_s=2)
    job = started(site, 1)
    node = job.nodes[0]
    ordered(site, OrderVerb.REPLACE, "0000000000ad", node)
    site.run(10)
    site.slurm.operator_drains(node, "mine", "eve")
    site.run(10)


SCENES: Mapping[str, Callable[[Store, Watch], None]] = {
    scene.__name__: scene
    for scene in (
        replaced_beside,
        in_place,
        other_host,
        dead,
        dead_unknown,
        for_a_human,
        observed,
        braked,
        planned,
        unexplained,
        hung,
        slow,
        elastic,
        sizes,
        groups_recover,
        let_go,
        stuck,
        spares,
        store_lost,
        by_others,
        machine_ordered,
    )
}
