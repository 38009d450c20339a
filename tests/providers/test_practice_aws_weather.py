"""Random faults in the emulator: repeatable from a seed, and a describe with old data."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.faults import ApiFault, FaultBook, Weather
from holdfast.practice.aws.seed import TEMPLATE, open_ec2, seed
from support.ec2_shown import machines, state_of


@pytest.mark.parametrize(
    ("action", "chance", "capacity", "met"),
    [
        ("DescribeInstances", 0.05, 1.0, ("RequestLimitExceeded", 503, False)),
        ("BatchReplaceClusterNodes", 0.05, 1.0, ("ThrottlingException", 503, False)),
        ("DescribeInstances", 0.15, 1.0, ("InternalError", 500, False)),
        ("TerminateInstances", 0.25, 1.0, ("InternalError", 500, True)),
        ("TerminateInstances", 0.35, 0.0, None),
        ("RunInstances", 0.35, 0.3, ("InsufficientInstanceCapacity", 500, False)),
        ("StartInstances", 0.05, 0.3, ("InsufficientInstanceCapacity", 500, False)),
        ("RunInstances", 0.35, 0.6, None),
    ],
)
def test_what_a_call_meets(action: str, chance: float, capacity: float, met: tuple[str, int, bool] | None) -> None:
    weather = Weather(1, throttled=0.1, errors=0.1, lost_answers=0.1, no_capacity=0.5)
    fault = weather.fault(action, chance, capacity)
    assert (None if fault is None else (fault.code, fault.status, fault.after)) == met


def test_the_same_seed_brings_the_same_faults_in_their_shares() -> None:
    def sequence(number: int) -> list[str]:
        book = FaultBook()
        book.set_weather(Weather(number, throttled=0.2, errors=0.1))
        return [fault.code if (fault := book.take("DescribeInstances", {})) else "" for _ in range(2000)]

    assert sequence(7) == sequence(7) != sequence(8)
    counted = Counter(sequence(7))
    assert 300 < counted["RequestLimitExceeded"] < 500
    assert 130 < counted["InternalError"] < 270


def test_an_armed_fault_comes_before_the_weather_and_clear_ends_both() -> None:
    book = FaultBook()
    book.add(ApiFault("RunInstances", "Special"))
    book.set_weather(Weather(1, errors=1.0))
    codes = [fault.code for _ in range(2) if (fault := book.take("RunInstances", {})) is not None]
    assert codes == ["Special", "InternalError"]
    book.clear()
    assert book.take("RunInstances", {}) is None


@pytest.mark.parametrize("wrong", [{"throttled": -0.1}, {"errors": 0.6, "throttled": 0.6}, {"no_capacity": 1.5}])
def test_shares_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="shares"):
        Weather(1, **wrong)


def test_a_describe_may_be_behind_in_instances_states_and_tags(aws: EmulatorControl, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, ["n1", "n2"])
    ec2 = open_ec2(aws.endpoint)
    time.sleep(6.0)  # a describe that is late by less shows them as they were, by more does not know them
    aws.weather(3, stale_s=40.0)
    ec2.terminate_instances(InstanceIds=[ids["n1"]])
    ec2.create_tags(Resources=[ids["n2"]], Tags=[{"Key": "holdfast:role", "Value": "retired"}])
    template = {"LaunchTemplateName": TEMPLATE}
    new = ec2.run_instances(LaunchTemplate=template, MinCount=1, MaxCount=1)["Instances"][0].get("InstanceId")  # type: ignore[arg-type]
    seen: set[str] = set()
    deadline = time.monotonic() + 120
    while len(seen) < 6:
        assert time.monotonic() < deadline, seen
        shown = machines(aws.endpoint)
        seen.add("launched" if new in shown else "not there")
        if ids["n1"] in shown:
            seen.add("terminated" if state_of(shown[ids["n1"]]) == "terminated" else "still running")
        if ids["n2"] in shown:
            seen.add("tagged" if "retired" in str(shown[ids["n2"]].get("Tags")) else "not tagged")
    aws.clear()
    last = machines(aws.endpoint)
    assert state_of(last[ids["n1"]]) == "terminated"
    assert "retired" in str(last[ids["n2"]].get("Tags"))
    assert new in last


def test_weather_reaches_the_calls_and_ends_with_clear(aws: EmulatorControl, cluster: str) -> None:
    seed(aws.endpoint, cluster, ["n1"])
    since = aws.last_call()
    aws.weather(1, errors=1.0)
    with pytest.raises(Exception, match="InternalError"):
        open_ec2(aws.endpoint).describe_instances()
    aws.clear()
    open_ec2(aws.endpoint).describe_instances()
    assert [(call["error"], call["injected"]) for call in aws.calls(since=since)][-2:] == [
        ("InternalError", True),
        ("", False),
    ]
