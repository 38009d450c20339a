"""EC2 in a full reservation: the old machine goes first. Over real HTTP, cut off at every call."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.errors import InsufficientCapacity, NotFound, Rejected, Unavailable
from holdfast.model.machine import Instance
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.faults import FOREVER, ApiFault
from holdfast.practice.aws.seed import open_ec2, seed
from holdfast.providers.aws.instances import ASG_TAG
from holdfast.providers.ec2.adapter import Ec2Provider
from holdfast.providers.ec2.settings import Offer
from support.cut import CutError, cut_at
from support.ec2_shown import machines

Make = Callable[..., Ec2Provider]


def replace(provider: Ec2Provider, old: str, token: str = "inc-1", node: str = "n1") -> Instance:  # noqa: S107 - a name
    return provider.replace(node, old, incident="inc", token=token)


def until_done(provider: Ec2Provider, old: str, token: str = "inc-1") -> Instance:  # noqa: S107
    deadline = time.monotonic() + 15
    while True:
        try:
            return replace(provider, old, token)
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def serving(provider: Ec2Provider, node: str = "n1") -> str | None:
    found = provider.instance_of(node)
    return found.instance_id if found else None


def test_old_goes_and_the_new_one_serves_at_once(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    aws.delays(shutting_down_s=0.3)
    ids, provider = seed(aws.endpoint, cluster, ["n1", "n2"]), open_ec2_provider(launch_first=False)
    since = aws.last_call()
    made = replace(provider, ids["n1"])
    assert (made.node, made.incident) == ("n1", "inc")
    assert serving(provider) == made.instance_id != ids["n1"]
    ended = next(c["number"] for c in aws.calls("TerminateInstances", since))
    launched = next(c["number"] for c in aws.calls("RunInstances", since))
    assert ended < launched
    assert serving(provider, "n2") == ids["n2"]
    assert provider.on_trial() == ()


def test_nothing_is_launched_until_the_old_one_is_off(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    aws.delays(shutting_down_s=0.8)
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    provider, since = open_ec2_provider(launch_first=False, patience_s=0.1), aws.last_call()
    with pytest.raises(Unavailable, match="shutting-down, not off yet"):
        replace(provider, old)
    assert aws.calls("RunInstances", since) == []
    until_done(provider, old)
    assert len(aws.effects("RunInstances", since)) == len(aws.effects("TerminateInstances", since)) == 1


@pytest.mark.slow
def test_cut_at_any_call_it_is_finished_by_the_next_process(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    def make() -> Ec2Provider:
        return open_ec2_provider(launch_first=False, consistency_wait_s=0.0)

    number, finished = 0, False
    while not finished:
        number += 1
        old = seed(aws.endpoint, cluster, [f"n{number}"])[f"n{number}"]
        since, token, node = aws.last_call(), f"inc-{number}", f"n{number}"
        first = make()
        cut_at(number, [first._calls.client])
        try:
            replace(first, old, token, node)
            finished = True
        except CutError:
            pass
        made = replace(make(), old, token, node)
        assert aws.effects("TerminateInstances", since) == [old]
        assert aws.effects("RunInstances", since) == [made.instance_id]
        assert serving(make(), node) == made.instance_id
    assert number > 4


def test_no_place_for_the_new_one_is_asked_again_with_the_same_token(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    provider, since = open_ec2_provider(launch_first=False), aws.last_call()
    aws.inject(ApiFault("RunInstances", "ReservationCapacityExceeded", times=2))
    for _ in range(2):
        with pytest.raises(InsufficientCapacity, match="ReservationCapacityExceeded"):
            replace(provider, old)
    assert serving(provider) is None
    made = replace(open_ec2_provider(launch_first=False), old)
    assert aws.effects("RunInstances", since) == [made.instance_id]


def test_repeated_when_the_old_machine_is_long_forgotten(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    provider, since = open_ec2_provider(launch_first=False), aws.last_call()
    aws.inject(ApiFault("RunInstances", "InsufficientInstanceCapacity", times=1))
    with pytest.raises(InsufficientCapacity):
        replace(provider, old)
    aws.forget(old)
    made = replace(open_ec2_provider(launch_first=False, consistency_wait_s=0.1), old)
    assert serving(provider) == made.instance_id
    # An order of another token for the machine that is gone: the node has its new one already.
    with pytest.raises(NotFound, match=made.instance_id):
        replace(provider, old, "inc-2")
    assert aws.effects("RunInstances", since) == [made.instance_id]


def test_another_token_for_a_machine_that_is_gone_finds_its_successor(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    provider, since = open_ec2_provider(launch_first=False), aws.last_call()
    made = replace(provider, old)
    assert replace(provider, old, "inc-2").instance_id == made.instance_id
    assert aws.effects("RunInstances", since) == [made.instance_id]


@pytest.mark.parametrize("is_error", [False, True])
def test_successor_that_has_ended_needs_a_new_token(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str, is_error: bool
) -> None:
    aws.ended_launch(is_error=is_error)
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    provider = open_ec2_provider(launch_first=False)
    made = replace(provider, old)
    open_ec2(aws.endpoint).terminate_instances(InstanceIds=[made.instance_id])
    with pytest.raises(Rejected, match="a new attempt needs a new token"):
        replace(provider, old)
    assert replace(provider, made.instance_id, "inc-2").node == "n1"


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({"holdfast:node": "n9"}, "is n9's machine, not n1's: left alone"),
        ({"holdfast:node": ""}, "belongs to no node"),
        ({"holdfast:cluster": "another"}, "left alone"),
        ({ASG_TAG: "gpus"}, "belongs to Auto Scaling group gpus"),
    ],
)
def test_machine_that_is_not_the_nodes_is_left_alone(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str, tags: dict[str, str], words: str
) -> None:
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    changed: Any = [{"Key": key, "Value": value} for key, value in tags.items()]
    open_ec2(aws.endpoint).create_tags(Resources=[old], Tags=changed)
    since = aws.last_call()
    with pytest.raises(Rejected, match=words):
        replace(open_ec2_provider(launch_first=False), old)
    assert aws.effects("TerminateInstances", since) == aws.effects("RunInstances", since) == []


def test_node_with_two_machines_is_left_alone(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, ["n1", "n2"])
    open_ec2(aws.endpoint).create_tags(Resources=[ids["n2"]], Tags=[{"Key": "holdfast:node", "Value": "n1"}])
    since = aws.last_call()
    with pytest.raises(Rejected, match=f"served by {ids['n2']} in addition to"):
        replace(open_ec2_provider(launch_first=False), ids["n1"])
    assert aws.effects("TerminateInstances", since) == []


def test_protected_machine_stays_and_nothing_is_launched(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    open_ec2(aws.endpoint).modify_instance_attribute(InstanceId=old, DisableApiTermination={"Value": True})
    since = aws.last_call()
    with pytest.raises(Rejected, match="clear disableApiTermination"):
        replace(open_ec2_provider(launch_first=False), old)
    assert aws.calls("RunInstances", since) == []


def test_each_way_refuses_the_other(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    in_place, beside = open_ec2_provider(launch_first=False), open_ec2_provider()
    assert (in_place.can.launch_first, in_place.can.replace_in_place) == (False, True)
    assert (beside.can.launch_first, beside.can.replace_in_place) == (True, False)
    with pytest.raises(Rejected, match="launch_first is false"):
        in_place.launch("n1", incident="inc", token="inc-1")
    with pytest.raises(Rejected, match="launch_first is false"):
        in_place.terminate(old)
    with pytest.raises(Rejected, match="launch_first is true"):
        replace(beside, old)


def offer(reservation: str, market: str = "capacity-block") -> Offer:
    return Offer(market=market, capacity_reservation_id=reservation)


def test_block_near_its_end_is_passed_over_with_the_reason(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    soon, later = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, 72))
    ending, lasting = f"cr-{cluster}-1", f"cr-{cluster}-2"
    aws.reserve(ending, "p5.48xlarge", 4, kind="capacity-block", ends_at=soon)
    aws.reserve(lasting, "p5.48xlarge", 4, kind="capacity-block", ends_at=later)
    since = aws.last_call()
    provider = open_ec2_provider(offers=(offer(ending), offer(lasting)), consistency_wait_s=0.0)
    made = provider.launch("n1", incident="inc", token="inc-1")
    [call] = aws.calls("RunInstances", since)
    assert lasting in call["parameters"].values()
    assert call["effects"] == [made.instance_id]
    only = open_ec2_provider(offers=(offer(ending),))
    with pytest.raises(InsufficientCapacity, match=f"Capacity Block {ending} ends at .* too soon for a new machine"):
        only.launch("n2", incident="inc", token="inc-2")
    eager = open_ec2_provider(offers=(offer(ending),), block_margin_s=60.0)
    assert eager.launch("n2", incident="inc", token="inc-3").instance_id


def test_full_reservation_gives_way_to_the_next_offer(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    full = f"cr-{cluster}"
    aws.reserve(full, "p5.48xlarge", 1)
    provider = open_ec2_provider(offers=(offer(full, ""), Offer(market="spot")), consistency_wait_s=0.0)
    first = provider.launch("n1", incident="inc", token="inc-1")
    second = provider.launch("n2", incident="inc", token="inc-2")
    shown = {
        instance_id: (raw.get("CapacityReservationId"), raw.get("InstanceLifecycle"))
        for instance_id, raw in machines(aws.endpoint).items()
    }
    assert shown[first.instance_id] == (full, None)
    assert shown[second.instance_id] == (None, "spot")


def test_reservations_that_cannot_be_asked_stop_no_launch(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    aws.reserve(f"cr-{cluster}", "p5.48xlarge", 1)
    aws.inject(ApiFault("DescribeCapacityReservations", "UnauthorizedOperation", status=403, times=FOREVER))
    provider = open_ec2_provider(offers=(offer(f"cr-{cluster}", ""),))
    assert provider.launch("n1", incident="inc", token="inc-1").node == "n1"


def test_lost_answer_of_a_later_offer_makes_no_second_machine_of_an_earlier(
    aws: EmulatorControl, open_ec2_provider: Make
) -> None:
    first, second = Offer(instance_type="p5.48xlarge"), Offer(instance_type="p5en.48xlarge")
    since = aws.last_call()
    aws.inject(ApiFault("RunInstances", "InsufficientInstanceCapacity", where={"InstanceType": "p5.48xlarge"}))
    aws.inject(ApiFault("RunInstances", "InternalError", status=500, after=True))
    provider = open_ec2_provider(offers=(first, second), consistency_wait_s=0.0)
    with pytest.raises(Unavailable):
        provider.launch("n1", incident="inc", token="inc-1")
    aws.hide_new(0)
    [made] = aws.effects("RunInstances", since)
    aws.forget(made)  # EC2 does not show it yet, and the first offer has a machine again
    again = provider.launch("n1", incident="inc", token="inc-1")
    assert aws.effects("RunInstances", since) == [made] == [again.instance_id]


def test_machine_of_a_block_near_its_end_is_not_ended_for_nothing(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    old = seed(aws.endpoint, cluster, ["n1"])["n1"]
    block = f"cr-{cluster}"
    aws.reserve(block, "p5.48xlarge", 1, kind="capacity-block", ends_at=datetime.now(UTC) + timedelta(hours=1))
    since = aws.last_call()
    with pytest.raises(InsufficientCapacity, match=r"so its old one stays: .* too soon for a new machine"):
        replace(open_ec2_provider(launch_first=False, offers=(offer(block),)), old)
    assert aws.calls("TerminateInstances", since) == []


def test_reservation_that_is_over_or_forgotten_gives_way_to_the_next_offer(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    over = f"cr-{cluster}"
    aws.reserve(over, "p5.48xlarge", 1, state="cancelled")
    offers = (offer(over, ""), offer("cr-0123456789abcdef0", ""), Offer())
    made = open_ec2_provider(offers=offers, consistency_wait_s=0.0).launch("n1", incident="inc", token="inc-1")
    assert made.node == "n1"
