"""What the emulator adds for machines: events, stop and start, reservations, groups; and its answers against botocore's models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from holdfast.practice.aws import REGION
from holdfast.practice.aws.client import EmulatorControl, running_emulator
from holdfast.practice.aws.seed import TEMPLATE, open_ec2, seed

SOON = datetime(2027, 1, 2, 11, 30, tzinfo=UTC)


def open_groups(endpoint: str) -> Any:
    """A client of the emulator's Auto Scaling."""
    config = Config(retries={"total_max_attempts": 1}, proxies={})
    session = boto3.session.Session("practice", "practice", region_name=REGION)
    return session.client("autoscaling", endpoint_url=endpoint, config=config)


def make_group(endpoint: str, name: str, size: int) -> Any:
    groups = open_groups(endpoint)
    groups.create_auto_scaling_group(
        AutoScalingGroupName=name,
        LaunchTemplate={"LaunchTemplateName": TEMPLATE, "Version": "$Default"},
        MinSize=0,
        MaxSize=10,
        DesiredCapacity=size,
        AvailabilityZones=[f"{REGION}a"],
    )
    return groups


def members(groups: Any, name: str) -> dict[str, str]:
    [group] = groups.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return {member["InstanceId"]: member["LifecycleState"] for member in group["Instances"]}


def state(ec2: Any, instance_id: str) -> str:
    return str(ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]["State"]["Name"])


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_events_are_shown_and_completed_ones_linger(aws: EmulatorControl, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, ["n1", "n2"])
    event = aws.plan_event(ids["n1"], "instance-retirement", SOON, "The instance is on degraded hardware")
    ec2 = open_ec2(aws.endpoint)
    wanted: Any = [{"Name": "event.code", "Values": ["instance-retirement"]}]
    [status] = ec2.describe_instance_status(Filters=wanted)["InstanceStatuses"]
    assert (status.get("InstanceId"), status["Events"][0].get("NotBefore")) == (ids["n1"], SOON)
    aws.plan_event(ids["n1"], "instance-retirement", SOON, "[Completed] The instance is on …", event)
    [status] = ec2.describe_instance_status(Filters=wanted)["InstanceStatuses"]
    assert [e.get("Description", "")[:11] for e in status["Events"]] == ["[Completed]"]


def test_status_has_pages_and_filters(aws: EmulatorControl, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, [f"n{i}" for i in range(7)])
    aws.impair(ids["n3"], "ebs", SOON)
    ec2 = open_ec2(aws.endpoint)
    pages = list(ec2.get_paginator("describe_instance_status").paginate(PaginationConfig={"PageSize": 5}))
    assert len(pages) > 1
    assert set(ids.values()) <= {s.get("InstanceId") for page in pages for s in page["InstanceStatuses"]}
    impaired: Any = [{"Name": "attached-ebs-status.status", "Values": ["impaired"]}]
    found = ec2.describe_instance_status(Filters=impaired)["InstanceStatuses"]
    assert [s.get("InstanceId") for s in found] == [ids["n3"]]
    with pytest.raises(ClientError, match="InvalidParameterCombination"):
        ec2.describe_instance_status(InstanceIds=[ids["n1"]], MaxResults=5)


def test_stop_and_start_move_the_machine(aws: EmulatorControl, cluster: str) -> None:
    aws.delays(shutting_down_s=0.2)
    [one] = seed(aws.endpoint, cluster, ["n1"]).values()
    ec2 = open_ec2(aws.endpoint)
    ec2.stop_instances(InstanceIds=[one])
    assert state(ec2, one) == "stopping"
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        ec2.start_instances(InstanceIds=[one])
    until(lambda: state(ec2, one) == "stopped")
    ec2.start_instances(InstanceIds=[one])
    ec2.start_instances(InstanceIds=[one])
    assert (state(ec2, one), aws.moves()[one]) == ("running", 1)


def test_a_machine_that_hangs_is_stopped_by_force(aws: EmulatorControl, cluster: str) -> None:
    [one] = seed(aws.endpoint, cluster, ["n1"]).values()
    aws.hang_stopping(one)
    ec2 = open_ec2(aws.endpoint)
    ec2.stop_instances(InstanceIds=[one])
    ec2.stop_instances(InstanceIds=[one])
    assert state(ec2, one) == "stopping"
    ec2.stop_instances(InstanceIds=[one], Force=True)
    until(lambda: state(ec2, one) == "stopped")


def run_reserved(endpoint: str, reservation: str, **more: Any) -> str:
    target: Any = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
    template: Any = {"LaunchTemplateName": TEMPLATE}
    answer = open_ec2(endpoint).run_instances(
        LaunchTemplate=template, MinCount=1, MaxCount=1, CapacityReservationSpecification=target, **more
    )
    return str(answer["Instances"][0].get("InstanceId"))


