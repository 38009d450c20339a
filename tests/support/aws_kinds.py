"""The kinds of AWS machines that a simulated site may run on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from holdfast.ports import Provider
from holdfast.practice.aws import REGION
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.practice.aws.seed import TEMPLATE, open_ec2, seed
from holdfast.providers.asg.adapter import AsgProvider
from holdfast.providers.asg.settings import AsgSettings
from holdfast.providers.ec2.adapter import Ec2Provider
from holdfast.providers.ec2.settings import Ec2Settings, Offer
from holdfast.providers.hyperpod.adapter import HyperpodProvider
from holdfast.providers.hyperpod.settings import HyperpodSettings
from support.aws_site import Cloud

SESSION = boto3.session.Session()
GONE = ("shutting-down", "terminated")
TIMEOUT_S = 0.5


class Ec2Kind:
    """EC2: a machine serves a node once its tags say so, at its launch or later."""

    def __init__(self, *, launch_first: bool, offers: tuple[Offer, ...] = (Offer(),)) -> None:
        self.launch_first, self.offers = launch_first, offers

    def make(self, control: EmulatorControl, cluster: str, nodes: int) -> Mapping[str, str]:
        self.control, self.cluster = control, cluster
        return seed(control.endpoint, cluster, [f"n{n + 1}" for n in range(nodes)])

    def open(self, sleep: Callable[[float], None], monotonic: Callable[[], float]) -> Provider:
        settings = Ec2Settings(
            cluster=self.cluster,
            region=REGION,
            launch_template=TEMPLATE,
            attempts=1,
            read_timeout_s=TIMEOUT_S,
            launch_first=self.launch_first,
            offers=self.offers,
        )
        return Ec2Provider(settings, session=SESSION, sleep=sleep, monotonic=monotonic)

    def follow(self, cloud: Cloud, call: Mapping[str, Any]) -> None:
        given = call["parameters"]
        match call["action"]:
            case "RunInstances":
                tags = flat_tags(given, "TagSpecification.1.Tag")
                for instance_id in call["effects"]:
                    self._made(cloud, instance_id, tags)
            case "CreateTags":
                self._named(cloud, given["ResourceId.1"])
            case "TerminateInstances" | "StopInstances":
                for instance_id in call["effects"]:
                    cloud.power_off(instance_id)
            case "StartInstances":
                for instance_id in call["effects"]:
                    cloud.boot(instance_id, new_host=True)
            case "RebootInstances":
                for instance_id in call["effects"]:
                    cloud.boot(instance_id)

    def _made(self, cloud: Cloud, instance_id: str, tags: Mapping[str, str]) -> None:
        token, node = tags.get("holdfast:token", ""), tags["holdfast:node"]
        cloud.launched[token] += 1
        cloud.make(instance_id, node, cloud.clock.elapsed_s + cloud.chances.boots_in_s())
        if tags.get("holdfast:role", "serving") == "serving":
            cloud.hand_over(node, instance_id)
        cloud.on_launch(instance_id, token)

    def _named(self, cloud: Cloud, instance_id: str) -> None:
        """The call may have failed, or have been carried out with its answer lost: only the tags that it left count."""
        tags = next(i["tags"] for i in cloud.control.instances() if i["id"] == instance_id)
        if tags.get("holdfast:role") == "serving" and instance_id in cloud.machines:
            cloud.hand_over(tags["holdfast:node"], instance_id)

    def stir(self, cloud: Cloud, chance: random.Random) -> None:
        if chance.random() < 0.2:
            self.control.hide_new(chance.randint(1, 8) if len(self.offers) == 1 else 1)

    def mend(self) -> None:
        """No faults except those that the emulator's ``clear`` ends."""

    def live(self) -> set[str]:
        mine = [i for i in self.control.instances() if i["tags"].get("holdfast:cluster") == self.cluster]
        return {i["id"] for i in mine if i["state"] not in GONE}


