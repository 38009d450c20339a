"""How HyperPod's answers and ``resource_config.json`` read. No network."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import ConfigError, Rejected, Unavailable
from holdfast.providers.hyperpod.answers import (
    BatchResult,
    BatchVerdict,
    PodCluster,
    PodNode,
    check_ready,
    named,
    read_batch,
    read_cluster,
    read_summary,
    serving,
)
from holdfast.providers.hyperpod.names import ResourceConfig, address_of_host, node_name, read_resource_config
from holdfast.providers.hyperpod.settings import HyperpodSettings

OLD, NEW = "i-00000000000000001", "i-00000000000000002"


def node(instance_id: str = OLD, status: str = "Running", name: str = "ip-10-0-0-4") -> PodNode:
    return PodNode(instance_id, "gpu", status, node=name)


@pytest.mark.parametrize(
    ("status", "state", "healthy"),
    [
        ("Running", "running", None),
        ("Failure", "running", False),
        ("Pending", "pending", None),
        ("SystemUpdating", "pending", None),
        ("DeepHealthCheckInProgress", "pending", None),
        ("ShuttingDown", "shutting-down", None),
        ("NotFound", "terminated", None),
        ("SomethingNew", "pending", None),
        ("", "pending", None),
    ],
)
def test_status_in_the_words_of_the_port(status: str, state: str, healthy: bool | None) -> None:
    seen = node(status=status).as_instance()
    assert (seen.state, seen.healthy) == (state, healthy)


def test_summary_reads_address_from_the_host_name_and_time_as_utc() -> None:
    raw = {
        "InstanceId": OLD,
        "InstanceGroupName": "gpu",
        "InstanceStatus": {"Status": "Running", "Message": "of an earlier attempt"},
        "LaunchTime": datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        "PrivateDnsHostname": "ip-10-1-2-3.us-west-2.compute.internal",
    }
    read = read_summary(raw)
    assert (read.address, read.launched_at) == ("10.1.2.3", datetime(2026, 1, 1, tzinfo=UTC))
    assert read.as_instance().healthy is None  # the message alone says nothing
    assert read_summary({}) == PodNode("", "", "")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("ip-10-1-2-3.ec2.internal", "10.1.2.3"),
        ("ip-10-1-2-3", "10.1.2.3"),
        ("ip-10-1-2-300.x", ""),
        ("ip-10-1-2.x", ""),
        ("gpu-1.x", ""),
        ("", ""),
    ],
)
def test_address_in_a_host_name(host: str, address: str) -> None:
    assert address_of_host(host) == address


@given(st.ip_addresses(v=4).map(str))
def test_node_name_and_address_are_each_others_inverse(address: str) -> None:
    assert address_of_host(node_name(address)) == address


CONFIG = {
    "ClusterType": "Slurm",
    "ClusterConfig": {"ClusterName": "c", "ClusterArn": "arn:c"},
    "SlurmConfig": {"PrimaryControllerIp": "10.0.0.9", "SecondaryControllerIps": ["10.0.0.10"]},
    "InstanceGroups": [
        {"Name": "gpu", "Instances": [{"InstanceName": "gpu-1", "InstanceId": OLD, "CustomerIpAddress": "10.0.0.4"}]},
        {"Name": "odd", "Instances": [{"InstanceId": 7}, "x", {"InstanceId": NEW}]},
        {"Name": "none", "Instances": None},
    ],
}


def test_resource_config_passes_strange_instances_over() -> None:
    config = read_resource_config(json.dumps(CONFIG))
    assert (config.addresses, config.names) == ({OLD: "10.0.0.4"}, {OLD: "gpu-1"})
    assert config.controllers == {"10.0.0.9", "10.0.0.10"}
    assert config.is_of("c")
    assert config.is_of("arn:c")
    assert not config.is_of("other")
    assert read_resource_config("{}") == ResourceConfig()


@pytest.mark.parametrize("text", ["", "[]", '{"InstanceGroups": [', "7"])
def test_torn_resource_config_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_resource_config(text)


def test_name_comes_from_the_api_first() -> None:
    config = read_resource_config(json.dumps(CONFIG))
    bare = PodNode(OLD, "gpu", "Running")
    assert named(bare, config, {}, "address").node == "ip-10-0-0-4"
    assert named(bare, config, {OLD: "10.0.0.5"}, "address").node == "ip-10-0-0-5"
    listed = PodNode(OLD, "gpu", "Running", address="10.0.0.6")
    assert named(listed, config, {OLD: "10.0.0.5"}, "address").node == "ip-10-0-0-6"
    assert named(listed, config, {}, "instance").node == "gpu-1"
    assert named(PodNode(NEW, "gpu", "Running"), config, {}, "address").node == ""


def test_who_serves_a_name() -> None:
    assert serving([node(OLD, "ShuttingDown"), node(NEW, "Pending")], "ip-10-0-0-4") == node(NEW, "Pending")
    assert serving([node(OLD, "ShuttingDown")], "ip-10-0-0-4") is None
    assert serving([node(name="")], "ip-10-0-0-4") is None
    with pytest.raises(Unavailable, match=f"{OLD}, {NEW}"):
        serving([node(NEW), node(OLD)], "ip-10-0-0-4")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"Successful": [OLD], "Failed": []}, BatchVerdict.ACCEPTED),
        ({"Failed": [{"NodeId": OLD, "ErrorCode": "InstanceIdInUse", "Message": "m"}]}, BatchVerdict.IN_USE),
        ({"Failed": [{"NodeId": OLD, "ErrorCode": "InvalidInstanceStatus", "Message": "m"}]}, BatchVerdict.BUSY),
        ({"Failed": [{"NodeId": OLD, "ErrorCode": "InstanceIdNotFound", "Message": "m"}]}, BatchVerdict.GONE),
        ({"Failed": [{"NodeId": OLD, "ErrorCode": "InternalServerError", "Message": "m"}]}, BatchVerdict.FAILED),
        ({"Failed": [{"NodeId": OLD, "ErrorCode": "SomethingNew", "Message": "m"}]}, BatchVerdict.UNKNOWN),
        ({"Successful": [OLD], "Failed": [{"NodeId": OLD, "ErrorCode": "InstanceIdInUse"}]}, BatchVerdict.IN_USE),
        ({"Successful": [NEW]}, BatchVerdict.UNKNOWN),
        ({}, BatchVerdict.UNKNOWN),
    ],
)
def test_every_asked_id_has_a_verdict(answer: Any, verdict: BatchVerdict) -> None:
    assert {i: r.verdict for i, r in read_batch([OLD], answer).items()} == {OLD: verdict}


def test_refusal_keeps_hyperpods_words() -> None:
    answer = {"Failed": [{"NodeId": OLD, "ErrorCode": "InstanceIdInUse", "Message": "wait"}]}
    assert read_batch([OLD], answer)[OLD] == BatchResult(BatchVerdict.IN_USE, "InstanceIdInUse: wait")


@pytest.mark.parametrize(
    ("said", "itself"),
    [({"NodeRecovery": "None"}, False), ({"NodeRecovery": "Automatic"}, True), ({}, True), ({"NodeRecovery": "none"}, True),
     ({"NodeRecovery": "Later"}, True)],
)  # fmt: skip
def test_only_the_exact_word_hands_repairs_over(said: dict[str, str], itself: bool) -> None:
    assert read_cluster(said).repairs_itself is itself


def test_cluster_names_its_head_groups() -> None:
    groups = [
        {"InstanceGroupName": "head", "SlurmConfig": {"NodeType": "Controller"}},
        {"InstanceGroupName": "gpu", "SlurmConfig": {"NodeType": "Compute"}},
        {"InstanceGroupName": "old"},
    ]
    read = read_cluster({"InstanceGroups": groups, "NodeProvisioningMode": "Continuous", "ClusterStatus": "InService"})
    assert (read.head_groups, read.continuous) == (frozenset({"head"}), True)


@pytest.mark.parametrize(
    ("status", "error"),
    [("Updating", Unavailable), ("SystemUpdating", Unavailable), ("RollingBack", Unavailable), ("", Unavailable),
     ("SomethingNew", Unavailable), ("Failed", Rejected), ("Deleting", Rejected)],
)  # fmt: skip
def test_cluster_that_takes_no_action(status: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_ready(PodCluster(status, "None", False, frozenset()))
    check_ready(PodCluster("InService", "None", False, frozenset()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster": ""}, "cluster is empty"),
        ({"region": ""}, "region is empty"),
        ({"mode": "led"}, "mode 'led' is none of: observe, lead"),
        ({"node_names": "ip"}, "node_names"),
        ({"attempts": 0}, "attempts is 0"),
        ({"page_size": 101}, "page_size is 101"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        HyperpodSettings(**{"cluster": "c", "region": "us-east-1", **changes})
