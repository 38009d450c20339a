"""Jobs of the recorded scenes, and the reports of them and of the provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.model.actions.action import Intent, SendOrder, Verb
from holdfast.model.agents.report import OrderOutcome
from holdfast.model.machine import Notice, NoticeKind
from holdfast.model.operators.node_orders import NodeOrder, OrderVerb
from holdfast.ports import Operation
from holdfast_checks.result import Remedy, Severity
from support.simulated.machines import Machine
from support.simulated.site import Site
from support.simulated.slurm import SimJob

WAIT = ["all_reduce (torch/distributed/distributed_c10d.py:3252)", "step (train.py:9)", "train (train.py:12)"]
STUCK = ["load (train.py:6)", "step (train.py:8)", "train (train.py:12)"]


def started(site: Site, nodes: int, **changed: object) -> SimJob:
    """A job that opted in, running."""
    job = site.slurm.submit(nodes, **{"comment": "holdfast", "exclusive": True, **changed})
    site.run(2)
    assert job.state == "RUNNING"
    return job


def job_that_saves(site: Site) -> SimJob:
    """A job that registered a checkpoint directory, takes a signal to save, and has saved once."""
    job = started(site, 2, comment="")
    machine = site.machine(job.nodes[0])
    detail = {"fenced": True, "save_signal": "USR1"}
    site.agents.state(machine, "checkpoint.register", job.job_id, 0, path="/ckpt", detail=detail)
    site.agents.state(machine, "checkpoint.saved", job.job_id, 0, step=10)
    site.run(2)
    return job


def asks_to_save(site: Site, node: str) -> None:
    """The agent passes on that the spot capacity is taken back in two minutes."""
    at = site.clock.now() + timedelta(seconds=120)
    site.fault(
        node,
        check="cloud.interruption",
        component="node",
        code="terminate",
        minor=None,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        summary="spot capacity is taken back",
        sticky=True,
        evidence={"notice": "interruption", "goes_at": at.isoformat()},
    )
    site.react()


def announced(site: Site, node: str, kind: NoticeKind, code: str, in_s: float | None) -> None:
    """The provider announces something about the node's machine."""
    at = site.clock.now() + timedelta(seconds=in_s) if in_s is not None else None
    notice = Notice(site.machine(node).instance_id, node, kind, code, "says the provider", at)
    site.provider.announced = [*site.provider.announced, notice]
    site.run(21)


def training(site: Site, job: SimJob | None = None) -> SimJob:
    """A job of three nodes that reports its steps."""
    job = job or started(site, 3)
    _tells(site, job, 0, "init")
    site.run(5)
    for step in range(10):
        _tells(site, job, step, "step", step_ms=900)
        site.run(2)
    return job


def _tells(site: Site, job: SimJob, step: int, phase: str, **more: int) -> None:
    if job.nodes:
        detail: dict[str, str | int] = {"phase": phase, **more}
        site.agents.state(site.machine(job.nodes[0]), "progress", job.job_id, job.restarts, step=step, detail=detail)


def stuck_stacks(site: Site, odd: str) -> None:
    """Each node has one rank, which waits in a collective; that of ``odd`` is elsewhere."""

    def stacks(machine: Machine, _job_id: int) -> dict[str, Any]:
        frames = STUCK if machine.node == odd else WAIT
        return {"ranks": [{"pid": 7, "rank": int(machine.node[1:]), "frames": frames}]}

    site.agents.stacks = stacks


def stands(site: Site) -> None:
    """Four groups, two of them flexible, of which the last is slow for more than a minute."""
    words = {"comment": "holdfast elastic=2:4", "array_job_id": 100}
    more = {"comment": "holdfast elastic=2:4 of=100", "array_job_id": 200}
    jobs = [site.slurm.submit(1, exclusive=True, array_task_id=i, **(words if i < 2 else more)) for i in range(4)]
    site.run(2)
    for step in range(85):
        for job, own in zip(jobs, (700, 710, 705, 1000), strict=True):
            detail: dict[str, str | int] = {"phase": "step", "step_ms": 1000, "own_ms": own}
            machine = site.machine(job.nodes[0]) if job.nodes else None
            if machine is not None:
                site.agents.state(machine, "progress", job.job_id, job.restarts, step=step, detail=detail)
        site.run(1)
    site.slurm.finish(jobs[3], "COMPLETED")
    site.run(40)


def ordered(site: Site, verb: OrderVerb, number: str, node: str) -> None:
    """An operator orders a drain, a release or another machine through Holdfast."""
    shown, now = site.slurm.node(node), site.clock.now()
    over = shown.given_reason if shown.out_of_service or verb is not OrderVerb.REPLACE else None
    machine = site.machine(node).instance_id if verb is OrderVerb.REPLACE else ""
    order = NodeOrder(number, node, verb, now, "ops", "fan on order", "OPS-12", over, machine)
    site.store.operate(Operation(f"{verb.value}_node", "ops", node, order.reason, order=order, node=node), now)


def with_bundles(site: Site) -> None:
    """Agents send the evidence that they are asked for."""
    carry_out = site.agents._carry_out

    def with_bundle(machine: Machine, order: Intent) -> OrderOutcome:
        said = carry_out(machine, order)
        asked = isinstance(order.action, SendOrder) and order.action.verb is Verb.EVIDENCE
        return replace(said, bundle=b"\x1f\x8bnot really a tar") if asked else said

    site.agents._carry_out = with_bundle  # type: ignore[method-assign]


def drains_before_undrain(site: Site, looks: Callable[[Intent, str], None]) -> Callable[[Intent, str], None]:
    """An operator drains n1 by hand right before Holdfast would put it back."""

    def at(intent: Intent, moment: str) -> None:
        if (intent.kind, moment) == ("Undrain", "started"):
            site.slurm.operator_drains("n1", "mine")
        looks(intent, moment)

    return at
