"""EC2: stop and start gives a machine another host, once per token, wherever it is cut off."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.errors import InsufficientCapacity, Rejected, Unavailable
from holdfast.model.machine import Instance
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.faults import ApiFault
from holdfast.practice.aws.seed import TEMPLATE, open_ec2, seed
from holdfast.providers.aws.instances import ASG_TAG
from holdfast.providers.ec2.adapter import Ec2Provider
from holdfast.providers.ec2.stop_start import StopOrder, cannot_stop, read_order
from support.cut import CutError, cut_at

Make = Callable[..., Ec2Provider]
ONCE = "inc-1"


def stop_start(provider: Ec2Provider, machine: str, token: str = ONCE) -> Instance:
    return provider.stop_start(machine, incident="inc", token=token)


def until_done(provider: Ec2Provider, machine: str, token: str = ONCE) -> Instance:
    deadline = time.monotonic() + 15
    while True:
        try:
            return stop_start(provider, machine, token)
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("stop inc-1 1700000000.123 1700000100", StopOrder("inc-1", 1700000000.123, 1700000100.0)),
        ("replace inc-1", None),
        ("stop inc-1 x 1", None),
        ("stop inc-1 1", None),
        ("", None),
    ],
)
def test_the_tag_reads_as_it_was_written(text: str, order: StopOrder | None) -> None:
    assert read_order(text) == order
    assert order is None or str(order) == text


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"InstanceLifecycle": "spot"}, "is a spot machine"),
        ({"InstanceLifecycle": "capacity-block"}, "is a capacity-block machine"),
        ({"RootDeviceType": "instance-store"}, "root on an instance store"),
        ({"Tags": [{"Key": ASG_TAG, "Value": "g"}]}, "belongs to Auto Scaling group g"),
        ({"State": {"Name": "terminated"}}, "is terminated"),
        ({"RootDeviceType": "ebs", "State": {"Name": "running"}}, ""),
        ({"RootDeviceType": "ebs", "State": {"Name": "stopped"}}, ""),
    ],
)
def test_which_machines_cannot_be_stopped(raw: dict[str, Any], words: str) -> None:
    said = cannot_stop({"InstanceId": "i-1", **raw})  # type: ignore[typeddict-item]  # a part of one
    assert (words in said) if words else (said == "")


def test_machine_comes_back_on_another_host(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    aws.delays(shutting_down_s=0.4)
    machine = seed(aws.endpoint, cluster, ["n1"])["n1"]
    aws.impair(machine, "system")
    provider = open_ec2_provider()
    made = stop_start(provider, machine)
    assert (made.instance_id, made.state, made.node) == (machine, "pending", "n1")
    assert aws.moves()[machine] == 1
    seen = provider.instance(machine)
    assert (seen.state, seen.healthy) == ("running", True)
    assert provider.instance_of("n1") is not None


def test_call_that_waits_for_long_says_so(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    aws.delays(shutting_down_s=1.0)
    machine = seed(aws.endpoint, cluster, ["n1"])["n1"]
    since = aws.last_call()
    with pytest.raises(Unavailable, match=f"{machine} is stopping while it is stopped"):
        stop_start(open_ec2_provider(patience_s=0.1, consistency_wait_s=0.1), machine)
    until_done(open_ec2_provider(patience_s=0.1, consistency_wait_s=0.1), machine)
    assert aws.effects("StopInstances", since) == aws.effects("StartInstances", since) == [machine]


def test_machine_that_hangs_is_forced(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    machine = seed(aws.endpoint, cluster, ["n1"])["n1"]
    aws.hang_stopping(machine)
    since = aws.last_call()
    with pytest.raises(Unavailable, match="stopping"):
        stop_start(open_ec2_provider(patience_s=0.1), machine)
    assert [call["parameters"]["Force"] for call in aws.calls("StopInstances", since)] == ["false"]
    until_done(open_ec2_provider(force_stop_s=0.0), machine)
    assert aws.moves()[machine] == 1


def test_no_host_to_start_on_is_asked_again(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    machine = seed(aws.endpoint, cluster, ["n1"])["n1"]
    provider, since = open_ec2_provider(consistency_wait_s=0.0), aws.last_call()
    aws.inject(ApiFault("StartInstances", "InsufficientInstanceCapacity", status=500, times=2))
    for _ in range(2):
        with pytest.raises(InsufficientCapacity):
            stop_start(provider, machine)
    assert provider.instance(machine).state == "stopped"
    stop_start(provider, machine)
    assert aws.effects("StopInstances", since) == aws.effects("StartInstances", since) == [machine]


@pytest.mark.slow
def test_cut_at_any_call_it_is_stopped_and_started_once(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    machine = seed(aws.endpoint, cluster, ["n1"])["n1"]
    number, finished = 0, False
    while not finished:
        number += 1
        token, since = f"inc-{number}", aws.last_call()
        first = open_ec2_provider(consistency_wait_s=0.0)
        cut_at(number, [first._calls.client])
        try:
            stop_start(first, machine, token)
            finished = True
        except CutError:
            pass
        for _ in range(2):
            stop_start(open_ec2_provider(consistency_wait_s=0.0), machine, token)
        assert aws.effects("StopInstances", since) == aws.effects("StartInstances", since) == [machine]
    assert number > 5


def test_late_describes_start_no_second_round(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    machine = seed(aws.endpoint, cluster, ["n1"])["n1"]
    time.sleep(0.3)
    since = aws.last_call()
    aws.weather(5, stale_s=0.3)
    provider = open_ec2_provider(consistency_wait_s=0.4)
    for _ in range(5):
        until_done(provider, machine)
    until_done(open_ec2_provider(consistency_wait_s=0.4), machine)
    assert aws.effects("StopInstances", since) == aws.effects("StartInstances", since) == [machine]


def test_foreign_and_pending_machines_are_not_stopped(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    theirs = seed(aws.endpoint, f"{cluster}-other", ["n1"])["n1"]
    since = aws.last_call()
    with pytest.raises(Rejected, match="left alone"):
        stop_start(open_ec2_provider(consistency_wait_s=0.0), theirs)
    aws.delays(pending_s=2.0)
    fresh = open_ec2_provider().launch("n2", incident="inc", token="x-1")
    with pytest.raises(Unavailable, match="is pending"):
        stop_start(open_ec2_provider(consistency_wait_s=0.0), fresh.instance_id)
    with pytest.raises(Rejected, match="token"):
        stop_start(open_ec2_provider(), theirs, "")
    assert aws.calls("StopInstances", since) == []


def test_spot_machine_is_refused_before_ec2_is_asked(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    tags: Any = [{"Key": "holdfast:cluster", "Value": cluster}, {"Key": "holdfast:node", "Value": "n1"}]
    template: Any = {"LaunchTemplateName": TEMPLATE}
    made = open_ec2(aws.endpoint).run_instances(
        LaunchTemplate=template, MinCount=1, MaxCount=1, InstanceMarketOptions={"MarketType": "spot"},
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )  # fmt: skip
    since = aws.last_call()
    with pytest.raises(Rejected, match="is a spot machine, which cannot be stopped and started: replace it"):
        stop_start(open_ec2_provider(consistency_wait_s=0.0), made["Instances"][0].get("InstanceId", ""))
    assert aws.calls("StopInstances", since) == []


def test_fault_is_reported_with_its_time(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    machine = seed(aws.endpoint, cluster, ["n1"])["n1"]
    since = aws.last_call()
    at = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    open_ec2_provider().report_fault(machine, since=at, text="efa.counters: link down\n on rdmap0")
    [call] = aws.calls("ReportInstanceStatus", since)
    given = call["parameters"]
    assert (given["InstanceId.1"], given["Status"], given["ReasonCode.1"]) == (
        machine,
        "impaired",
        "performance-network",
    )
    assert given["StartTime"].startswith("2026-11-20T12:00:00")
    assert given["Description"] == "efa.counters: link down on rdmap0"
    theirs = seed(aws.endpoint, f"{cluster}-other", ["n1"])["n1"]
    with pytest.raises(Rejected, match="left alone"):
        open_ec2_provider().report_fault(theirs, since=at, text="x")
