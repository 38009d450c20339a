"""One small Protocol per outside thing. Adapters live in ``slurm/``, ``providers/``, ``store/``; twins obey one contract suite.

Every call is synchronous and bounded: an adapter has a deadline of its own and raises
:class:`~holdfast.model.errors.Unavailable` when it passes. Calls that change something are idempotent or say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.model.cluster import ClusterView, Job, Node, Reservation


class Clock(Protocol):
    """Time, injected everywhere so that tests own it."""

    def now(self) -> datetime:
        """Wall time, UTC-aware."""
        ...

    def monotonic_s(self) -> float:
        """CLOCK_MONOTONIC in seconds."""
        ...


class Scheduler(Protocol):
    """Slurm. Reading needs no rights; the verbs need SlurmUser, root or an operator."""

    def view(self) -> ClusterView:
        """All nodes, jobs (with the GPUs they hold) and reservations, read now."""
        ...

    def node(self, name: str) -> Node:
        """One node, read now. Raises NotFound."""
        ...

    def job(self, job_id: int) -> Job:
        """One job, read now. Raises NotFound once Slurm has forgotten it."""
        ...

    def version(self) -> str:
        """Slurm's release, such as ``22.05.8``."""
        ...

    def config(self) -> dict[str, str]:
        """slurmctld's running configuration, key → value as ``scontrol show config`` prints them."""
        ...

    def drain(self, node: str, reason: str) -> None:
        """Set DRAIN with the reason. Running jobs go on. Overwrites nothing: the caller has looked at the reason first."""
        ...

    def undrain(self, node: str) -> None:
        """Clear DRAIN (and DOWN): state RESUME. The caller has proved that the drain is ours."""
        ...

    def set_down(self, node: str, reason: str) -> None:
        """Set DOWN *and* DRAIN. Slurm kills and requeues the node's jobs at once: this is a requeue, none is sent besides."""
        ...

    def requeue(self, job_id: int) -> None:
        """Requeue a running or just finished batch job under the same id. Not idempotent: compare Restarts first."""
        ...

    def release(self, job_id: int, *, reservation: str | None = None) -> None:
        """Let a requeued job start now: clear the BeginTime hold, optionally inside a reservation.

        Raises Rejected while the job is still COMPLETING (try again), NotFound when it is gone."""
        ...

    def hold(self, job_id: int, reason: str) -> None:
        """Hold a pending job (JobHeldAdmin), or requeue-hold a running one, with a comment its owner can read."""
        ...

    def set_excluded_nodes(self, job_id: int, nodes: tuple[str, ...]) -> None:
        """Replace the ExcNodeList of a pending job."""
        ...

    def set_job_reservation(self, job_id: int, reservation: str | None) -> None:
        """Put a job into a reservation, or take it out of any with None."""
        ...

    def tell_owner(self, job_id: int, text: str) -> None:
        """Leave one line where the owner looks: the job's AdminComment (``scontrol show job``)."""
        ...

    def create_reservation(self, name: str, nodes: tuple[str, ...], *, users: tuple[str, ...], duration_s: int | None,
                           hold_for_job: bool = False) -> None:
        """A reservation that begins now on nodes that may be busy. ``duration_s`` None: without end.

        ``hold_for_job``: made to keep a stopped job's nodes for its restart; a job that started in it outlives it.
        Raises Rejected when a reservation of that name exists with other nodes; creating the same again is a success."""
        ...

    def set_reservation_nodes(self, name: str, nodes: tuple[str, ...]) -> None:
        """Replace the node list. Raises NotFound. An empty list deletes the reservation."""
        ...

    def delete_reservation(self, name: str) -> None:
        """Delete it; one that is not there is a success. Jobs that started in it go on."""
        ...

    def reservation(self, name: str) -> Reservation:
        """One reservation, read now. Raises NotFound."""
        ...

    def reboot(self, node: str, reason: str) -> None:
        """Ask Slurm to reboot a drained node as soon as it is idle, so that the reboot is expected."""
        ...


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as its provider shows it."""

    instance_id: str
    node: str
    """Slurm node name that it serves or will serve, empty when unknown."""
    state: str
    """pending, running, stopping, stopped, shutting-down, terminated: EC2's words, which the others map to."""
    healthy: bool | None = None
    """The provider's own status checks; None: not known (yet)."""
    launched_at: datetime | None = None
    address: str = ""
    incident: str = ""
    """Incident whose replacement it is, from the provider's tags."""


@dataclass(frozen=True, slots=True)
class ProviderCan:
    """What a provider is able to do; the ladder uses what there is."""

    reboot: bool
    replace: bool
    launch_first: bool
    """A new machine can be launched and validated before the old one is terminated."""
    status: bool
    power_off_confirmed: bool
    """``instance().state`` is proof that a machine is off (a fence)."""


class Provider(Protocol):
    """What can reboot or replace a machine. Idempotent by token: the same token twice is one machine."""

    @property
    def name(self) -> str: ...

    @property
    def can(self) -> ProviderCan: ...

    def instance_of(self, node: str) -> Instance | None:
        """The live machine that serves the node now (not one being launched for a replacement); None: not known."""
        ...

    def instance(self, instance_id: str) -> Instance:
        """One machine, asked now. Raises NotFound."""
        ...

    def launch(self, node: str, *, incident: str, token: str) -> Instance:
        """Launch a machine that will take over the node name. The same token gives the same machine.

        Raises InsufficientCapacity, NotPermitted, Throttled, Unavailable."""
        ...

    def find_launched(self, token: str) -> Instance | None:
        """The machine that an earlier ``launch`` with this token made, asked from outside (after a crash)."""
        ...

    def assign(self, instance_id: str, node: str) -> None:
        """Hand the node name over to a validated machine (tags). Idempotent."""
        ...

    def terminate(self, instance_id: str) -> None:
        """Terminate for good. One that is gone already is a success."""
        ...

    def reboot(self, instance_id: str) -> None:
        """Ask for a reboot; completion is seen from the node's boot id."""
        ...


class Notifier(Protocol):
    """Tells humans."""

    def notify(self, subject: str, body: str) -> None: ...