def flat_tags(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Tags of EC2's query form: ``PREFIX.1.Key``, ``PREFIX.1.Value`` …"""
    tags = {}
    for number in range(1, 51):
        if f"{prefix}.{number}.Key" not in given:
            break
        tags[given[f"{prefix}.{number}.Key"]] = given.get(f"{prefix}.{number}.Value", "")
    return tags


class AsgKind:
    """An Auto Scaling group: it ends and launches instances automatically; a new one serves no node until it is assigned."""

    def __init__(self, replace_by: str) -> None:
        self.replace_by = replace_by

    def make(self, control: EmulatorControl, cluster: str, nodes: int) -> Mapping[str, str]:
        self.control, self.cluster = control, cluster
        seed(control.endpoint, cluster, [])  # the launch template
        config = Config(retries={"total_max_attempts": 1}, proxies={})
        groups = SESSION.client("autoscaling", region_name=REGION, endpoint_url=control.endpoint, config=config)
        groups.create_auto_scaling_group(
            AutoScalingGroupName=cluster,
            LaunchTemplate={"LaunchTemplateName": TEMPLATE, "Version": "$Default"},
            MinSize=0,
            MaxSize=2 * nodes,
            DesiredCapacity=nodes,
            AvailabilityZones=[f"{REGION}a"],
        )
        made = {f"n{n + 1}": instance_id for n, instance_id in enumerate(sorted(self.live()))}
        ec2 = open_ec2(control.endpoint)
        for node, instance_id in made.items():
            tags = {"holdfast:cluster": cluster, "holdfast:node": node, "holdfast:role": "serving"}
            ec2.create_tags(Resources=[instance_id], Tags=[{"Key": k, "Value": v} for k, v in tags.items()])
        return made

    def open(self, sleep: Callable[[float], None], monotonic: Callable[[], float]) -> Provider:
        settings = AsgSettings(
            cluster=self.cluster,
            region=REGION,
            groups=(self.cluster,),
            replace_by=self.replace_by,
            attempts=1,
            read_timeout_s=TIMEOUT_S,
        )
        return AsgProvider(settings, session=SESSION, sleep=sleep, monotonic=monotonic)

    def follow(self, cloud: Cloud, call: Mapping[str, Any]) -> None:
        match call["action"]:
            case "TerminateInstanceInAutoScalingGroup":
                for instance_id in call["effects"]:
                    cloud.power_off(instance_id)
            case "PracticeGroupsTurn":
                for instance_id in call["effects"]:
                    if instance_id in cloud.machines:
                        cloud.before_end(call["action"], instance_id)
                        cloud.power_off(instance_id)
            case "CreateTags":
                self._named(cloud, call["parameters"]["ResourceId.1"])
            case "RebootInstances":
                for instance_id in call["effects"]:
                    cloud.boot(instance_id)

    def _named(self, cloud: Cloud, instance_id: str) -> None:
        tags = next(i["tags"] for i in cloud.control.instances() if i["id"] == instance_id)
        if instance_id not in cloud.machines and tags.get("holdfast:role") == "serving":
            cloud.launched[tags["holdfast:token"]] += 1
            cloud.make(instance_id, tags["holdfast:node"], cloud.clock.elapsed_s + cloud.chances.boots_in_s())
            cloud.hand_over(tags["holdfast:node"], instance_id)
            cloud.on_launch(instance_id, tags["holdfast:token"])

    def stir(self, cloud: Cloud, chance: random.Random) -> None:
        self.control.delays(relaunch_s=chance.uniform(0, 60))
        self.control.group_capacity(self.cluster, available=chance.random() < 0.8)

    def mend(self) -> None:
        self.control.group_capacity(self.cluster, available=True)

    def live(self) -> set[str]:
        mine = [i for i in self.control.instances() if i["tags"].get("aws:autoscaling:groupName") == self.cluster]
        return {i["id"] for i in mine if i["state"] not in GONE}


class HyperpodKind:
    """HyperPod: a new machine takes the place of the old one under the same name; there is no token."""

    def __init__(self, resource_config: Path | None = None) -> None:
        self._file = resource_config
        """Written once and never updated: a worker's copy, which does not list later machines."""

    def make(self, control: EmulatorControl, cluster: str, nodes: int) -> Mapping[str, str]:
        self.cluster = cluster
        self.pod = HyperpodControl(control.endpoint, cluster)
        self.ready_s = 0.0
        self.automatic = False
        made = self.pod.make([{"name": "gpu", "count": nodes}], node_recovery="None")
        if self._file is not None:
            self._file.write_text(json.dumps(self.pod.resource_config()), encoding="utf-8")
        return made

    def open(self, sleep: Callable[[float], None], monotonic: Callable[[], float]) -> Provider:
        file = str(self._file) if self._file is not None else ""
        settings = HyperpodSettings(
            self.cluster, REGION, mode="lead", resource_config=file, attempts=1, read_timeout_s=TIMEOUT_S, page_size=2
        )
        return HyperpodProvider(settings, session=SESSION)

    def follow(self, cloud: Cloud, call: Mapping[str, Any]) -> None:
        for instance_id in call["effects"]:
            assert not self.automatic, f"{call['action']} of {instance_id} while HyperPod repairs automatically"
            if call["action"] == "BatchReplaceClusterNodes":
                cloud.power_off(instance_id)
                cloud.launched[instance_id] += 1
                self._takes_its_place(cloud, cloud.machines[instance_id].node)
            else:
                cloud.boot(instance_id)

    def _takes_its_place(self, cloud: Cloud, node: str) -> None:
        new = self.serving()[node]
        cloud.make(new, node, cloud.clock.elapsed_s + self.ready_s + cloud.chances.boots_in_s())
        cloud.hand_over(node, new)

    def serving(self) -> dict[str, str]:
        groups = self.pod.resource_config()["InstanceGroups"]
        instances = [i for group in groups for i in group["Instances"]]
        return {"ip-" + i["CustomerIpAddress"].replace(".", "-"): i["InstanceId"] for i in instances}

    def stir(self, cloud: Cloud, chance: random.Random) -> None:
        phases = {"shutting_down_s": chance.uniform(0, 20), "pending_s": chance.uniform(0, 60)}
        deep_s = chance.choice([0.0, 0.0, 120.0])
        self.ready_s = sum(phases.values()) + deep_s
        self.pod.phases(deep_check_s=deep_s, rebooting_s=chance.uniform(0, 30), **phases)
        node, instance_id = chance.choice(sorted(self.serving().items()))
        if chance.random() < 0.3:
            code = chance.choice(["InternalServerError", "InvalidInstanceStatus", "InstanceIdInUse"])
            self.pod.refuse(instance_id, code, chance.randint(1, 3))
        if chance.random() < 0.15 and cloud.machines[instance_id].powered:
            cloud.power_off(instance_id)  # AWS replaces it
            self.pod.repair(instance_id, "replace")
            self._takes_its_place(cloud, node)
        self.automatic = chance.random() < 0.1
        self.pod.settings(node_recovery="Automatic" if self.automatic else "None")

    def mend(self) -> None:
        self.automatic = False
        self.pod.settings(node_recovery="None")
        self.pod.phases(shutting_down_s=1, pending_s=1, deep_check_s=0, rebooting_s=1)

    def live(self) -> set[str]:
        return {i["instance_id"] for i in self.pod.machines() if i["status"] not in ("NotFound", "ShuttingDown")}
