"""Machines of a ParallelCluster, found by ParallelCluster's own tags in EC2. They are only read, or rebooted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING

import boto3

from holdfast.model.errors import NotFound, Rejected
from holdfast.model.machine import Instance
from holdfast.providers.aws.client import bounds
from holdfast.providers.aws.errors import translated
from holdfast.providers.aws.instances import LIVE_STATES, judge_status, state_of, tags_of
from holdfast.providers.parallelcluster.settings import ParallelClusterSettings

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

CLUSTER_TAG, TYPE_TAG = "parallelcluster:cluster-name", "parallelcluster:node-type"
COMPUTE = "Compute"
"""Value of ``TYPE_TAG``; the head node has HeadNode, a login node LoginNode."""


class ClusterMachines:
    """Machines in EC2. Thread-safe; every call is bounded by attempts × timeouts of the settings."""

    def __init__(self, settings: ParallelClusterSettings, *, session: boto3.session.Session | None = None) -> None:
        self._cluster = settings.cluster
        self._client: EC2Client = (session or boto3.session.Session()).client(
            "ec2",
            region_name=settings.region,
            endpoint_url=settings.endpoint_url,
            config=bounds(settings.connect_timeout_s, settings.read_timeout_s, settings.attempts),
        )

    def at(self, address: str) -> Instance | None:
        """The live compute machine of this cluster with this private address; None: there is none (yet). ``healthy`` is None.

        Raises Rejected when several claim the address, Unavailable, Throttled, NotPermitted."""
        filters: list[FilterTypeDef] = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]},
            {"Name": f"tag:{TYPE_TAG}", "Values": [COMPUTE]},
            {"Name": "private-ip-address", "Values": [address]},
            {"Name": "instance-state-name", "Values": list(LIVE_STATES)},
        ]
        with translated("DescribeInstances"):
            pages = self._client.get_paginator("describe_instances").paginate(Filters=filters)
            found = [raw for page in pages for r in page["Reservations"] for raw in r.get("Instances", [])]
        ours = [raw for raw in found if self._ours(raw) and address in addresses(raw)]
        if len(ours) > 1:
            ids = ", ".join(sorted(raw.get("InstanceId", "") for raw in ours))
            raise Rejected(f"EC2 shows several live machines at {address}: {ids}")
        return _read(ours[0]) if ours else None

    def one(self, instance_id: str) -> Instance:
        """One compute machine of this cluster with EC2's status checks. Raises NotFound; Rejected for any other machine."""
        with translated("DescribeInstances"):
            answer = self._client.describe_instances(InstanceIds=[instance_id])
        raw = next((raw for r in answer["Reservations"] for raw in r.get("Instances", [])), None)
        if raw is None:
            raise NotFound(f"DescribeInstances: EC2 shows no {instance_id}")
        if not self._ours(raw):
            raise Rejected(f"{instance_id} is not a compute machine of {self._cluster}: left alone")
        return _read(raw, self._healthy(instance_id) if state_of(raw) == "running" else None)

    def reboot(self, instance_id: str) -> None:
        """Ask for a reboot of a machine that :meth:`one` shows. EC2 forces it after some minutes."""
        with translated("RebootInstances"):
            self._client.reboot_instances(InstanceIds=[instance_id])

    def _ours(self, raw: InstanceTypeDef) -> bool:
        tags = tags_of(raw)
        return tags.get(CLUSTER_TAG) == self._cluster and tags.get(TYPE_TAG) == COMPUTE

    def _healthy(self, instance_id: str) -> bool | None:
        try:
            with translated("DescribeInstanceStatus"):
                answer = self._client.describe_instance_status(InstanceIds=[instance_id], IncludeAllInstances=True)
        except NotFound:
            return None
        statuses = answer["InstanceStatuses"]
        return judge_status(statuses[0]) if statuses else None


def addresses(raw: InstanceTypeDef) -> Sequence[str]:
    """All private addresses: a machine for EFA has one on each network card, and NodeAddr may be any of them."""
    others = (card.get("PrivateIpAddress", "") for card in raw.get("NetworkInterfaces", []))
    return [a for a in (raw.get("PrivateIpAddress", ""), *others) if a]


def _read(raw: InstanceTypeDef, healthy: bool | None = None) -> Instance:
    launched_at = raw.get("LaunchTime")
    return Instance(
        instance_id=raw.get("InstanceId", ""),
        node="",
        state=state_of(raw),
        healthy=healthy,
        launched_at=launched_at.astimezone(UTC) if launched_at else None,
        address=raw.get("PrivateIpAddress", ""),
    )
