"""Variants of the demo: provider, number of spares, quality of the replacements, and the claims that must be true at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from holdfast.model.errors import NotFound
from holdfast.model.event import ATTEMPT_FAILED, FAILURE, FailedPart
from holdfast.model.policies.policy import JobPolicy
from holdfast.model.slurm.cluster import Job, Node
from holdfast.practice.cluster.backing import HyperpodBacking, RackBacking
from holdfast.practice.cluster.deliveries import Delivery
from holdfast.practice.cluster.site import SPARES, PracticeSite
from holdfast.practice.demo.narrator import Fact
from holdfast.practice.nvml import state as nvml

_CALL = re.compile(r"event=notify subject='([^']*)'")
ATTEMPTS = 3
"""Replacements before an operator is notified: the default of ``repair.attempts``."""


@dataclass(frozen=True, slots=True)
class Show:
    """One variant of the demo."""

    provider: str = "ec2"
    spares: int = 1
    failures: int = 0
    """Number of replacements that come without their last GPU."""
    same_hardware: bool = False
    """The first replacement is the old hardware again."""
    watched: bool = False
    """HyperPod repairs automatically (NodeRecovery Automatic), Holdfast observes and validates."""

    @property
    def nodes(self) -> int:
        """Number of nodes. With a spare, one more node is idle; without, the job needs all nodes."""
        return 4 + self.spares if self.spares else 3

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        return (Delivery.SAME,) if self.same_hardware else (Delivery.FAULTY,) * self.failures

    @property
    def machines(self) -> int:
        """Machines that Holdfast will request."""
        return 0 if self.watched else min(len(self.deliveries) + 1, ATTEMPTS)

    @property
    def heals(self) -> bool:
        """Whether the last machine is good; otherwise an operator is notified."""
        return len(self.deliveries) < ATTEMPTS


def calls(site: PracticeSite) -> list[str]:
    """Subjects of notifications. A site without notification addresses gets them in the actor's log."""
    log = site.folder / "log" / "actor.log"
    return _CALL.findall(log.read_text(errors="replace")) if log.exists() else []


class MachineIdentity(NamedTuple):
    """The machine behind a node's name at a time, read from the emulated hardware itself."""

    instance_id: str
    gpus: frozenset[str]
    """UUIDs."""

    @classmethod
    def of(cls, site: PracticeSite, node: str) -> MachineIdentity:
        host = site.practice.machine(node).host
        return cls(host.instance_id, frozenset(gpu.uuid for gpu in nvml.read(host.nvml_state).gpus))