def test_a_reservation_has_so_many_places(aws: EmulatorControl, cluster: str) -> None:
    block = f"cr-{cluster}"
    with pytest.raises(ClientError, match=r"InvalidCapacityReservationId\.NotFound"):
        run_reserved(aws.endpoint, block)
    aws.reserve(block, "p5.48xlarge", 1, kind="capacity-block", ends_at=SOON)
    one = run_reserved(aws.endpoint, block, InstanceMarketOptions={"MarketType": "capacity-block"})
    with pytest.raises(ClientError, match="ReservationCapacityExceeded"):
        run_reserved(aws.endpoint, block)
    ec2 = open_ec2(aws.endpoint)
    with pytest.raises(ClientError, match="can't stop the capacity-block instance"):
        ec2.stop_instances(InstanceIds=[one])
    ec2.terminate_instances(InstanceIds=[one])
    [shown] = ec2.describe_capacity_reservations(CapacityReservationIds=[block])["CapacityReservations"]
    assert (shown.get("AvailableInstanceCount"), shown.get("EndDate"), shown.get("State")) == (1, SOON, "active")
    aws.reserve(block, "p5.48xlarge", 1, kind="capacity-block", ends_at=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(ClientError, match="InvalidCapacityReservationState"):
        run_reserved(aws.endpoint, block)


@pytest.mark.parametrize("way", ["terminate", "unhealthy", "ec2"])
def test_a_group_replaces_what_goes(aws: EmulatorControl, cluster: str, way: str) -> None:
    aws.delays(relaunch_s=0.1)
    groups, ec2 = make_group(aws.endpoint, cluster, 2), open_ec2(aws.endpoint)
    before = members(groups, cluster)
    old = min(before)
    if way == "terminate":
        groups.terminate_instance_in_auto_scaling_group(InstanceId=old, ShouldDecrementDesiredCapacity=False)
    elif way == "unhealthy":
        groups.set_instance_health(InstanceId=old, HealthStatus="Unhealthy")
    else:
        ec2.terminate_instances(InstanceIds=[old])
    until(lambda: len(members(groups, cluster)) == 2 and old not in members(groups, cluster))
    assert state(ec2, old) == "terminated"
    [new] = set(members(groups, cluster)) - set(before)
    assert state(ec2, new) in ("pending", "running")


def test_a_group_that_may_not_launch_stays_short(aws: EmulatorControl, cluster: str) -> None:
    aws.delays(relaunch_s=0.0)
    groups = make_group(aws.endpoint, cluster, 1)
    [old] = members(groups, cluster)
    groups.suspend_processes(AutoScalingGroupName=cluster, ScalingProcesses=["Launch"])
    groups.terminate_instance_in_auto_scaling_group(InstanceId=old, ShouldDecrementDesiredCapacity=False)
    time.sleep(0.1)
    assert members(groups, cluster) == {}
    aws.group_capacity(cluster, available=False)
    groups.resume_processes(AutoScalingGroupName=cluster, ScalingProcesses=["Launch"])
    assert members(groups, cluster) == {}
    aws.group_capacity(cluster, available=True)
    until(lambda: len(members(groups, cluster)) == 1)
    with pytest.raises(ClientError, match="No managed instance found"):
        groups.set_instance_health(InstanceId="i-0123456789abcdef0", HealthStatus="Unhealthy")


@pytest.mark.aws
def test_groups_outlive_a_stop_of_the_emulator(tmp_path: Any) -> None:
    fast = ("--shutting-down-s", "0", "--pending-s", "0")
    with running_emulator(tmp_path, *fast) as control:
        seed(control.endpoint, "c", [])
        control.delays(relaunch_s=0.0)
        groups = make_group(control.endpoint, "g", 2)
        groups.terminate_instance_in_auto_scaling_group(
            InstanceId=min(members(groups, "g")), ShouldDecrementDesiredCapacity=False
        )
        until(lambda: len(members(groups, "g")) == 2)
        before = members(groups, "g")
    with running_emulator(tmp_path, *fast) as again:
        assert members(open_groups(again.endpoint), "g") == before


@contextmanager
def validated(client: Any) -> Iterator[list[str]]:
    """Hold every answer against botocore's model: its parser alone drops what it does not know."""
    wrong: list[str] = []

    def check(parsed: Any, model: Any, **_: Any) -> None:
        if model.output_shape is not None and parsed["ResponseMetadata"]["HTTPStatusCode"] == 200:
            plain = {k: v for k, v in parsed.items() if k != "ResponseMetadata"}
            wrong.extend(f"{model.name}: {line}" for line in _report(plain, model.output_shape))

    client.meta.events.register("after-call", check)
    yield wrong


def _report(value: Any, shape: Any) -> list[str]:
    errors = ParamValidator().validate(value, shape)
    return [errors.generate_report()] if errors.has_errors() else []


def test_answers_are_in_botocores_models(aws: EmulatorControl, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, ["n1"])
    aws.impair(ids["n1"], "system", SOON)
    aws.plan_event(ids["n1"], "system-reboot", SOON, "reboot")
    aws.reserve(f"cr-{cluster}", "p5.48xlarge", 2, kind="capacity-block", ends_at=SOON + timedelta(days=1))
    ec2, groups = open_ec2(aws.endpoint), make_group(aws.endpoint, cluster, 1)
    with validated(ec2) as wrong_ec2, validated(groups) as wrong_groups:
        ec2.describe_instances()
        ec2.describe_instance_status(IncludeAllInstances=True)
        ec2.describe_capacity_reservations()
        ec2.report_instance_status(Instances=list(ids.values()), Status="impaired", ReasonCodes=["other"])
        ec2.stop_instances(InstanceIds=list(ids.values()))
        ec2.start_instances(InstanceIds=list(ids.values()))
        groups.suspend_processes(AutoScalingGroupName=cluster, ScalingProcesses=["AZRebalance"])
        groups.describe_auto_scaling_groups()
        groups.describe_auto_scaling_instances()
        [member] = members(groups, cluster)
        groups.terminate_instance_in_auto_scaling_group(InstanceId=member, ShouldDecrementDesiredCapacity=False)
    assert wrong_ec2 + wrong_groups == []
