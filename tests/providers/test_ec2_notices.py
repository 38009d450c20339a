"""EC2's own notices about machines: tables for the reading, HTTP for the requests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.errors import Unavailable
from holdfast.model.machine import NoticeKind
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.faults import ApiFault
from holdfast.practice.aws.seed import open_ec2, seed
from holdfast.providers.aws.capacity import Reserved
from holdfast.providers.aws.instances import reason_codes
from holdfast.providers.aws.notices import read_ends, read_status
from holdfast.providers.ec2.adapter import Ec2Provider
from holdfast.providers.ec2.launch import why_skip
from holdfast.providers.ec2.settings import Offer

Make = Callable[..., Ec2Provider]
AT = datetime(2027, 1, 2, 11, 30, tzinfo=UTC)
BEFORE = AT - timedelta(hours=2)


def status(**parts: Any) -> Any:
    return {"InstanceId": "i-1", **parts}


def check(word: str, since: datetime | None = None) -> Any:
    detail = {"Name": "reachability", "Status": "failed" if word == "impaired" else word}
    return {"Status": word, "Details": [detail | ({"ImpairedSince": since} if since else {})]}


def event(code: str, description: str = "", at: datetime | None = AT) -> Any:
    return {"Code": code, "Description": description} | ({"NotBefore": at} if at else {})


@pytest.mark.parametrize("word", ["ok", "initializing", "insufficient-data", "not-applicable"])
def test_only_impaired_is_news(word: str) -> None:
    assert list(read_status(status(SystemStatus=check(word), InstanceStatus=check(word)), "n1")) == []


def test_each_impaired_check_is_a_notice_with_its_time() -> None:
    said = list(
        read_status(
            status(
                SystemStatus=check("impaired", AT),
                InstanceStatus=check("initializing"),
                AttachedEbsStatus=check("impaired"),
            ),
            "n1",
        )
    )
    assert [(n.kind, n.code, n.at) for n in said] == [
        (NoticeKind.IMPAIRED, "system-status", AT),
        (NoticeKind.IMPAIRED, "attached-ebs-status", None),
    ]
    assert said[0].text == "EC2's system status check is impaired: reachability"
    assert (said[0].instance_id, said[0].node) == ("i-1", "n1")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("instance-reboot", NoticeKind.REBOOT),
        ("system-reboot", NoticeKind.REBOOT),
        ("instance-stop", NoticeKind.STOP),
        ("instance-retirement", NoticeKind.STOP),
        ("system-maintenance", NoticeKind.STOP),
    ],
)
def test_events_by_code(code: str, kind: NoticeKind) -> None:
    [said] = read_status(status(Events=[event(code, "The instance\nis on degraded hardware")]), "n1")
    assert (said.kind, said.code, said.at) == (kind, code, AT)
    assert said.text == "The instance is on degraded hardware"


@pytest.mark.parametrize("prefix", ["[Completed] ", "[Canceled] ", "  [Completed]", "[Anything new] "])
def test_event_that_is_over_is_no_news(prefix: str) -> None:
    over = event("instance-retirement", f"{prefix}The instance is on degraded hardware")
    assert list(read_status(status(Events=[over]), "n1")) == []


def test_event_of_an_unknown_code_or_without_a_time() -> None:
    said = list(read_status(status(Events=[event("future-thing"), event("instance-stop", "", None)]), "n1"))
    assert [(n.code, n.at, n.text) for n in said] == [("instance-stop", None, "EC2 gives no description")]


BLOCK = Reserved("cr-1", "active", True, "p5.48xlarge", AT)


@pytest.mark.parametrize(
    ("reserved", "now", "notice_s", "at"),
    [
        (BLOCK, BEFORE, 7200, AT - timedelta(minutes=30)),
        (BLOCK, BEFORE, 3600, None),
        (Reserved("cr-1", "active", True, "p6e-gb200.36xlarge", AT), BEFORE, 7200, AT - timedelta(minutes=60)),
        (Reserved("cr-1", "active", False, "p5.48xlarge", AT), BEFORE, 7200, None),
        (Reserved("cr-1", "active", True, "p5.48xlarge", None), BEFORE, 7200, None),
    ],
)
def test_end_of_a_block(reserved: Reserved, now: datetime, notice_s: float, at: datetime | None) -> None:
    said = list(read_ends({"i-1": "cr-1", "i-2": "cr-9"}, {"cr-1": reserved}, {"i-1": "n1"}, now, notice_s))
    assert [(n.instance_id, n.node, n.kind, n.at) for n in said] == (
        [("i-1", "n1", NoticeKind.CAPACITY_END, at)] if at else []
    )


@pytest.mark.parametrize(
    ("reserved", "words"),
    [
        ({"cr-1": BLOCK}, "Capacity Block cr-1 ends at 2027-01-02 11:30 UTC"),
        ({"cr-1": Reserved("cr-1", "active", True, "p5.48xlarge", AT + timedelta(hours=1))}, ""),
        ({"cr-1": Reserved("cr-1", "active", False, "p5.48xlarge", AT)}, ""),
        ({"cr-1": Reserved("cr-1", "expired", True, "p5.48xlarge", AT)}, "cr-1 is expired"),
        ({"cr-1": Reserved("cr-1", "cancelled", False)}, "cr-1 is cancelled"),
        ({"cr-1": Reserved("cr-1", "scheduled", True, "p5.48xlarge", AT + timedelta(days=9))}, "cr-1 is scheduled"),
        ({}, ""),
    ],
)
def test_which_offers_are_skipped(reserved: dict[str, Reserved], words: str) -> None:
    said = why_skip(Offer(capacity_reservation_id="cr-1"), reserved, BEFORE, 7200)
    assert (words in said) if words else (said == "")
    assert why_skip(Offer(), reserved, BEFORE, 7200) == ""


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("gpu.xid 79 GPU-1 fell off the bus", ["other"]),
        ("efa.counters: retransmissions", ["performance-network"]),
        ("host.nvme: I/O error on nvme1n1", ["performance-instance-store"]),
        ("node.silent: the agent is silent, EC2 says impaired", ["unresponsive"]),
        ("", ["other"]),
    ],
)
def test_reason_codes_of_a_reported_fault(text: str, codes: list[str]) -> None:
    assert reason_codes(text) == codes


def test_what_is_said_of_our_machines_alone(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, ["n1", "n2", "n3"])
    theirs = seed(aws.endpoint, f"{cluster}-other", ["n1"])["n1"]
    for machine in (ids["n1"], theirs):
        aws.impair(machine, "instance", AT)
        aws.plan_event(machine, "system-reboot", AT, "planned")
    done = aws.plan_event(ids["n2"], "instance-stop", AT, "planned")
    aws.plan_event(ids["n2"], "instance-stop", AT, "[Completed] planned", done)
    said = open_ec2_provider().notices()
    assert [(n.instance_id, n.node, n.kind, n.code, n.at) for n in said] == [
        (ids["n1"], "n1", NoticeKind.IMPAIRED, "instance-status", AT),
        (ids["n1"], "n1", NoticeKind.REBOOT, "system-reboot", AT),
    ]
    open_ec2(aws.endpoint).terminate_instances(InstanceIds=[ids["n1"]])
    assert open_ec2_provider().notices() == ()


def test_a_spot_machine_that_is_taken_back(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    seed(aws.endpoint, cluster, ["n2"])
    provider = open_ec2_provider(offers=(Offer(market="spot"),))
    since = aws.last_call()
    assert provider.notices() == ()
    assert aws.calls("DescribeSpotInstanceRequests", since) == []  # none of ours is one
    made = provider.launch("n1", incident="inc", token="inc-1")
    assert provider.notices() == ()
    for machine in (made.instance_id, "i-0theirs000000000"):
        aws.interrupt(machine, AT)
    [said] = provider.notices()
    assert (said.instance_id, said.node, said.kind) == (made.instance_id, "n1", NoticeKind.INTERRUPTION)
    assert (said.code, said.at) == ("marked-for-termination", AT + timedelta(minutes=2))
    aws.inject(ApiFault("DescribeSpotInstanceRequests", "UnauthorizedOperation", status=403))
    assert provider.notices() == ()


def test_calls_do_not_grow_with_the_machines(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    seed(aws.endpoint, cluster, [f"n{i}" for i in range(12)])
    for page_size, pages in ((1000, 1), (5, 3)):
        since = aws.last_call()
        open_ec2_provider(page_size=page_size).notices()
        assert len(aws.calls("DescribeInstances", since)) >= pages
        assert len(aws.calls("DescribeInstanceStatus", since)) == 4
    assert len(aws.calls(since=since)) < 4 + 60


def test_machines_of_a_block_that_ends_soon(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    ends_at = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    block = f"cr-{cluster}"
    aws.reserve(block, "p5.48xlarge", 2, kind="capacity-block", ends_at=ends_at + timedelta(days=3))
    offers = (Offer(market="capacity-block", capacity_reservation_id=block),)
    provider = open_ec2_provider(offers=offers)
    made = provider.launch("n1", incident="inc", token="inc-1")
    assert provider.notices() == ()
    aws.reserve(block, "p5.48xlarge", 2, kind="capacity-block", ends_at=ends_at)
    [said] = provider.notices()
    assert (said.instance_id, said.node, said.kind) == (made.instance_id, "n1", NoticeKind.CAPACITY_END)
    assert said.at == ends_at - timedelta(minutes=30)


def test_no_answer_is_no_news_but_said(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    seed(aws.endpoint, cluster, ["n1"])
    aws.inject(ApiFault("DescribeInstanceStatus", "InternalError", status=500))
    with pytest.raises(Unavailable):
        open_ec2_provider().notices()


def test_reservation_unknown_to_ec2_hides_nothing_else(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    """A machine may outlive its reservation, which EC2 forgets some time after."""
    forgotten, block = f"cr-{cluster}-1", f"cr-{cluster}-2"
    aws.reserve(forgotten, "p5.48xlarge", 1)
    aws.reserve(block, "p5.48xlarge", 1, kind="capacity-block", ends_at=datetime.now(UTC) + timedelta(hours=3))
    offers = (Offer(capacity_reservation_id=forgotten), Offer(capacity_reservation_id=block))
    provider = open_ec2_provider(offers=offers, consistency_wait_s=0.0)
    first = provider.launch("n1", incident="inc", token="inc-1")
    second = provider.launch("n2", incident="inc", token="inc-2")
    aws.impair(first.instance_id, "system", AT)
    since = aws.last_call()
    aws.inject(
        ApiFault(
            "DescribeCapacityReservations",
            "InvalidCapacityReservationId.NotFound",
            times=2,
            where={"CapacityReservationId.1": forgotten},
        )
    )
    said = {(n.instance_id, n.code) for n in provider.notices()}
    assert said == {(first.instance_id, "system-status"), (second.instance_id, "capacity-block-end")}
    assert len(aws.calls("DescribeCapacityReservations", since)) == 3
    aws.inject(ApiFault("DescribeCapacityReservations", "UnauthorizedOperation", status=403))
    assert [n.code for n in provider.notices()] == ["system-status"]
