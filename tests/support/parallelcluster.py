"""A simulated ParallelCluster: a site with the look-alike of clustermgtd and Slurm's own power saving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, cast

from holdfast.model.errors import NotFound
from holdfast.model.machine import Instance
from holdfast.model.slurm.cluster import Node
from holdfast.practice.aws.seed import TEMPLATE, open_ec2
from holdfast.providers.parallelcluster.adapter import ParallelClusterProvider
from holdfast.providers.parallelcluster.ec2_machines import CLUSTER_TAG, COMPUTE, TYPE_TAG
from holdfast.providers.parallelcluster.settings import ParallelClusterSettings
from holdfast.slurm.holding import HeldByReservation
from support.clustermgtd import STATIC_REASON, Backing, ClusterManager
from support.simulated import SimProvider, Site
from support.simulated.slurm import PowerSaving, SimSlurm

SETTINGS = ParallelClusterSettings("pc", "us-east-1")


class Fleet(Protocol):
    """The cluster's instances in EC2, as clustermgtd changes them."""

    def backing(self) -> Mapping[str, Backing]: ...

    def terminate(self, instance_id: str) -> None: ...

    def launch(self, node: str) -> str:
        """Address of a new instance."""
        ...


class SimGround:
    """Implements :class:`support.clustermgtd.Ground` over the simulated Slurm and a fleet."""

    def __init__(self, slurm: SimSlurm, fleet: Fleet) -> None:
        self.slurm = slurm
        self.fleet = fleet
        for name in slurm.nodes:
            slurm.addresses.setdefault(name, name)
        slurm.on_resume = self._resume

    def nodes(self) -> Mapping[str, Node]:
        return self.slurm.view().nodes

    def backing(self) -> Mapping[str, Backing]:
        return self.fleet.backing()

    def drain(self, node: str, reason: str) -> None:
        self.slurm.operator_drains(node, reason, "root")

    def set_down(self, node: str, reason: str) -> None:
        found = self.slurm.nodes[node]
        found.down, found.reason, found.user, found.time = True, reason, "root", self.slurm._second()
        self.slurm._kill_on(node)
        self.forget_address(node)

    def force_power_down(self, node: str, reason: str) -> None:
        found = self.slurm.nodes[node]
        self.slurm._kill_on(node)
        found.down, found.drain, found.reason = False, False, reason
        found.power = "POWER_DOWN"
        self.forget_address(node)

    def forget_address(self, node: str) -> None:
        self.slurm.addresses[node] = node

    def terminate(self, instance_id: str) -> None:
        self.fleet.terminate(instance_id)

    def launch(self, node: str) -> bool:
        self.slurm.addresses[node] = self.fleet.launch(node)
        return True

    def registers(self, node: str) -> None:
        """A new machine's slurmd registers for the first time."""
        self.slurm.registers(node)
        found = self.slurm.nodes[node]
        if found.down and found.reason == STATIC_REASON:
            found.down, found.reason, found.user, found.time = False, "", "", None

    def _resume(self, node: str) -> None:
        self.launch(node)


class SimFleet:
    """The fleet over a site's machines; it is the provider's EC2 as well."""

    def __init__(self, provider: SimProvider) -> None:
        self._provider = provider
        self._number = 0
        self.impaired_since: dict[str, datetime] = {}

    def address(self, instance_id: str) -> str:
        return f"10.1.{int(instance_id.rsplit('-', 1)[1])}"

    def backing(self) -> Mapping[str, Backing]:
        return {self.address(i): self._backing(i) for i in self._provider.live()}

    def _backing(self, instance_id: str) -> Backing:
        shown = self._provider.instance(instance_id)
        launched_at = shown.launched_at or datetime.fromtimestamp(0).astimezone()
        return Backing(instance_id, launched_at, self.impaired_since.get(instance_id))

    def terminate(self, instance_id: str) -> None:
        self._provider.terminate(instance_id)

    def launch(self, node: str) -> str:
        self._number += 1
        made = self._provider.launch(node, incident="", token=f"clustermgtd-{self._number}")
        self._provider.assign(made.instance_id, node)
        return self.address(made.instance_id)

    # What the provider sees

    def at(self, address: str) -> Instance | None:
        found = [i for i in self._provider.live() if self.address(i) == address]
        return replace(self._provider.instance(found[0]), node="", address=address) if found else None

    def one(self, instance_id: str) -> Instance:
        shown = self._provider.instance(instance_id)
        address = self.address(instance_id) if shown.state == "running" else ""
        return replace(shown, node="", address=address)

    def reboot(self, instance_id: str) -> None:
        raise NotFound(instance_id)


