"""Machine backends of a practice site's provider: emulated EC2 or HyperPod instances, or a rack with its own script."""

from __future__ import annotations

import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from holdfast.model.errors import ConfigError, Unavailable
from holdfast.practice import aws
from holdfast.practice.aws.cloud import CloudWatcher
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.practice.aws.hyperpod_cloud import PodWatcher, write_resource_config
from holdfast.practice.aws.seed import TEMPLATE, seed
from holdfast.practice.cluster import rack
from holdfast.practice.cluster.cluster import Practice
from holdfast.practice.cluster.hosting import Hosting

log = logging.getLogger("holdfast.practice.cluster.backing")
POD_GROUP = "gpu"
"""Instance group of the emulated HyperPod: Slurm's names are its InstanceNames, ``gpu-1`` …"""
POD_PHASES = {"shutting_down_s": 1.0, "pending_s": 2.0, "deep_check_s": 0.0, "rebooting_s": 1.0}
"""Seconds; AWS's documentation states 20 to 30 minutes for a replacement."""


class Follower(Protocol):
    """Watcher that makes the hosts follow the provider's machines."""

    def run(self, stop: threading.Event, interval_s: float) -> None: ...


class Backing(ABC):
    """One kind of backend. All of its state is in the site's folder."""

    kind = ""
    stands_behind = ""
    """What the machines are, in words."""
    needs_aws = True
    prefix = "n"
    """Prefix of node names."""

    def __init__(self, practice: Practice) -> None:
        self.practice = practice

    @property
    def endpoint(self) -> str:
        """Endpoint of the AWS emulator."""
        return f"http://127.0.0.1:{self.practice.spec.aws_port}"

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """``[provider]`` of controller.toml."""

    @abstractmethod
    def begin(self) -> Mapping[str, str]:
        """The first machine of every node: node → instance id. Once, with the emulator running."""

    @abstractmethod
    def watcher(self, hosts: Hosting) -> Follower: ...


class Ec2Backing(Backing):
    kind = "ec2"
    stands_behind = "the EC2 emulator"

    def settings(self) -> dict[str, Any]:
        return {"kind": "ec2", "region": aws.REGION, "launch_template": TEMPLATE, "endpoint_url": self.endpoint}

    def begin(self) -> Mapping[str, str]:
        return seed(self.endpoint, self.practice.spec.name, self.practice.nodes)

    def watcher(self, hosts: Hosting) -> Follower:
        return CloudWatcher(self.endpoint, self.practice.spec.name, hosts, self.practice.folder / "aws" / "cloud.json")


class HyperpodBacking(Backing):
    kind = "hyperpod"
    stands_behind = "the HyperPod emulator"
    prefix = f"{POD_GROUP}-"

    @property
    def control(self) -> HyperpodControl:
        return HyperpodControl(self.endpoint, self.practice.spec.name)

    @property
    def resource_config(self) -> Path:
        return self.practice.folder / "aws" / "resource_config.json"

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "hyperpod",
            "cluster": self.practice.spec.name,
            "region": aws.REGION,
            "mode": "lead",
            "endpoint_url": self.endpoint,
            "node_names": "instance",
            "resource_config": str(self.resource_config),
        }

    def begin(self) -> Mapping[str, str]:
        self.control.phases(**POD_PHASES)
        self.control.make([{"name": POD_GROUP, "count": len(self.practice.nodes)}])
        write_resource_config(self.control, self.resource_config)
        return {str(m["node"]): str(m["instance_id"]) for m in self.control.machines()}

    def watcher(self, hosts: Hosting) -> Follower:
        return PodWatcher(self.control, hosts, self.practice.folder / "aws" / "cloud.json", self.resource_config)


class RackBacking(Backing):
    kind = "command"
    stands_behind = "a rack of machines with its own script"
    needs_aws = False

    @property
    def rack(self) -> rack.Rack:
        return rack.Rack(self.practice.folder)

    def settings(self) -> dict[str, Any]:
        script = [sys.executable, "-I", "-S", str(rack.__file__), str(self.practice.folder)]
        return {"kind": "command", "command": script}

    def begin(self) -> Mapping[str, str]:
        return self.rack.fill(self.practice.nodes)

    def watcher(self, hosts: Hosting) -> Follower:
        return RackWatcher(self.rack, hosts)


class RackWatcher:
    """Carry out the orders that the site's script accepted, one after the other."""

    def __init__(self, watched: rack.Rack, hosts: Hosting) -> None:
        self._rack = watched
        self._hosts = hosts

    def run(self, stop: threading.Event, interval_s: float) -> None:
        """Until ``stop`` is set."""
        while not stop.wait(interval_s):
            for number, order in enumerate(self._rack.orders()):
                if "done_at" not in order:
                    self._carry_out(number, order)

    def _carry_out(self, number: int, order: Mapping[str, str]) -> None:
        log.info("event=order verb=%s instance=%s token=%s", order["verb"], order["instance_id"], order["token"])
        do = self._hosts.exchange if order["verb"] == "replace" else self._hosts.reboot
        try:
            do(order["instance_id"], order["node"])
            self._rack.done(number)
        except Unavailable as error:
            log.warning("event=host_not_ready instance=%s error=%s", order["instance_id"], error)


_BACKINGS: Mapping[str, type[Backing]] = {one.kind: one for one in (Ec2Backing, HyperpodBacking, RackBacking)}
KINDS = tuple(_BACKINGS)


def backing_class(kind: str) -> type[Backing]:
    """Raises ConfigError for a kind that the practice does not have."""
    if kind not in _BACKINGS:
        raise ConfigError(f"the practice has no provider {kind!r}, only {', '.join(KINDS)}")
    return _BACKINGS[kind]


def open_backing(practice: Practice) -> Backing:
    """The backend of the site in this folder."""
    return backing_class((practice.folder / "etc" / "provider").read_text().strip())(practice)
