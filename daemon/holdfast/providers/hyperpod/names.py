"""Mapping of Slurm's node names to HyperPod's instance ids, from ``resource_config.json`` and the API. Pure.

The API's list decides which machines exist. The file only adds names for ids in the list: the copy on a node may be older
than the last replacement. An id never changes its address, so an old file lacks names but has no wrong ones."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_HOST = re.compile(r"ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}")


@dataclass(frozen=True, slots=True)
class ResourceConfig:
    """Fields that Holdfast reads from ``resource_config.json``."""

    cluster: str = ""
    arn: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Instance id → address in the customer's network."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Instance id → InstanceName, ``<group>-<index>``."""
    controllers: frozenset[str] = frozenset()
    """Addresses of the head nodes."""

    def is_of(self, cluster: str) -> bool:
        """Whether it belongs to the cluster of this name or ARN."""
        return cluster in (self.cluster, self.arn)


def read_resource_config(text: str) -> ResourceConfig:
    """Parse the file. Raises ValueError when it is not JSON of that shape; a single malformed instance is skipped."""
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("resource_config.json holds no object")
    about, slurm = _object(data.get("ClusterConfig")), _object(data.get("SlurmConfig"))
    instances = [
        _object(i) for group in _list(data.get("InstanceGroups")) for i in _list(_object(group).get("Instances"))
    ]
    heads = [slurm.get("PrimaryControllerIp"), *_list(slurm.get("SecondaryControllerIps"))]
    return ResourceConfig(
        cluster=_text(about.get("ClusterName")),
        arn=_text(about.get("ClusterArn")),
        addresses=_by_id(instances, "CustomerIpAddress"),
        names=_by_id(instances, "InstanceName"),
        controllers=frozenset(_text(head) for head in heads if _text(head)),
    )


def node_name(address: str) -> str:
    """HyperPod's Slurm NodeName of an IPv4 address; empty for anything else."""
    try:
        return "ip-" + str(ipaddress.IPv4Address(address)).replace(".", "-")
    except ValueError:
        return ""


def address_of_host(hostname: str) -> str:
    """The IPv4 address in PrivateDnsHostname (``ip-10-1-2-3.ec2.internal``); empty when it has none."""
    host = hostname.partition(".")[0]
    address = host.removeprefix("ip-").replace("-", ".") if _HOST.fullmatch(host) else ""
    return address if address and node_name(address) else ""


def _by_id(instances: list[Mapping[str, Any]], key: str) -> dict[str, str]:
    pairs = ((_text(i.get("InstanceId")), _text(i.get(key))) for i in instances)
    return {instance_id: value for instance_id, value in pairs if instance_id and value}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
