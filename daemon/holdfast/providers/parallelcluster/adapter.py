"""AWS ParallelCluster: clustermgtd owns the machines, and is controlled through Slurm.

A node that Slurm powers down loses its machine at clustermgtd's next iteration (60 s). A static node (``queue-st-resource-1``) then
gets another automatically; a dynamic one (``queue-dy-resource-1``) once Slurm powers it up. The machine that serves a node is the
one that EC2 shows at the node's NodeAddr. ``slurm/holding.py`` keeps nodes meanwhile; the facts are in
``docs/decisions/0006-held-by-reservation.md``."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Protocol

from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.model.ids import slurm_reason
from holdfast.model.machine import Instance, ProviderCan
from holdfast.model.slurm.cluster import Node
from holdfast.ports import Scheduler
from holdfast.providers.limits import LimitedProvider
from holdfast.providers.parallelcluster.settings import ParallelClusterSettings

log = logging.getLogger(__name__)

_DYNAMIC = re.compile(r".+-dy-.+-\d+")
_GONE = frozenset({"shutting-down", "terminated"})
_GOING_DOWN = frozenset({"POWER_DOWN", "POWERING_DOWN", "POWERED_DOWN"})
_LOOK_EVERY_S = 2.0


class Machines(Protocol):
    """The part of EC2 that is needed: see :class:`holdfast.providers.parallelcluster.ec2_machines.ClusterMachines`."""

    def at(self, address: str) -> Instance | None: ...

    def one(self, instance_id: str) -> Instance: ...

    def reboot(self, instance_id: str) -> None: ...


def is_dynamic(node: str) -> bool:
    """Pattern of ParallelCluster's dynamic node names, ``queue-dy-resource-1``; static ones have ``-st-``."""
    return _DYNAMIC.fullmatch(node) is not None


class ParallelClusterProvider(LimitedProvider):
    """``Provider`` over Slurm and EC2. Thread-safe; bounded by Slurm's and EC2's deadlines and ``patience_s``."""

    def __init__(
        self,
        settings: ParallelClusterSettings,
        *,
        scheduler: Scheduler,
        machines: Machines | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._slurm = scheduler
        self._machines = machines if machines is not None else _open_machines(settings)
        self._sleep = sleep
        self._monotonic = monotonic

    @property
    def name(self) -> str:
        return "parallelcluster"

    @property
    def can(self) -> ProviderCan:
        return ProviderCan(
            reboot=self._settings.ec2_reboot,
            replace=True,
            launch_first=False,
            status=True,
            power_off_confirmed=True,
            replace_in_place=True,
            announces=True,
        )

    def instance_of(self, node: str) -> Instance | None:
        """The machine at the node's NodeAddr; None while it has none."""
        try:
            shown = self._slurm.node(node)
        except NotFound:
            return None
        return self._serving(shown)

    def instance(self, instance_id: str) -> Instance:
        """One machine as EC2 shows it; ``node`` is the one that has its address in Slurm now."""
        found = self._machines.one(instance_id)
        nodes = self._slurm.all_nodes().values() if found.state not in _GONE and found.address else ()
        names = [node.name for node in nodes if node.address == found.address]
        return changed(found, node=names[0] if names else "")

    def replace(self, node: str, instance_id: str, *, incident: str, token: str) -> Instance:
        """Have Slurm power the node down and clustermgtd put another machine behind it. The caller has freed the node.

        Safe to repeat: a machine that is shutting down, gone or no longer the node's counts as being replaced, and a later one of the
        node has another id and is never affected. A job that has started meanwhile is not killed: Slurm waits for it. A dynamic node
        is powered up again after it is off: Unavailable until then. Raises Rejected when the machine is another node's."""
        shown = self._slurm.node(node)
        serving = self._serving(shown)
        if serving is not None and serving.instance_id != instance_id:
            self._refuse_anothers(node, instance_id)
            log.info("event=replaced node=%s old=%s new=%s", node, instance_id, serving.instance_id)
            return serving
        if serving is None:
            self._prove_gone(shown, instance_id)
        elif not _asked_for(shown):
            self._slurm.power_down(node, slurm_reason(incident, f"exchange {instance_id}"))
            log.info(
                "event=power_down_asked node=%s incident=%s token=%s instance=%s", node, incident, token, instance_id
            )
        if is_dynamic(node):
            self._bring_back(node)
        return self._going(node, instance_id, serving)

    def reboot(self, instance_id: str, *, incident: str = "", token: str = "") -> None:
        if not self._settings.ec2_reboot:
            self._refuse(f"reboot {instance_id} past Slurm (ec2_reboot is off)")
        state = self._machines.one(instance_id).state
        if state != "running":
            raise Rejected(f"{instance_id} is {state}, so it cannot be rebooted")
        self._machines.reboot(instance_id)
        log.info("event=reboot_asked instance=%s", instance_id)

    def _serving(self, shown: Node) -> Instance | None:
        if shown.address in ("", shown.name):  # clustermgtd's mark for "no machine"
            return None
        found = self._machines.at(shown.address)
        return changed(found, node=shown.name) if found is not None else None

    def _refuse_anothers(self, node: str, instance_id: str) -> None:
        try:
            whose = self.instance(instance_id).node
        except NotFound:
            return
        if whose and whose != node:
            raise Rejected(f"{instance_id} is {whose}'s machine, not {node}'s: left alone")

    def _prove_gone(self, shown: Node, instance_id: str) -> None:
        """Slurm names an address at which EC2 shows nothing: the node released its machine only if the machine is gone."""
        if shown.address in ("", shown.name):
            return
        try:
            old = self._machines.one(instance_id)
        except NotFound:
            return
        if old.state not in _GONE:
            raise Unavailable(f"EC2 shows {instance_id} {old.state}, and nothing at {shown.name}'s address: ask again")

    def _bring_back(self, node: str) -> None:
        """Power up a dynamic node that is off, so that its next machine can be validated before a job needs it."""
        until_s = self._monotonic() + self._settings.patience_s
        while True:
            shown = self._slurm.node(node)
            if "POWERED_DOWN" in shown.flags:
                self._slurm.power_up(node)
                log.info("event=power_up_asked node=%s", node)
                return
            if "POWERING_UP" in shown.flags or not (shown.down or shown.flags & _GOING_DOWN):
                return
            if self._monotonic() >= until_s:
                raise Unavailable(f"{node} is not powered down yet ({'+'.join(sorted(shown.flags))}): ask again")
            self._sleep(_LOOK_EVERY_S)

    def _going(self, node: str, instance_id: str, serving: Instance | None) -> Instance:
        if serving is not None:
            return changed(serving, state="shutting-down")
        return Instance(instance_id=instance_id, node=node, state="terminated")


def _asked_for(shown: Node) -> bool:
    """Whether Slurm is powering the node down already, or the node is DOWN, on which clustermgtd acts in the same way."""
    return shown.down or bool(shown.flags & _GOING_DOWN)


def _open_machines(settings: ParallelClusterSettings) -> Machines:
    from holdfast.providers.parallelcluster.ec2_machines import ClusterMachines  # noqa: PLC0415 - boto3 only where it is used

    return ClusterMachines(settings)