@dataclass
class DemoResult:
    """Result of a demo: each claim is checked at its source (Slurm, the machines' provider, the job's own output)."""

    show: Show
    site: PracticeSite
    job_id: int
    bad: str
    first_nodes: tuple[str, ...]
    before: MachineIdentity
    """The bad node's machine before the fault."""
    timeline: Sequence[Mapping[str, Any]]
    """The incident's events."""
    output: Sequence[str]
    """The job's own output."""

    @cached_property
    def job(self) -> Job:
        return self.site.scheduler.job(self.job_id)

    @cached_property
    def node(self) -> Node:
        return self.site.scheduler.node(self.bad)

    @cached_property
    def after(self) -> MachineIdentity:
        return MachineIdentity.of(self.site, self.bad)

    def facts(self) -> list[Fact]:
        facts = [*self._job(), *self._orders()]
        return [*facts, *(self._healed() if self.show.heals else self._human()), self._left()]

    def _job(self) -> Iterator[Fact]:
        job, kept = self.job, set(self.first_nodes) - {self.bad}
        if not self.show.spares and not self.show.heals:
            yield (
                f"Slurm: no third node is left for job {job.key}: it waits in the queue, not held",
                job.state == "PENDING" and job.restarts == 1 and job.priority > 0,
            )
            return
        yield (
            f"Slurm: job {job.key} runs again under the same id, Restarts={job.restarts}",
            job.state == "RUNNING" and job.restarts == 1,
        )
        if self.show.spares:
            spare = self.site.spare_names[0]
            yield (
                f"Slurm: it left {self.bad}, kept {', '.join(sorted(kept))}, and got the spare {spare}",
                set(job.nodes) == kept | {spare},
            )
        else:
            waited = self._at("job.running") >= self._at("node.returned") > ""
            yield (
                f"No spare: it waited until {self.bad} was back, and runs on {', '.join(sorted(job.nodes))} again",
                waited and set(job.nodes) == set(self.first_nodes),
            )
        resumed = [int(line.split()[3]) for line in self.output if line.startswith("resumed from step")]
        yield (
            f"Job's own output: resumed from step {resumed[-1] if resumed else '?'}, not from zero",
            bool(resumed) and resumed[-1] > 0,
        )
        if self.show.deliveries and self.show.spares:
            yield "It ran again before the first replacement had failed", self._at("job.running") < self._failed_at()

    def _orders(self) -> Iterator[Fact]:
        """Claims about the requests to the machines' provider, from its own record."""
        if self.show.provider == "ec2":
            yield from self._ec2()
        elif self.show.provider == "hyperpod":
            yield from self._hyperpod()
        else:
            yield from self._rack()

    def _ec2(self) -> Iterator[Fact]:
        emulator, first = self.site.emulator, len(self.site.practice.nodes)
        launches = [call["number"] for call in emulator.calls("RunInstances") for _ in call["effects"]][first:]
        launched, gone = emulator.effects("RunInstances")[first:], emulator.effects("TerminateInstances")
        old = self.before.instance_id
        if not self.show.heals:
            yield (
                f"EC2: {len(launched)} machines launched and terminated again ({', '.join(launched)}); {old} still stands",
                sorted(launched) == sorted(gone) and len(launched) == self.show.machines,
            )
            return
        good = [i for i in launched if i not in gone]
        ends = [c["number"] for c in emulator.calls("TerminateInstances") if old in c["effects"]]
        failed = f", {len(launched) - 1} that failed terminated" if self.show.failures else ""
        yield (
            f"EC2: a new machine ({', '.join(good)}) launched first, then the old one ({old}) terminated{failed}",
            good == [self.after.instance_id] and gone.count(old) == 1 and len(launched) == self.show.machines
            and len(gone) == len(launched) and max(launches) < min(ends, default=0),
        )  # fmt: skip

    def _hyperpod(self) -> Iterator[Fact]:
        pod = HyperpodBacking(self.site.practice).control
        asked = pod.effects("BatchReplaceClusterNodes")
        theirs = [m for m in pod.machines() if m["node"] == self.bad]
        live = [m["instance_id"] for m in theirs if m["status"] == "Running"]
        if self.show.watched:
            yield (
                f"HyperPod: {', '.join(live)} is {self.bad} now, by its own decision; Holdfast sent no order",
                not asked and len(theirs) == 2 and live == [self.after.instance_id],
            )
            return
        yield (
            f"HyperPod: BatchReplaceClusterNodes, once each, for {', '.join(asked)}; {', '.join(live)} is {self.bad} now",
            asked == [m["instance_id"] for m in theirs[:-1]] and len(asked) == self.show.machines
            and asked[0] == self.before.instance_id and live == [self.after.instance_id],
        )  # fmt: skip

    def _rack(self) -> Iterator[Fact]:
        taken = RackBacking(self.site.practice).rack.orders()
        orders = [order for order in taken if order["verb"] == "replace"]
        tag = self.before.instance_id
        yield (
            f"The site's script: {len(orders)} order{'s' * (len(orders) > 1)} to exchange {tag} in place, each with "
            f"its own token: {', '.join(order['token'] for order in orders)}",
            len({order["token"] for order in orders}) == len(orders) == self.show.machines
            and {order["instance_id"] for order in orders} == {tag} and all("done_at" in order for order in orders),
        )  # fmt: skip

    def _healed(self) -> Iterator[Fact]:
        if self.show.same_hardware:
            failed = [e["detail"].get(FAILURE) for e in self.timeline if ATTEMPT_FAILED in e["detail"]]
            yield (
                "The same GPUs came back under the replacement: seen, and replaced once more",
                failed == [FailedPart.SAME_HARDWARE.value],
            )
        new = self.after.gpus
        yield (
            f"The hardware: none of the {len(new)} GPUs behind {self.bad} was there before",
            len(new) == len(self.before.gpus) and not new & self.before.gpus,
        )
        validated = self._at("node.validated")
        yield "Holdfast: the new machine was validated before it served", "" < validated <= self._at("node.returned")
        where = ", as the new spare" if self.show.spares else ""
        yield (
            f"Slurm: {self.bad} is back in service{where}",
            not self.node.out_of_service and (self.bad in self._pool()) is bool(self.show.spares),
        )
        yield f"No operator was notified ({len(self._calls())} messages)", not self._calls()

    def _human(self) -> Iterator[Fact]:
        told = self._calls()
        yield f"An operator was notified, once: {'; '.join(told) or 'never'}", len(told) == 1
        yield f"Slurm: {self.bad} takes no job: {self.node.reason}", self.node.draining and self.bad not in self._pool()

    def _left(self) -> Fact:
        holds = [one for name, one in self.site.scheduler.view().reservations.items() if name != SPARES]
        if not holds or self.show.spares or self.show.heals:
            return "Slurm: no reservation of the recovery is left behind", not holds
        ends = [one.end_time for one in holds if one.end_time is not None]
        until = ", ".join(f"{end:%H:%M:%S} UTC" for end in ends)
        nodes = ", ".join(sorted(node for one in holds for node in one.nodes))
        soon = datetime.now(UTC) + timedelta(seconds=JobPolicy().hold_duration_s)
        bounded = len(ends) == len(holds) and all(end <= soon for end in ends)
        return f"Slurm: {nodes} are kept for the job until {until} and no longer", bounded

    def _calls(self) -> list[str]:
        """Notifications about this node; those about the spare pool's size are not counted."""
        return [subject for subject in calls(self.site) if self.bad in subject]

    def _pool(self) -> tuple[str, ...]:
        try:
            return self.site.scheduler.reservation(SPARES).nodes
        except NotFound:
            return ()

    def _at(self, kind: str) -> str:
        """Time of the last event of this kind; empty: there was none."""
        return max((event["at"] for event in self.timeline if event["kind"] == kind), default="")

    def _failed_at(self) -> str:
        """When the first replacement had failed."""
        return min((event["at"] for event in self.timeline if ATTEMPT_FAILED in event["detail"]), default="")
