"""SageMaker HyperPod on Slurm: machines are rebooted or replaced in place, and keep their node name.

HyperPod has no client token, and repairs nodes automatically where NodeRecovery is Automatic. So every action first reads
NodeRecovery and the list again, and is keyed by the instance id, which ends with its machine."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import boto3

from holdfast.model.errors import NotFound, Rejected, RepairsItself, Unavailable
from holdfast.model.machine import Instance, Notice, ProviderCan
from holdfast.providers.hyperpod.answers import (
    GOING,
    STEADY,
    BatchResult,
    BatchVerdict,
    PodCluster,
    PodNode,
    check_ready,
    named,
    read_summary,
    serving,
)
from holdfast.providers.hyperpod.api import REBOOT, REPLACE, HyperpodApi
from holdfast.providers.hyperpod.names import ResourceConfig, read_resource_config
from holdfast.providers.hyperpod.settings import LEAD, HyperpodSettings
from holdfast.providers.limits import LimitedProvider

log = logging.getLogger(__name__)


class HyperpodProvider(LimitedProvider):
    """``Provider`` on HyperPod. Thread-safe; every call is bounded by calls × attempts × timeouts of the settings.

    ``launch``, ``assign`` and ``terminate`` are not supported; :meth:`replace` does all three in one call."""

    def __init__(self, settings: HyperpodSettings, *, session: boto3.session.Session | None = None) -> None:
        self._settings = settings
        self._api = HyperpodApi(settings, session)
        self._addresses: dict[str, str] = {}
        """Instance id → address, from DescribeClusterNode: an id keeps its address."""

    @property
    def name(self) -> str:
        return "hyperpod"

    @property
    def can(self) -> ProviderCan:
        """``power_off_confirmed`` is false: an id that is no longer listed does not prove that the machine is off."""
        lead = self._settings.mode == LEAD
        return ProviderCan(
            reboot=lead,
            replace=lead,
            launch_first=False,
            status=True,
            power_off_confirmed=False,
            replace_in_place=lead,
            announces=True,
        )

    def repairs_itself(self) -> bool:
        """Whether the mode is ``observe`` or NodeRecovery is anything but ``None``. Read now; raises Unavailable, Throttled."""
        return self._settings.mode != LEAD or self._api.cluster().repairs_itself

    def notices(self) -> tuple[Notice, ...]:
        """``IMPAIRED`` for each machine that ListClusterNodes shows as Failure; HyperPod has no other notices."""
        return tuple(notice for node in self._list() if (notice := node.as_notice()) is not None)

    def nodes(self) -> tuple[PodNode, ...]:
        """All machines that ListClusterNodes shows now, with their Slurm names as far as list and file know them."""
        return self._list()

    def instance_of(self, node: str) -> Instance | None:
        """The machine of this node name that is not shutting down; None while HyperPod shows none.

        Raises Unavailable while several are listed under the name."""
        found = serving(self._list(), node) or serving(self._list_in_detail(), node)
        return found.as_instance() if found else None

    def instance(self, instance_id: str) -> Instance:
        """One machine, from the list. ``healthy`` is False for Failure, else None: HyperPod never reports a node as healthy."""
        return self._one(instance_id).as_instance()

    def replace(self, node: str, instance_id: str, *, incident: str, token: str) -> Instance:
        """Replace this machine with another under the same node name. The caller has freed the node of jobs.

        Safe to repeat with the same instance id: if the machine is shutting down or gone, nothing is sent; a later machine
        of the node has another id and is never affected. Returns the machine as HyperPod shows it: the old id until it is
        gone, then the new one. ``token`` is only logged, HyperPod takes none.

        Raises RepairsItself; Rejected for a head node, or a machine that is not the node's; Unavailable while HyperPod works
        on the machine or on the cluster, and when the effect is unknown: call again."""
        cluster = self._may_act()
        listed = self._known(node, instance_id)
        old = next((n for n in listed if n.instance_id == instance_id), None)
        if old is None:
            return self._successor(listed, node, instance_id)
        if old.status in GOING and old.node in ("", node):  # resource_config.json loses the name before the list does
            log.info("event=replace_under_way node=%s incident=%s instance=%s", node, incident, instance_id)
            return _going(instance_id, node, old)
        self._refuse_wrong(old, node, cluster)
        _refuse_busy(old)
        result = self._api.ask(REPLACE, instance_id)
        log.info(
            "event=replace_asked node=%s incident=%s token=%s instance=%s verdict=%s",
            node, incident, token, instance_id, result.verdict,
        )  # fmt: skip
        return self._after_replace(node, instance_id, result)

    def reboot(self, instance_id: str, *, incident: str = "", token: str = "") -> None:
        """Ask for a reboot. Succeeds also when an operation is running on the node already; completion is seen from the boot id.

        Not idempotent after the first reboot: HyperPod does not show boots, so compare boot ids before repeating it."""
        cluster = self._may_act()
        node = self._one(instance_id)
        self._refuse_head(node, cluster)
        _refuse_busy(node)
        result = self._api.ask(REBOOT, instance_id)
        log.info("event=reboot_asked instance=%s verdict=%s", instance_id, result.verdict)
        if result.verdict is BatchVerdict.GONE:
            raise NotFound(f"HyperPod has no {instance_id} any more: {result.text}")
        if result.verdict not in (BatchVerdict.ACCEPTED, BatchVerdict.IN_USE):
            raise Unavailable(f"{REBOOT}: {instance_id}: {result.text}; ask again")

    def _refuse(self, what: str) -> NoReturn:
        raise Rejected(f"provider hyperpod cannot {what}: HyperPod exchanges a machine in place, see replace")

    def _may_act(self) -> PodCluster:
        """The final check before an action. Raises RepairsItself, Unavailable, Rejected."""
        if self._settings.mode != LEAD:
            raise RepairsItself("provider hyperpod is in mode observe: HyperPod repairs, Holdfast watches")
        cluster = self._api.cluster()
        if cluster.repairs_itself:
            raise RepairsItself(
                f"NodeRecovery of {self._settings.cluster} is {cluster.node_recovery}: HyperPod repairs, Holdfast watches "
                "(UpdateCluster with NodeRecovery None hands repairs over)"
            )
        check_ready(cluster)
        return cluster

    def _list(self) -> tuple[PodNode, ...]:
        config = self._resource_config()
        style = self._settings.node_names
        raws = [read_summary(raw) for raw in self._api.summaries()]
        return tuple(named(node, config, self._addresses, style) for node in raws)

    def _list_in_detail(self) -> tuple[PodNode, ...]:
        """The list, after one DescribeClusterNode per id for machines that are up and have no address yet."""
        for node in self._list():
            if not node.address and node.status in STEADY:
                try:
                    self._addresses[node.instance_id] = read_summary(self._api.details(node.instance_id)).address
                except NotFound:
                    log.info("event=node_without_details instance=%s", node.instance_id)
        return self._list()

    def _known(self, node: str, instance_id: str) -> tuple[PodNode, ...]:
        """The list; with details where it shows the machine without a name."""
        listed = self._list()
        nameless = any(n.instance_id == instance_id and not n.node for n in listed)
        return self._list_in_detail() if nameless else listed

    def _one(self, instance_id: str) -> PodNode:
        for node in self._list():
            if node.instance_id == instance_id:
                return node
        raise NotFound(f"HyperPod lists no {instance_id} in {self._settings.cluster}")

    def _resource_config(self) -> ResourceConfig:
        """The file, read now; None if it is absent, incomplete or of another cluster."""
        if not self._settings.resource_config:
            return ResourceConfig()
        try:
            config = read_resource_config(Path(self._settings.resource_config).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ResourceConfig()
        except (OSError, ValueError) as error:
            log.warning('event=resource_config_unreadable file=%s text="%s"', self._settings.resource_config, error)
            return ResourceConfig()
        if not config.is_of(self._settings.cluster):
            log.warning(
                "event=resource_config_foreign file=%s cluster=%s", self._settings.resource_config, config.cluster
            )
            return ResourceConfig()
        return config

    def _refuse_wrong(self, old: PodNode, node: str, cluster: PodCluster) -> None:
        self._refuse_head(old, cluster)
        if not old.node:
            raise Unavailable(
                f"whether {old.instance_id} ({old.status}) is {node}'s machine is not known now: ask again"
            )
        if old.node != node:
            raise Rejected(f"HyperPod shows {old.instance_id} as {old.node}, not as {node}")

    def _refuse_head(self, node: PodNode, cluster: PodCluster) -> None:
        heads = cluster.head_groups | set(self._settings.controller_groups)
        if node.group in heads or (node.address and node.address in self._resource_config().controllers):
            raise Rejected(f"{node.instance_id} of group {node.group} is a head node: HyperPod replaces none by API")

    def _successor(self, listed: Sequence[PodNode], node: str, instance_id: str) -> Instance:
        found = serving(listed, node)
        if found is None:
            raise Unavailable(f"HyperPod lists neither {instance_id} nor another machine of {node} now: ask again")
        log.info("event=replaced node=%s old=%s new=%s", node, instance_id, found.instance_id)
        return found.as_instance()

    def _after_replace(self, node: str, instance_id: str, result: BatchResult) -> Instance:
        """The machine as HyperPod lists it after an action. The list may still show the old machine unchanged."""
        listed = self._list()
        old = next((n for n in listed if n.instance_id == instance_id), None)
        if old is None and result.verdict is not BatchVerdict.GONE:
            return _going(instance_id, node)
        if old is None:
            return self._successor(listed, node, instance_id)
        if result.verdict in (BatchVerdict.ACCEPTED, BatchVerdict.IN_USE) or old.status in GOING:
            return _going(instance_id, node, old) if result.verdict is BatchVerdict.ACCEPTED else old.as_instance()
        raise Unavailable(f"{REPLACE}: {instance_id} ({old.status}): {result.text}; ask again")


def _going(instance_id: str, node: str, old: PodNode | None = None) -> Instance:
    """The result of an accepted order: the old machine is shutting down, whatever an outdated list shows."""
    address = old.address if old is not None else ""
    return Instance(instance_id=instance_id, node=node, state="shutting-down", address=address)


def _refuse_busy(node: PodNode) -> None:
    if node.status not in STEADY:
        raise Unavailable(f"HyperPod shows {node.instance_id} as {node.status or 'nothing'}: it works on it, ask again")
