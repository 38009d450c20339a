"""Auto Scaling groups: a node's machine goes through its group, and the group's new one gets the name, once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.errors import ConfigError, InsufficientCapacity, NotFound, Rejected, Unavailable
from holdfast.model.machine import Instance
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.faults import ApiFault
from holdfast.practice.aws.seed import open_groups, seed, seed_group
from holdfast.providers import KINDS
from holdfast.providers.asg.adapter import AsgProvider
from holdfast.providers.asg.groups import AutoScalingGroup, AutoScalingMember, read_group
from holdfast.providers.asg.settings import AsgSettings
from holdfast.providers.aws.instances import ASG_TAG
from support.cut import CutError, cut_at
from support.ec2_shown import machines, state_of, tags_of

Make = Callable[..., AsgProvider]
ENDS = ("TerminateInstanceInAutoScalingGroup", "SetInstanceHealth")
IN_SERVICE = AutoScalingMember("InService", healthy=True)


def replace(provider: AsgProvider, old: str, token: str = "inc-1", node: str = "n1") -> Instance:  # noqa: S107 - a name
    return provider.replace(node, old, incident="inc", token=token)


def until_done(provider: AsgProvider, old: str, token: str = "inc-1", node: str = "n1") -> Instance:  # noqa: S107
    deadline = time.monotonic() + 20
    while True:
        try:
            return replace(provider, old, token, node)
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def serving(provider: AsgProvider, *nodes: str) -> dict[str, str | None]:
    found = {node: provider.instance_of(node) for node in nodes}
    return {node: one.instance_id if one else None for node, one in found.items()}


def group(desired: int, *suspended: str, **members: AutoScalingMember) -> AutoScalingGroup:
    return AutoScalingGroup(
        "g", desired, {name.replace("_", "-"): one for name, one in members.items()}, frozenset(suspended)
    )


@pytest.mark.parametrize(
    ("one", "way", "words"),
    [
        (group(2, i_1=IN_SERVICE, i_2=IN_SERVICE), "terminate", ""),
        (group(2, i_1=IN_SERVICE), "terminate", ""),
        (group(1, i_1=IN_SERVICE, i_2=IN_SERVICE), "terminate", "wants 1 machines and has 2"),
        (group(2, "Launch", i_1=IN_SERVICE), "terminate", "has Launch suspended"),
        (group(2, "ReplaceUnhealthy", i_1=IN_SERVICE), "terminate", ""),
        (group(2, "ReplaceUnhealthy", i_1=IN_SERVICE), "unhealthy", "has ReplaceUnhealthy suspended"),
        (group(2, "Terminate", "Launch", i_1=IN_SERVICE), "unhealthy", "has Launch, Terminate suspended"),
        (group(2, i_2=IN_SERVICE), "terminate", "is no member of Auto Scaling group g"),
        (group(1, i_1=AutoScalingMember("Standby", healthy=True)), "terminate", "is Standby in Auto Scaling group g"),
        (group(1, "Launch", i_1=AutoScalingMember("Terminating:Wait", healthy=True)), "terminate", ""),
        (group(1, "Launch", i_1=AutoScalingMember("InService", healthy=False)), "unhealthy", ""),
        (
            group(2, i_1=IN_SERVICE, i_2=AutoScalingMember("Terminating", healthy=False), i_3=IN_SERVICE),
            "terminate",
            "",
        ),
        (group(1, i_1=IN_SERVICE, i_2=AutoScalingMember("Warmed:Stopped", healthy=True)), "terminate", ""),
        (
            group(1, i_1=IN_SERVICE, i_2=AutoScalingMember("Pending:Wait", healthy=True)),
            "terminate",
            "wants 1 machines and has 2",
        ),
    ],
)
def test_whether_a_group_would_replace_a_machine(one: AutoScalingGroup, way: str, words: str) -> None:
    said = one.cannot_replace("i-1", way)
    assert (words in said) if words else (said == "")


def test_group_is_read_from_the_answer() -> None:
    raw: Any = {
        "AutoScalingGroupName": "g",
        "DesiredCapacity": 3,
        "Instances": [{"InstanceId": "i-1", "LifecycleState": "InService", "HealthStatus": "Unhealthy"}],
        "SuspendedProcesses": [{"ProcessName": "Launch", "SuspensionReason": "x"}],
    }
    assert read_group(raw) == AutoScalingGroup(
        "g", 3, {"i-1": AutoScalingMember("InService", healthy=False)}, frozenset({"Launch"})
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"groups": ()}, "groups is empty"),
        ({"groups": "g"}, "groups is a list"),
        ({"replace_by": "magic"}, "replace_by is 'magic'"),
        ({"cluster": ""}, "cluster is empty"),
        ({"attempts": 0}, "attempts is 0"),
        ({"patience_s": 9999.0}, "patience_s is 9999"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AsgSettings(**{"cluster": "c", "region": "us-east-1", "groups": ("g",)} | changes)


@pytest.mark.parametrize("way", ["terminate", "unhealthy"])
def test_groups_new_machine_gets_the_name(
    aws: EmulatorControl, open_asg_provider: Make, cluster: str, way: str
) -> None:
    aws.delays(shutting_down_s=0.3)
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1", "n2"])
    provider = open_asg_provider(replace_by=way)
    made = replace(provider, ids["n1"])
    assert (made.node, made.incident) == ("n1", "inc")
    assert serving(provider, "n1", "n2") == {"n1": made.instance_id, "n2": ids["n2"]}
    assert provider.instance(ids["n1"]).state == "terminated"
    assert made.instance_id not in ids.values()
    found = open_asg_provider().find_launched("inc-1")
    assert found is not None
    assert found.instance_id == made.instance_id
    [spoken] = open_groups(aws.endpoint).describe_auto_scaling_groups(AutoScalingGroupNames=[cluster])[
        "AutoScalingGroups"
    ]
    assert (spoken["DesiredCapacity"], len(spoken["Instances"])) == (2, 2)


def test_group_that_takes_its_time_is_asked_again(aws: EmulatorControl, open_asg_provider: Make, cluster: str) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1"])
    provider = open_asg_provider(patience_s=0.2)
    aws.delays(relaunch_s=1.0)
    since = aws.last_call()
    with pytest.raises(Unavailable, match="has launched no machine for n1 yet"):
        replace(provider, ids["n1"])
    until_done(provider, ids["n1"])
    assert aws.effects(ENDS[0], since) == [ids["n1"]]


def test_two_nodes_at_once_get_a_machine_each(aws: EmulatorControl, open_asg_provider: Make, cluster: str) -> None:
    nodes = ["n1", "n2", "n3", "n4"]
    ids = seed_group(aws.endpoint, cluster, cluster, nodes)
    provider = open_asg_provider()
    aws.weather(11, stale_s=0.2)
    failed: list[str] = []

    def work(node: str) -> None:
        try:
            until_done(provider, ids[node], f"{node}-1", node)
        except Exception as error:  # noqa: BLE001 - told by the test
            failed.append(f"{node}: {error!r}")

    threads = [threading.Thread(target=work, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    aws.clear()
    assert failed == []
    now = serving(provider, *nodes)
    assert len(set(now.values())) == 4
    assert not set(now.values()) & {*ids.values(), None}


@pytest.mark.slow
def test_cut_at_any_call_it_is_finished_by_the_next_process(
    aws: EmulatorControl, open_asg_provider: Make, cluster: str
) -> None:
    aws.delays(relaunch_s=0.0)
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1", "n2"])
    old, number, finished = ids["n1"], 0, False
    while not finished:
        number += 1
        token, since = f"inc-{number}", aws.last_call()
        first = open_asg_provider(consistency_wait_s=0.0)
        cut_at(number, [first._calls.client, first._groups._client])
        try:
            until_done(first, old, token)
            finished = True
        except CutError:
            pass
        made = until_done(open_asg_provider(consistency_wait_s=0.0), old, token)
        assert aws.effects(ENDS[0], since) == [old]
        assert serving(open_asg_provider(), "n1", "n2") == {"n1": made.instance_id, "n2": ids["n2"]}
        old = made.instance_id
    assert number > 8
    names = [
        tags_of(raw).get("holdfast:node", "")
        for raw in machines(aws.endpoint).values()
        if tags_of(raw).get(ASG_TAG) == cluster and state_of(raw) in ("pending", "running")
    ]
    assert sorted(names) == ["n1", "n2"]


def test_lost_answer_to_the_naming_names_no_second_machine(
    aws: EmulatorControl, open_asg_provider: Make, cluster: str
) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1", "n2"])
    provider = open_asg_provider()
    for after in (False, True):
        fault = ApiFault("CreateTags", "InternalError", status=500, after=after, where={"Tag.2.Key": "holdfast:node"})
        aws.inject(fault)
        old, token = serving(provider, "n1")["n1"] or "", f"inc-{after}"
        with pytest.raises(Unavailable):
            replace(provider, old, token)
        made = replace(provider, old, token)
        assert serving(provider, "n1", "n2") == {"n1": made.instance_id, "n2": ids["n2"]}


@pytest.mark.parametrize(
    ("process", "way", "words"),
    [("Launch", "terminate", "Launch suspended"), ("ReplaceUnhealthy", "unhealthy", "ReplaceUnhealthy suspended")],
)
def test_suspended_process_is_said_and_nothing_ends(
    aws: EmulatorControl, open_asg_provider: Make, cluster: str, process: str, way: str, words: str
) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1"])
    open_groups(aws.endpoint).suspend_processes(AutoScalingGroupName=cluster, ScalingProcesses=[process])
    since = aws.last_call()
    with pytest.raises(Rejected, match=words):
        replace(open_asg_provider(replace_by=way), ids["n1"])
    assert [aws.calls(action, since) for action in ENDS] == [[], []]


def test_lowered_capacity_is_said_and_nothing_ends(aws: EmulatorControl, open_asg_provider: Make, cluster: str) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1", "n2"])
    groups = open_groups(aws.endpoint)
    protected: Any = {"AutoScalingGroupName": cluster, "InstanceIds": list(ids.values())}
    groups.set_instance_protection(**protected, ProtectedFromScaleIn=True)
    groups.set_desired_capacity(AutoScalingGroupName=cluster, DesiredCapacity=1)
    with pytest.raises(Rejected, match="wants 1 machines and has 2: one that goes is not replaced"):
        replace(open_asg_provider(), ids["n1"])
    groups.set_desired_capacity(AutoScalingGroupName=cluster, DesiredCapacity=2)
    assert replace(open_asg_provider(), ids["n1"]).node == "n1"  # protection is from scaling in alone


def test_launching_suspended_after_the_order_is_said(
    aws: EmulatorControl, open_asg_provider: Make, cluster: str
) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1"])
    aws.delays(relaunch_s=5.0)
    with pytest.raises(Unavailable):
        replace(open_asg_provider(patience_s=0.1), ids["n1"])
    open_groups(aws.endpoint).suspend_processes(AutoScalingGroupName=cluster, ScalingProcesses=["Launch"])
    with pytest.raises(Rejected, match="Launch suspended"):
        replace(open_asg_provider(patience_s=0.1), ids["n1"])


def test_group_without_capacity_says_so_and_goes_on_later(
    aws: EmulatorControl, open_asg_provider: Make, cluster: str
) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1"])
    aws.group_capacity(cluster, available=False)
    provider = open_asg_provider(patience_s=0.5)
    with pytest.raises(InsufficientCapacity, match=f"group {cluster} has no machine for n1: .*InsufficientInstance"):
        replace(provider, ids["n1"])
    aws.group_capacity(cluster, available=True)
    assert until_done(provider, ids["n1"]).node == "n1"


def test_machine_of_another_node_or_group_is_left_alone(
    aws: EmulatorControl, open_asg_provider: Make, cluster: str
) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1", "n2"])
    lonely = seed(aws.endpoint, cluster, ["n3"])["n3"]
    since, provider = aws.last_call(), open_asg_provider()
    with pytest.raises(Rejected, match="is n2's machine, not n1's"):
        replace(provider, ids["n2"])
    with pytest.raises(Rejected, match="left alone"):
        replace(provider, lonely, "inc-1", "n3")
    with pytest.raises(Rejected, match="left alone"):
        provider.reboot(lonely)
    with pytest.raises(NotFound):
        replace(provider, "i-0123456789abcdef0")
    with pytest.raises(Rejected, match="there is no Auto Scaling group nowhere"):
        replace(open_asg_provider(groups=(cluster, "nowhere")), ids["n1"])
    assert [aws.calls(action, since) for action in ENDS] == [[], []]
    assert provider.instance_of("n3") is None


def test_what_a_group_cannot_do_is_refused(aws: EmulatorControl, open_asg_provider: Make, cluster: str) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1"])
    provider = open_asg_provider()
    assert (provider.can.launch_first, provider.can.stop_start, provider.repairs_itself()) == (False, False, False)
    for verb in (
        lambda: provider.launch("n1", incident="inc", token="t"),
        lambda: provider.terminate(ids["n1"]),
        lambda: provider.stop_start(ids["n1"], incident="inc", token="t"),
    ):
        with pytest.raises(Rejected, match="provider asg cannot"):
            verb()


def test_notices_of_a_groups_machines(aws: EmulatorControl, open_asg_provider: Make, cluster: str) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1", "n2"])
    at = datetime(2027, 1, 2, tzinfo=UTC)
    aws.impair(ids["n2"], "system", at)
    assert [(n.node, n.code, n.at) for n in open_asg_provider().notices()] == [("n2", "system-status", at)]


def test_rights_are_asked_without_changing_anything(
    aws: EmulatorControl, open_asg_provider: Make, cluster: str
) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1"])
    since = aws.last_call()
    aws.inject(ApiFault("DescribeScalingActivities", "AccessDenied", status=403))
    aws.inject(ApiFault("RebootInstances", "UnauthorizedOperation", status=403))
    asked = open_asg_provider().permissions(ids["n1"])
    assert {a for a, obstacle in asked.items() if obstacle} == {"DescribeScalingActivities", "RebootInstances"}
    assert {a.partition(":")[2] for a in KINDS["asg"].actions} - set(asked) == set(ENDS)
    assert all(call["effects"] == [] for call in aws.calls(since=since))