class EmulatedFleet:
    """The fleet in the AWS emulator, with ParallelCluster's own tags."""

    def __init__(self, endpoint: str, cluster: str) -> None:
        self._ec2 = open_ec2(endpoint)
        self._cluster = cluster

    def backing(self) -> Mapping[str, Backing]:
        filters: Any = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        found = [i for r in self._ec2.describe_instances(Filters=filters)["Reservations"] for i in r["Instances"]]
        return {i["PrivateIpAddress"]: Backing(i["InstanceId"], i["LaunchTime"]) for i in found}

    def terminate(self, instance_id: str) -> None:
        self._ec2.terminate_instances(InstanceIds=[instance_id])

    def launch(self, node: str) -> str:
        tags: Any = [{"Key": CLUSTER_TAG, "Value": self._cluster}, {"Key": TYPE_TAG, "Value": COMPUTE}]
        made = self._ec2.run_instances(
            MinCount=1,
            MaxCount=1,
            LaunchTemplate={"LaunchTemplateName": TEMPLATE},
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        return made["Instances"][0]["PrivateIpAddress"]


class ClusterSite(Site):
    """``holding``: Holdfast keeps nodes by reservations, as on a ParallelCluster; without it by drains, as elsewhere."""

    def __init__(
        self, nodes: Mapping[str, str], *, saving: PowerSaving, holding: bool = True, old: bool = False, **given: Any
    ) -> None:
        self._saving, self._holding, self._old = saving, holding, old
        self._started: dict[str, datetime | None] = {}
        super().__init__(made=nodes, **given)

    def start_controller(self) -> None:
        if not hasattr(self, "manager"):
            self._prepare()
        plain = self.slurm
        self.slurm = cast("SimSlurm", self.seen)
        super().start_controller()
        self.slurm = plain

    def start_actor(self) -> None:
        plain, provider = self.slurm, self.provider
        self.slurm, self.provider = cast("SimSlurm", self.seen), cast("SimProvider", self.hands)
        super().start_actor()
        self.slurm, self.provider = plain, provider

    def _prepare(self) -> None:
        self.fleet = SimFleet(self.provider)
        for node in self.slurm.nodes:
            self.slurm.addresses[node] = self.fleet.address(self.provider.serving(node).instance_id)
        self.slurm.saving = self._saving
        self.ground = SimGround(self.slurm, self.fleet)
        self.manager = ClusterManager(self.ground, self.clock.now, self.clock.monotonic_s, before_3_16=self._old)
        self.seen = HeldByReservation(self.slurm) if self._holding else self.slurm
        self.hands = ParallelClusterProvider(
            SETTINGS,
            scheduler=self.seen,
            machines=self.fleet,
            sleep=self.pass_time,
            monotonic=self.clock.monotonic_s,
        )

    def pass_time(self, seconds: float) -> None:
        """The provider waits while the simulation continues."""
        self.clock.advance(seconds)
        self.world_moves()

    def world_moves(self) -> None:
        super().world_moves()
        for node in self.slurm.nodes.values():
            if self._started.get(node.name) != node.slurmd_started:
                self._started[node.name] = node.slurmd_started
                self.ground.registers(node.name)
        self.manager.step()

    def given_away(self) -> list[str]:
        """Nodes whose machine clustermgtd has ended, in order."""
        return [node for node, _ in self.manager.terminated]
