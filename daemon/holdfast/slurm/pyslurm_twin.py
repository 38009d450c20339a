"""The pyslurm twin of the Scheduler port: sends one message to slurmctld where the commands twin starts processes.

pyslurm is bound to one release of Slurm and licensed GPL-2.0: installed by the site, never a dependency, imported only in a
separate process (``pyslurm_worker``). Verified with pyslurm 24.11.0 on Slurm 24.11 (``docs/verified.md``).

What pyslurm 24.11 lacks is done by the commands twin, verb by verb:

- ``create_reservation``, ``set_reservation_nodes``, ``delete_reservation``, ``reservation`` and the view's reservations: there
  is no class for them; the old function interface is going away.
- ``jobs_on``: it loads all jobs or one. ``components`` of a heterogeneous job: it shows the first record.
- ``config``, ``version``: its ``slurmctld.Config`` shows five keys.
- ``reboot``: not there; ``power_down`` and ``power_up``: their states are not.
- ``delay_start``, ``set_array_throttle``: part of an array's elements cannot be named, the throttle not be set.
- ``release``: ``begin_time`` can be set, but the wait for a safe second belongs to both twins and lives in one place.
- ``view`` and ``job`` while a job holds nodes and pyslurm does not show what it holds there, or ended with an exit code (pyslurm
  takes 128 from those above): then all jobs of that call.
- ``view`` and ``node`` while a node is said to be MIXED, which pyslurm also says of a DOWN one: then all nodes of that call.
- ``set_excluded_nodes`` and ``set_job_reservation`` with nothing: it sends no empty text, so it cannot clear.
"""

from __future__ import annotations

import importlib.metadata
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.model.slurm.cluster import ClusterView, Job, Node
from holdfast.slurm import pyslurm_records
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.delegating import DelegatingScheduler
from holdfast.slurm.parse import fold
from holdfast.slurm.pyslurm_client import PyslurmClient
from holdfast.slurm.records import printable

_FIRST_WITH_CLASSES = (23, 2)
"""pyslurm's changelog: Nodes, Jobs and the other classes came with 23.2.0."""
_RUNNING = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED"})


def installed_version() -> str | None:
    """Version of the pyslurm that is installed, None without one. Imports nothing of it."""
    try:
        return importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        return None


def fits(pyslurm: str, slurm: str) -> bool:
    """Whether this pyslurm was made for this release of Slurm: the first two numbers agree (24.5.1 is for 24.05.x), and it
    has the interface of classes."""
    release = _release(pyslurm)
    return release is not None and release >= _FIRST_WITH_CLASSES and release == _release(slurm)


def _release(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


class SlurmPyslurm(DelegatingScheduler):
    """Implements :class:`holdfast.ports.Scheduler`. Safe to call from several threads at a time."""

    def __init__(
        self,
        *,
        env: Mapping[str, str] | None = None,
        deadline_s: float = 10.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``env``: SLURM_CONF and PATH where they are not this process's own. ``deadline_s``: of each call."""
        self._commands = SlurmCommands(env=env, deadline_s=deadline_s)
        super().__init__(self._commands)
        self._client = PyslurmClient(env, deadline_s)
        self._now = now
        self._cluster = ""

    def close(self) -> None:
        """End pyslurm's process. A later call starts another."""
        self._client.close()

    def view(self) -> ClusterView:
        read_at = self._utc()
        nodes = self.all_nodes()
        reservations = self.all_reservations()
        return ClusterView(
            cluster=self._cluster_name(),
            read_at=read_at,
            nodes=nodes,
            jobs=self._jobs(),
            reservations=reservations,
        )

    def node(self, name: str) -> Node:
        found = self._ask("node", name=name)
        return self._commands.node(name) if pyslurm_records.node_in_doubt(found) else pyslurm_records.node(found)

    def job(self, job_id: int) -> Job:
        found = self._ask("job", job_id=job_id)
        if pyslurm_records.job_in_doubt(found):
            return self._commands.job(job_id)
        return pyslurm_records.job(found, self._cluster_name(), self._utc())

    def components(self, job_id: int) -> tuple[Job, ...]:
        found = self.job(job_id)
        return (found,) if found.het_leader is None else self._commands.components(job_id)

    def drain(self, node: str, reason: str) -> None:
        self._ask("update_node", name=node, state="DRAIN", reason=printable(reason))

    def undrain(self, node: str) -> None:
        self._commands.undrain(node)

    def set_instance_id(self, node: str, instance_id: str) -> None:
        self._commands.set_instance_id(node, instance_id)

    def set_down(self, node: str, reason: str, *, drain: bool = True) -> None:
        # DRAIN first: a crash between the two leaves a node that takes no job. DOWN keeps the flag.
        if drain:
            self.drain(node, reason)
        self._ask("update_node", name=node, state="DOWN", reason=printable(reason))

    def requeue(self, job_id: int) -> None:
        self._ask("requeue", job_id=job_id, hold=False)

    def hold(self, job_id: int, reason: str) -> None:
        if self.job(job_id).state in _RUNNING:
            self._ask("requeue", job_id=job_id, hold=True)
            self.tell_owner(job_id, reason)
        else:
            self._commands.hold(job_id, reason)

    def set_excluded_nodes(self, job_id: int, nodes: tuple[str, ...]) -> None:
        if nodes and self.job(job_id).het_leader is None:
            self._ask("update_job", job_id=job_id, excluded_nodes=[fold(nodes)])
        else:
            self._commands.set_excluded_nodes(job_id, nodes)

    def set_job_reservation(self, job_id: int, reservation: str | None) -> None:
        if reservation:
            self._ask("update_job", job_id=job_id, reservations=[reservation])
        else:
            self._commands.set_job_reservation(job_id, None)

    def tell_owner(self, job_id: int, text: str) -> None:
        if text:
            self._ask("update_job", job_id=job_id, admin_comment=printable(text))
        else:  # the binding leaves out what is empty
            self._commands.tell_owner(job_id, text)

    def all_nodes(self) -> dict[str, Node]:
        found = self._ask("nodes")
        if any(pyslurm_records.node_in_doubt(one) for one in found):
            return self._commands.all_nodes()
        return {one["name"]: pyslurm_records.node(one) for one in found}

    def _jobs(self) -> dict[int, Job]:
        found = sorted(self._ask("jobs"), key=lambda one: int(one["id"]))
        if any(pyslurm_records.job_in_doubt(one) for one in found):
            return self._commands.jobs()
        cluster, now = self._cluster_name(), self._utc()
        return {one["id"]: pyslurm_records.job(one, cluster, now) for one in found}

    def _utc(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)

    def _ask(self, verb: str, **arguments: Any) -> Any:
        return self._client.ask(verb, **arguments)

    def _cluster_name(self) -> str:
        """Cluster name, read once: a change needs a restart of slurmctld and its daemons."""
        if not self._cluster:
            self._cluster = self._commands.config()["ClusterName"]
        return self._cluster
