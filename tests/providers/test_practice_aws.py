"""The emulator itself: what it adds to moto, a stop and start, and the watcher that boots hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.practice.aws.client import EmulatorControl, running_emulator, start_emulator, stop_emulator
from holdfast.practice.aws.cloud import CloudWatcher
from holdfast.practice.aws.faults import FOREVER, ApiFault, FaultBook, fault_from_json
from holdfast.practice.aws.journal import Journal, JournalEntry
from holdfast.practice.aws.seed import TEMPLATE, open_ec2, seed
from holdfast.providers.ec2.adapter import Ec2Provider


def test_fault_is_counted_down_and_then_gone() -> None:
    book = FaultBook()
    book.add(ApiFault("RunInstances", "X", times=2))
    assert [book.take("RunInstances", {}) is not None for _ in range(3)] == [True, True, False]
    assert book.take("DescribeInstances", {}) is None


def test_fault_that_does_not_match_is_kept_for_the_call_it_is_meant_for() -> None:
    book = FaultBook()
    book.add(ApiFault("RunInstances", "X", where={"InstanceType": "a"}))
    assert book.take("RunInstances", {"InstanceType": "b"}) is None
    assert book.take("RunInstances", {"InstanceType": "a"}) is not None


def test_fault_for_ever_holds_until_cleared() -> None:
    book = FaultBook()
    book.add(ApiFault(times=FOREVER))
    assert all(book.take("Any", {}) for _ in range(5))
    book.clear()
    assert book.take("Any", {}) is None


@pytest.mark.parametrize("data", [{"status": 200}, {"delay_s": -1}, {"delay_s": 601}, {"acton": "x"}])
def test_bad_fault_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        fault_from_json(data)


def test_torn_last_line_of_the_journal_is_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    entry = JournalEntry(1.5, 7, "us-east-1", "Action=RunInstances")
    journal.write(entry)
    with (tmp_path / "j").open("a") as out:
        out.write('{"at": 2.0, "se')
    assert list(journal.entries()) == [entry]
    Journal(tmp_path / "j").write(entry)
    assert list(journal.entries()) == [entry, entry]


def test_control_endpoint_refuses_nonsense(aws: EmulatorControl) -> None:
    with pytest.raises(Rejected, match="which"):
        aws.impair("i-1", "weather")
    with pytest.raises(Rejected, match="200 is no HTTP error"):
        aws.inject(ApiFault(status=200))
    with pytest.raises(NotFound, match="no such verb"):
        aws._ask("GET", "nonsense")


def run_one(endpoint: str, token: str, **more: Any) -> Any:
    ec2 = open_ec2(endpoint)
    template: Any = {"LaunchTemplateName": TEMPLATE}
    return ec2.run_instances(LaunchTemplate=template, MinCount=1, MaxCount=1, ClientToken=token, **more)


def test_client_token_is_remembered(aws: EmulatorControl, cluster: str) -> None:
    first, second = run_one(aws.endpoint, cluster), run_one(aws.endpoint, cluster)
    assert first["ReservationId"] == second["ReservationId"]
    assert first["Instances"][0]["InstanceId"] == second["Instances"][0]["InstanceId"]
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        run_one(aws.endpoint, cluster, InstanceType="p4d.24xlarge")
    open_ec2(aws.endpoint).terminate_instances(InstanceIds=[first["Instances"][0]["InstanceId"]])
    assert run_one(aws.endpoint, cluster)["Instances"][0]["State"]["Name"] == "terminated"
    aws.ended_launch(is_error=True)
    with pytest.raises(ClientError, match="IdempotentInstanceTerminated"):
        run_one(aws.endpoint, cluster)


def test_instance_takes_its_time_through_the_states(aws: EmulatorControl, cluster: str) -> None:
    aws.delays(pending_s=0.4, initializing_s=0.4, shutting_down_s=0.4)
    ec2 = open_ec2(aws.endpoint)
    instance_id = run_one(aws.endpoint, cluster)["Instances"][0]["InstanceId"]
    seen: list[tuple[str, str]] = []
    deadline = time.monotonic() + 10
    while not seen or seen[-1][0] != "terminated":
        assert time.monotonic() < deadline, seen
        [raw] = ec2.describe_instance_status(InstanceIds=[instance_id], IncludeAllInstances=True)["InstanceStatuses"]
        now = (str(raw.get("InstanceState", {}).get("Name")), str(raw.get("SystemStatus", {}).get("Status")))
        if not seen or now != seen[-1]:
            seen.append(now)
        if now == ("running", "ok"):
            ec2.terminate_instances(InstanceIds=[instance_id])
        time.sleep(0.02)
    assert seen == [
        ("pending", "not-applicable"),
        ("running", "initializing"),
        ("running", "ok"),
        ("shutting-down", "not-applicable"),
        ("terminated", "not-applicable"),
    ]


def test_impairment_has_its_time_and_feedback_is_logged(aws: EmulatorControl, cluster: str) -> None:
    [instance_id] = seed(aws.endpoint, cluster, ["n1"]).values()
    aws.impair(instance_id, "instance")
    ec2 = open_ec2(aws.endpoint)
    [status] = ec2.describe_instance_status(InstanceIds=[instance_id])["InstanceStatuses"]
    [detail] = status.get("InstanceStatus", {}).get("Details", [])
    assert (detail.get("Status"), detail.get("ImpairedSince") is not None) == ("failed", True)
    ec2.report_instance_status(Instances=[instance_id], Status="impaired", ReasonCodes=["other"])
    assert aws.calls("ReportInstanceStatus")[-1]["parameters"]["Status"] == "impaired"
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        ec2.report_instance_status(Instances=["i-0123456789abcdef0"], Status="ok", ReasonCodes=["other"])


def facts(endpoint: str) -> list[tuple[Any, ...]]:
    pages = open_ec2(endpoint).describe_instances()["Reservations"]
    return [
        (i.get("InstanceId"), i.get("State"), i.get("PrivateIpAddress"), i.get("LaunchTime"), i.get("Tags"))
        for r in pages
        for i in r.get("Instances", [])
    ]


@pytest.mark.aws
def test_stop_and_start_loses_no_instance(tmp_path: Path) -> None:
    process, control = start_emulator(tmp_path, extra=("--shutting-down-s", "0", "--pending-s", "0"))
    try:
        ids = seed(control.endpoint, "c", ["n1", "n2"])
        open_ec2(control.endpoint).terminate_instances(InstanceIds=[ids["n2"]])
        before, port = facts(control.endpoint), int(control.endpoint.rpartition(":")[2])
    finally:
        process.kill()
        stop_emulator(process)
    assert not control.ready()
    with pytest.raises(Unavailable, match="does not answer"):
        control.calls()
    with running_emulator(tmp_path, "--port", str(port)) as again:
        assert again.endpoint == control.endpoint
        after = facts(again.endpoint)
        assert [fact[:3] + fact[4:] for fact in after] == [fact[:3] + fact[4:] for fact in before]
        launched = [(one[3], other[3]) for one, other in zip(after, before, strict=True)]
        assert all(abs(one - other) <= timedelta(seconds=1) for one, other in launched), "shown in whole seconds"
        assert seed(again.endpoint, "c", ["n1"])["n1"] == ids["n1"]  # the ClientToken is remembered, too
        assert again.effects("RunInstances") == list(ids.values())


class RecordingHosts:
    def __init__(self) -> None:
        self.done: list[tuple[str, str, str]] = []
        self.refuse = 0

    def _do(self, verb: str, instance_id: str, node: str) -> None:
        if self.refuse:
            self.refuse -= 1
            raise Unavailable("not ready")
        self.done.append((verb, instance_id, node))

    def boot(self, instance_id: str, node: str) -> None:
        self._do("boot", instance_id, node)

    def power_off(self, instance_id: str, node: str) -> None:
        self._do("power_off", instance_id, node)

    def gone(self, instance_id: str, node: str) -> None:
        pass

    def reboot(self, instance_id: str, node: str) -> None:
        self._do("reboot", instance_id, node)


def poll_until(watcher: CloudWatcher, hosts: RecordingHosts, count: int) -> None:
    deadline = time.monotonic() + 10
    while len(hosts.done) < count:
        assert time.monotonic() < deadline, hosts.done
        watcher.poll()
        time.sleep(0.05)
    watcher.poll()


def test_watcher_boots_replacements_and_cuts_power(
    aws: EmulatorControl, cluster: str, open_ec2_provider: Callable[..., Ec2Provider], tmp_path: Path
) -> None:
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    hosts, memory, provider = RecordingHosts(), tmp_path / "cloud.json", open_ec2_provider()
    watcher = CloudWatcher(aws.endpoint, cluster, hosts, memory)
    watcher.poll()
    assert hosts.done == []  # the seeded machine's host is the practice's own
    new = provider.launch("n1", incident="inc", token="inc-1").instance_id
    hosts.refuse = 1
    poll_until(watcher, hosts, 1)
    provider.reboot(new)
    poll_until(watcher, hosts, 2)
    provider.terminate(old)
    again = CloudWatcher(aws.endpoint, cluster, hosts, memory)  # restarted: boots nothing twice
    poll_until(again, hosts, 3)
    assert hosts.done == [("boot", new, "n1"), ("reboot", new, "n1"), ("power_off", old, "n1")]


def test_watcher_outlives_an_emulator_that_is_away(aws: EmulatorControl, cluster: str) -> None:
    hosts = RecordingHosts()
    watcher = CloudWatcher(aws.endpoint, cluster, hosts)
    aws.inject(ApiFault("DescribeInstances", "InternalError", status=500, times=2))
    watcher.poll()
    watcher.poll()
    assert hosts.done == []
