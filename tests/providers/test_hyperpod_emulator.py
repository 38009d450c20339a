"""The emulator's HyperPod itself: what it accepts, refuses, remembers. Raw botocore, no provider."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from holdfast.model.errors import Rejected
from holdfast.practice.aws import REGION
from holdfast.practice.aws.client import EmulatorControl, running_emulator
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.practice.aws.hyperpod_model import answer_errors, request_errors

SESSION = boto3.session.Session("practice", "practice", region_name=REGION)
FAST = {"shutting_down_s": 0.0, "pending_s": 0.0, "deep_check_s": 0.0, "rebooting_s": 0.0, "list_lag_s": 0.0}
GROUPS = [{"name": "head", "count": 1, "node_type": "Controller"}, {"name": "gpu", "count": 3}]
NODE_ID = "i-0123456789abcdef0"


def sagemaker(endpoint: str) -> Any:
    config = Config(retries={"total_max_attempts": 1}, read_timeout=5)
    return SESSION.client("sagemaker", endpoint_url=endpoint, config=config)


@pytest.fixture
def pod(aws: EmulatorControl, cluster: str) -> HyperpodControl:
    control = HyperpodControl(aws.endpoint, cluster)
    control.phases(**FAST)
    return control


def states(client: Any, cluster: str) -> list[tuple[str, str]]:
    page = client.list_cluster_nodes(ClusterName=cluster)["ClusterNodeSummaries"]
    return [(node["InstanceId"], node["InstanceStatus"]["Status"]) for node in page]


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ClusterName": "c", "NodeIds": [NODE_ID] * 25}, ""),
        ({"ClusterName": "c", "NodeIds": [NODE_ID] * 26}, "26 is not within 1 to 25"),
        ({"ClusterName": "c", "NodeIds": []}, "0 is not within 1 to 25"),
        ({"ClusterName": "c", "NodeIds": ["gpu-1"]}, "'gpu-1' does not match"),
        ({"ClusterName": "c", "NodeIds": NODE_ID}, "str is no list"),
        ({"NodeIds": [NODE_ID]}, "ClusterName is missing"),
        ({"ClusterName": "c_1"}, "does not match"),
        ({"ClusterName": "c", "ClientToken": "t"}, "ClientToken is unknown"),
        ([], "list is no structure"),
    ],
)
def test_request_is_held_against_botocores_model(given: Any, words: str) -> None:
    errors = request_errors("BatchReplaceClusterNodes", given)
    assert words in "; ".join(errors)
    assert bool(errors) is bool(words)


def test_answer_is_held_against_botocores_model() -> None:
    entry = {"NodeId": NODE_ID, "ErrorCode": "InstanceIdInUse", "Message": "m"}
    assert answer_errors("BatchReplaceClusterNodes", {"Failed": [entry]}) == []
    assert answer_errors("BatchReplaceClusterNodes", {"Failed": [entry | {"ErrorCode": "Busy"}]})
    assert answer_errors("ListClusterNodes", {})


def test_service_refuses_what_botocore_lets_pass(pod: HyperpodControl) -> None:
    ids = list(pod.make(GROUPS).values())
    client, name = sagemaker(pod.endpoint), pod.cluster
    assert (
        code_of(lambda: client.batch_replace_cluster_nodes(ClusterName=name, NodeIds=ids * 7)) == "ValidationException"
    )
    assert code_of(lambda: client.batch_replace_cluster_nodes(ClusterName=name)) == "ValidationException"
    assert code_of(lambda: client.list_cluster_nodes(ClusterName="nowhere")) == "ResourceNotFound"
    unknown = {"ClusterName": name, "NodeId": NODE_ID}
    assert code_of(lambda: client.describe_cluster_node(**unknown)) == "ResourceNotFound"


def test_pages_and_arn(pod: HyperpodControl) -> None:
    ids = pod.make([{"name": "gpu", "count": 23}])
    client = sagemaker(pod.endpoint)
    arn = client.describe_cluster(ClusterName=pod.cluster)["ClusterArn"]
    pages = list(client.get_paginator("list_cluster_nodes").paginate(ClusterName=arn))
    assert [len(page["ClusterNodeSummaries"]) for page in pages] == [10, 10, 3]
    assert [n["InstanceId"] for page in pages for n in page["ClusterNodeSummaries"]] == list(ids.values())


def test_each_id_of_a_batch_is_judged_by_itself(pod: HyperpodControl) -> None:
    head, first, second, third = pod.make(GROUPS).values()
    pod.phases(shutting_down_s=30.0)
    pod.set_status(first, "SystemUpdating", for_s=30.0)
    pod.refuse(second, "InternalServerError")
    client = sagemaker(pod.endpoint)
    request = {"ClusterName": pod.cluster, "NodeIds": [head, first, second, third, NODE_ID]}
    answer = client.batch_replace_cluster_nodes(**request)
    assert answer["Successful"] == [third]
    assert {entry["NodeId"]: entry["ErrorCode"] for entry in answer["Failed"]} == {
        head: "InvalidInstanceStatus",
        first: "InvalidInstanceStatus",
        second: "InternalServerError",
        NODE_ID: "InstanceIdNotFound",
    }
    again = client.batch_replace_cluster_nodes(**request | {"NodeIds": [second, third]})
    assert (again["Successful"], again["Failed"][0]["ErrorCode"]) == ([second], "InstanceIdInUse")


def test_replacement_takes_its_time_through_the_states(pod: HyperpodControl) -> None:
    pod.phases(shutting_down_s=0.6, pending_s=0.6, deep_check_s=0.6)
    [old] = pod.make([{"name": "gpu", "count": 1}]).values()
    client = sagemaker(pod.endpoint)
    client.batch_replace_cluster_nodes(ClusterName=pod.cluster, NodeIds=[old])
    seen: list[tuple[bool, str]] = []
    deadline = time.monotonic() + 10
    while not seen or seen[-1][1] != "Running":
        assert time.monotonic() < deadline, seen
        [(instance_id, status)] = states(client, pod.cluster)
        if not seen or seen[-1] != (instance_id == old, status):
            seen.append((instance_id == old, status))
        time.sleep(0.02)
    assert seen == [
        (True, "ShuttingDown"),
        (False, "Pending"),
        (False, "DeepHealthCheckInProgress"),
        (False, "Running"),
    ]


def test_control_verbs_refuse_nonsense(pod: HyperpodControl) -> None:
    [old] = pod.make([{"name": "gpu", "count": 1}]).values()
    with pytest.raises(Rejected, match="Broken"):
        pod.set_status(old, "Broken")
    with pytest.raises(Rejected, match=f"has no {NODE_ID}"):
        pod.set_status(NODE_ID, "Failure")
    with pytest.raises(Rejected, match="neither reboot nor replace"):
        pod.repair(old, "shake")
    with pytest.raises(Rejected, match="does not exist"):
        HyperpodControl(pod.endpoint, "nowhere").refuse(old, "InstanceIdInUse")


@pytest.mark.aws
def test_stop_and_start_keeps_the_clusters(tmp_path: Path) -> None:
    with running_emulator(tmp_path) as first:
        pod = HyperpodControl(first.endpoint, "c")
        pod.phases(**FAST)
        ids = list(pod.make(GROUPS).values())
        sagemaker(first.endpoint).batch_replace_cluster_nodes(ClusterName="c", NodeIds=ids[1:2])
        pod.settings(node_recovery="Automatic")
        before = states(sagemaker(first.endpoint), "c")
    with running_emulator(tmp_path) as second:
        client = sagemaker(second.endpoint)
        assert states(client, "c") == before
        assert ids[1] not in dict(before)
        assert client.describe_cluster(ClusterName="c")["NodeRecovery"] == "Automatic"
