"""Create the practice cluster's machines in the emulator: a launch template, and one instance per node."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from holdfast.model.errors import Unavailable
from holdfast.practice.aws import REGION

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

_SESSION_LOCK = threading.Lock()
TEMPLATE = "holdfast-practice"
IMAGE = "ami-0practice000000001"
INSTANCE_TYPE: Final = "p5.48xlarge"
CLUSTER_TAG, NODE_TAG, INCIDENT_TAG = "holdfast:cluster", "holdfast:node", "holdfast:incident"
"""The default keys of ``holdfast.providers.aws.tags.TagKeys``, the only ones that the practice uses."""


def open_ec2(endpoint: str) -> EC2Client:
    """A client of the emulator, whatever credentials and proxies the environment has."""
    config = Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 2}, proxies={})
    with _SESSION_LOCK:
        return _session().client("ec2", endpoint_url=endpoint, config=config)


def show_off(endpoint: str, instance_id: str) -> None:
    """Make EC2 show the machine as stopped, as it does for some that have lost power. Raises ClientError, BotoCoreError."""
    open_ec2(endpoint).stop_instances(InstanceIds=[instance_id], Force=True)


@functools.cache
def _session() -> boto3.session.Session:
    """Shared session: loading EC2's model takes 0.1 s, a further client of the same session 6 ms."""
    return boto3.session.Session("practice", "practice", region_name=REGION)


def seed(endpoint: str, cluster: str, nodes: Sequence[str], *, wait_s: float = 10.0) -> dict[str, str]:
    """Node → id of its running instance. Repeating the call returns the same instances.

    Raises Unavailable when they do not run within ``wait_s``."""
    ec2 = open_ec2(endpoint)
    _make_template(ec2)
    ids = {node: _launch(ec2, cluster, node) for node in nodes}
    _await_running(ec2, list(ids.values()), wait_s)
    return ids


def open_groups(endpoint: str) -> AutoScalingClient:
    """The same for Auto Scaling."""
    config = Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 2}, proxies={})
    with _SESSION_LOCK:
        return _session().client("autoscaling", endpoint_url=endpoint, config=config)


def seed_group(
    endpoint: str, cluster: str, group: str, nodes: Sequence[str], *, wait_s: float = 10.0
) -> dict[str, str]:
    """An Auto Scaling group with one named instance per node: node → id of its running instance.

    Once per group name. Raises Unavailable when they do not run within ``wait_s``."""
    ec2, groups = open_ec2(endpoint), open_groups(endpoint)
    _make_template(ec2)
    groups.create_auto_scaling_group(
        AutoScalingGroupName=group,
        LaunchTemplate={"LaunchTemplateName": TEMPLATE, "Version": "$Default"},
        MinSize=0,
        MaxSize=len(nodes) + 10,
        DesiredCapacity=len(nodes),
        AvailabilityZones=[f"{REGION}a"],
    )
    [made] = groups.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    ids = dict(zip(nodes, sorted(member["InstanceId"] for member in made.get("Instances", [])), strict=True))
    for node, instance_id in ids.items():
        tags = {"Name": node, CLUSTER_TAG: cluster, NODE_TAG: node}
        ec2.create_tags(Resources=[instance_id], Tags=[{"Key": k, "Value": v} for k, v in tags.items()])
    _await_running(ec2, list(ids.values()), wait_s)
    return ids


def _make_template(ec2: EC2Client) -> None:
    try:
        ec2.create_launch_template(
            LaunchTemplateName=TEMPLATE, LaunchTemplateData={"ImageId": IMAGE, "InstanceType": INSTANCE_TYPE}
        )
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "InvalidLaunchTemplateName.AlreadyExistsException":
            raise


def _launch(ec2: EC2Client, cluster: str, node: str) -> str:
    tags = {"Name": node, CLUSTER_TAG: cluster, NODE_TAG: node}
    answer = ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        LaunchTemplate={"LaunchTemplateName": TEMPLATE},
        ClientToken=f"seed-{cluster}-{node}"[:64],
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}],
    )
    return answer["Instances"][0].get("InstanceId", "")


def _await_running(ec2: EC2Client, ids: list[str], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while ids:
        answer = ec2.describe_instances(InstanceIds=ids)
        states = [i.get("State", {}).get("Name") for r in answer["Reservations"] for i in r.get("Instances", [])]
        if states == ["running"] * len(ids):
            return
        if time.monotonic() >= deadline:
            raise Unavailable(f"the seeded instances do not run after {wait_s:.0f} s: {states}")
        time.sleep(0.1)
