"""A node kept out of service by a reservation, where a drained one would be given away.

ParallelCluster's clustermgtd looks every minute and exchanges each node that it finds drained and idle, or DOWN; a node that is idle
in a reservation it leaves alone (``docs/decisions/0006-held-by-reservation.md``). This scheduler says *drain* and means a reservation
of the node alone, for root, over whatever else reserves it; it shows such a node as drained, and not the reservation. So the rest
of Holdfast knows one way to keep a node. The incident is in the reservation's name, since Slurm keeps no comment of a
reservation before 23.02."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from holdfast.model.absence import Missing, seen_twice
from holdfast.model.cluster import NODE_REASONS_OF_SLURM, ClusterView, Node, Reservation
from holdfast.model.errors import NotFound, Rejected
from holdfast.model.ids import held_reason, hold_name, hold_of_name, incident_of_job_hold, incident_of_reason
from holdfast.ports import Scheduler
from holdfast.slurm.delegating import DelegatingScheduler

_LOG = logging.getLogger(__name__)
_USERS = ("root",)
"""Whose jobs may start on a held node: nobody's in practice."""
_NOBODYS_WORD = (
    # What clustermgtd writes when it repairs, in the words of aws-parallelcluster-node 3.16
    "Static node maintenance", "Scheduler health check failed", "Node failing ", "(Code:", "Enabling node since",
    "inactive partition", "stopping cluster",
    # and slurmctld
    *NODE_REASONS_OF_SLURM,
)  # fmt: skip
"""How reasons begin that a program gave while the node was ours; they take nothing over."""


class HeldByReservation(DelegatingScheduler):
    """Implements :class:`holdfast.ports.Scheduler` over another one."""

    def __init__(self, inner: Scheduler) -> None:
        super().__init__(inner)
        self._read: ClusterView | None = None
        """The last reading, with what it lacked for the first time."""
        self._missing = Missing()

    def view(self) -> ClusterView:
        """Held nodes are shown drained, by us; the reservations that hold them are not shown. A hold that one reading lacks still counts:
        else its node would look resumed."""
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
        """Hold the node for the incident that the reason names. Running jobs go on. Raises Rejected for a reason without one."""
        incident = incident_of_reason(reason)
        if incident is None:
            raise Rejected(f"{node} cannot be held: {reason!r} names no incident")
        before = self._inner.all_reservations()
        name = hold_name(incident, node)
        # The flags of a job's hold: it may overlap the spare pool and other holds, and begins on a busy node.
        self._inner.create_reservation(name, (node,), users=_USERS, duration_s=None, hold_for_job=True)
        self._leave_jobs_holds(node, before)
        for older in _holds(before).get(node, []):
            if older.name != name:
                self._inner.delete_reservation(older.name)

    def undrain(self, node: str) -> None:
        """Let the node go; resume it first where it is also DOWN or drained by us or by a program, and by nobody else."""
        shown = self._inner.node(node)
        if shown.out_of_service and not _somebodys(shown):
            self._inner.undrain(node)
        for hold in _holds(self._inner.all_reservations()).get(node, []):
            self._inner.delete_reservation(hold.name)

    def set_down(self, node: str, reason: str, *, drain: bool = True) -> None:
        """DOWN, which has clustermgtd exchange the machine, and held, so that the next one waits for its validation.

        Never the DRAIN flag: it would stay on the name, and the new machine would be exchanged for it."""
        if drain:
            self.drain(node, reason)
        self._inner.set_down(node, reason, drain=False)

    def _leave_jobs_holds(self, node: str, reservations: Mapping[str, Reservation]) -> None:
        """A job in a hold of ours may use what another reservation keeps as well (tried on 22.05), so the node leaves those."""
        for hold in reservations.values():
            if "FLEX" in hold.flags and incident_of_job_hold(hold.name) is not None:
                rest = tuple(n for n in hold.nodes if n != node)
                if rest != hold.nodes:
                    try:
                        self._inner.set_reservation_nodes(hold.name, rest)
                    except (NotFound, Rejected) as error:  # over, or a job runs in it
                        _LOG.info("event=hold_kept reservation=%s node=%s error=%s", hold.name, node, error)

    def reboot(self, node: str, reason: str | None) -> None:
        """Slurm reboots a node that is in no way drained once it is idle; its reservation keeps it so. It shows it DOWN meanwhile: with a
        reason of ours, so that it is nobody else's."""
        self._inner.reboot(node, self.node(node).reason if reason is None else reason)


def _with_holds(nodes: Mapping[str, Node], reservations: Mapping[str, Reservation]) -> dict[str, Node]:
    held = _holds(reservations)
    return {**nodes, **{name: _shown(nodes[name], holds[0]) for name, holds in held.items() if name in nodes}}


def _without_holds(reservations: Mapping[str, Reservation]) -> dict[str, Reservation]:
    holds = {r.name for kept in _holds(reservations).values() for r in kept}
    return {name: r for name, r in reservations.items() if name not in holds}


def _holds(reservations: Mapping[str, Reservation]) -> dict[str, list[Reservation]]:
    """Node → its holds, the oldest first. A name is believed only of a reservation of that one node."""
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
    """A person has taken it out of service."""
    ours = incident_of_reason(node.reason) is not None
    return node.out_of_service and bool(node.reason) and not ours and not node.reason.startswith(_NOBODYS_WORD)
