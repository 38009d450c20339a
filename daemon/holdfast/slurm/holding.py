"""Hold nodes out of service by a reservation, where drained nodes would be replaced.

ParallelCluster's clustermgtd checks every minute and replaces each node that is drained and idle, or DOWN; it leaves a node alone that is
idle in a reservation (``docs/decisions/0006-held-by-reservation.md``). A *drain* by this scheduler is a reservation of only that node, for
root, on top of any other reservation; such a node is shown as drained, and the reservation is not shown. So the rest of Holdfast knows
only one way to keep a node. The incident is in the reservation's name, since Slurm before 23.02 has no comment on reservations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from holdfast.model.errors import NotFound, Rejected
from holdfast.model.ids import held_reason, hold_name, hold_of_name, incident_of_job_hold, incident_of_reason
from holdfast.model.slurm.absence import Missing, seen_twice
from holdfast.model.slurm.cluster import NODE_REASONS_OF_SLURM, ClusterView, Node, Reservation
from holdfast.ports import Scheduler
from holdfast.slurm.delegating import DelegatingScheduler

_LOG = logging.getLogger(__name__)
_USERS = ("root",)
"""Users whose jobs may start on a held node: in practice no jobs start."""
_NOBODYS_WORD = (
    # Reasons that clustermgtd writes when it repairs, as of aws-parallelcluster-node 3.16
    "Static node maintenance", "Scheduler health check failed", "Node failing ", "(Code:", "Enabling node since",
    "inactive partition", "stopping cluster",
    # and slurmctld
    *NODE_REASONS_OF_SLURM,
)  # fmt: skip
"""Prefixes of reasons that a program set while Holdfast held the node; they are no takeover by an operator."""


class HeldByReservation(DelegatingScheduler):
    """Implements :class:`holdfast.ports.Scheduler` over another one."""

    def __init__(self, inner: Scheduler) -> None:
        super().__init__(inner)
        self._read: ClusterView | None = None
        """The last reading, including what was missing for the first time."""
        self._missing = Missing()

    def view(self) -> ClusterView:
        """The view with held nodes shown as drained by us, and without the reservations that hold them. A hold that is missing from one
        reading still counts, else its node would appear resumed."""
        view = self._inner.view()
        before = replace(view, reservations=self._read.reservations) if self._read is not None else view
        view, self._missing = seen_twice(before, view, self._missing)
        self._read = view
        nodes = _with_holds(view.nodes, view.reservations)
        return replace(view, nodes=nodes, reservations=_without_holds(view.reservations))

    def node(self, name: str) -> Node:
        return _with_holds({name: self._inner.node(name)}, self._inner.all_reservations())[name]

    def all_nodes(self) -> dict[str, Node]:
        return _with_holds(self._inner.all_nodes(), self._inner.all_reservations())

    def all_reservations(self) -> dict[str, Reservation]:
        return _without_holds(self._inner.all_reservations())

    def drain(self, node: str, reason: str) -> None:
        """Hold the node for the incident that the reason names. Running jobs continue. Raises Rejected for a reason without one."""
        incident = incident_of_reason(reason)
        if incident is None:
            text = f"{node} is not drained: {reason!r} names no incident, and drained nodes are replaced here"
            raise Rejected(f"{text}; to keep jobs off it: holdfast maintain {node}")
        before = self._inner.all_reservations()
        name = hold_name(incident, node)
        # The flags of a job's hold: it may overlap the spare pool and other holds, and may start on a busy node.
        self._inner.create_reservation(name, (node,), users=_USERS, duration_s=None, hold_for_job=True)
        self._leave_jobs_holds(node, before)
        for older in _holds(before).get(node, []):
            if older.name != name:
                self._inner.delete_reservation(older.name)

    def undrain(self, node: str) -> None:
        """Release the node; resume it first where it is also DOWN or drained by Holdfast or a program, and by no one else."""
        shown = self._inner.node(node)
        if shown.out_of_service and not _somebodys(shown):
            self._inner.undrain(node)
        for hold in _holds(self._inner.all_reservations()).get(node, []):
            self._inner.delete_reservation(hold.name)

    def set_down(self, node: str, reason: str, *, drain: bool = True) -> None:
        """Set DOWN, so that clustermgtd replaces the machine, and hold the node, so that the next machine waits for its validation.

        Never set the DRAIN flag: it would stay on the name, and the new machine would be replaced because of it."""
        if drain:
            self.drain(node, reason)
        self._inner.set_down(node, reason, drain=False)

    def _leave_jobs_holds(self, node: str, reservations: Mapping[str, Reservation]) -> None:
        """Remove the node from jobs' holds: a job in one may also use nodes that another reservation keeps (tried on 22.05)."""
        for hold in reservations.values():
            if "FLEX" in hold.flags and incident_of_job_hold(hold.name) is not None:
                rest = tuple(n for n in hold.nodes if n != node)
                if rest != hold.nodes:
                    try:
                        self._inner.set_reservation_nodes(hold.name, rest)
                    except (NotFound, Rejected) as error:  # over, or a job runs in it
                        _LOG.info("event=hold_kept reservation=%s node=%s error=%s", hold.name, node, error)

    def reboot(self, node: str, reason: str | None) -> None:
        """Reboot through Slurm. Slurm reboots an undrained node once it is idle, and the reservation keeps it idle. Slurm shows it DOWN
        meanwhile; our reason marks it as Holdfast's."""
        self._inner.reboot(node, self.node(node).reason if reason is None else reason)


def _with_holds(nodes: Mapping[str, Node], reservations: Mapping[str, Reservation]) -> dict[str, Node]:
    held = _holds(reservations)
    return {**nodes, **{name: _shown(nodes[name], holds[0]) for name, holds in held.items() if name in nodes}}


def _without_holds(reservations: Mapping[str, Reservation]) -> dict[str, Reservation]:
    holds = {r.name for kept in _holds(reservations).values() for r in kept}
    return {name: r for name, r in reservations.items() if name not in holds}


def _holds(reservations: Mapping[str, Reservation]) -> dict[str, list[Reservation]]:
    """Node → its holds, the oldest first. A hold's name counts only on a reservation of exactly that node."""
    found: dict[str, list[Reservation]] = {}
    for reservation in reservations.values():
        kept = hold_of_name(reservation.name)
        if kept is not None and reservation.nodes == (kept[1],):
            found.setdefault(kept[1], []).append(reservation)
    for holds in found.values():
        holds.sort(key=lambda r: (r.start_time.timestamp() if r.start_time else 0.0, r.name))
    return found


def _shown(node: Node, hold: Reservation) -> Node:
    kept = hold_of_name(hold.name)
    if kept is None or _somebodys(node):
        return node
    return replace(
        node,
        flags=node.flags | {"DRAIN"},
        reason=held_reason(kept[0]),
        reason_user=hold.users[0] if hold.users else "",
        reason_time=hold.start_time,
    )


def _somebodys(node: Node) -> bool:
    """Whether an operator has taken the node out of service."""
    ours = incident_of_reason(node.reason) is not None
    return node.out_of_service and bool(node.reason) and not ours and not node.reason.startswith(_NOBODYS_WORD)
