"""The EC2 provider when EC2 fails: over real HTTP against the emulator, effects counted there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from holdfast.model.errors import InsufficientCapacity, NotFound, NotPermitted, Rejected, Throttled, Unavailable
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.faults import FOREVER, ApiFault
from holdfast.practice.aws.seed import TEMPLATE, open_ec2, seed
from holdfast.providers import KINDS
from holdfast.providers.aws.instances import ASG_TAG
from holdfast.providers.ec2.adapter import Ec2Provider
from holdfast.providers.ec2.settings import Ec2Settings, Offer

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import TagTypeDef

Make = Callable[..., Ec2Provider]
FIRST, SECOND = Offer(instance_type="p5.48xlarge"), Offer(instance_type="p5en.48xlarge")
NO_FIRST = ApiFault(
    "RunInstances", "InsufficientInstanceCapacity", times=FOREVER, where={"InstanceType": "p5.48xlarge"}
)


def launch(provider: Ec2Provider) -> str:
    return provider.launch("n1", incident="inc", token="inc-1").instance_id


def runs(aws: EmulatorControl, since: int) -> list[str]:
    return aws.effects("RunInstances", since)


def test_next_offer_when_the_first_has_no_capacity(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    since = aws.last_call()
    aws.inject(NO_FIRST)
    made = launch(open_ec2_provider(offers=(FIRST, SECOND)))
    calls = aws.calls("RunInstances", since)
    assert [(c["parameters"]["InstanceType"], c["error"], c["effects"]) for c in calls] == [
        ("p5.48xlarge", "InsufficientInstanceCapacity", []),
        ("p5en.48xlarge", "", [made]),
    ]
    assert calls[0]["parameters"]["ClientToken"] != calls[1]["parameters"]["ClientToken"]


def test_capacity_that_returns_makes_no_second_machine(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    since = aws.last_call()
    aws.inject(NO_FIRST)
    made = launch(open_ec2_provider(offers=(FIRST, SECOND)))
    aws.clear()
    assert launch(open_ec2_provider(offers=(FIRST, SECOND))) == made
    assert runs(aws, since) == [made]


def test_no_offer_has_capacity(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    since = aws.last_call()
    aws.inject(ApiFault("RunInstances", "InsufficientInstanceCapacity", times=2))
    provider = open_ec2_provider(offers=(FIRST, SECOND))
    with pytest.raises(InsufficientCapacity) as caught:
        launch(provider)
    assert "p5.48xlarge" in str(caught.value)
    assert "p5en.48xlarge" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert runs(aws, since) == []
    made = launch(provider)  # the same token once there is capacity again
    assert runs(aws, since) == [made]


def test_throttling_is_ridden_out_by_retries(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    since = aws.last_call()
    aws.inject(ApiFault("RunInstances", "RequestLimitExceeded", status=503, times=1))
    made = launch(open_ec2_provider(attempts=3))
    assert len(aws.calls("RunInstances", since)) == 2
    assert runs(aws, since) == [made]


def test_throttling_that_goes_on_is_throttled(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    aws.inject(ApiFault("*", "RequestLimitExceeded", status=503, times=FOREVER))
    with pytest.raises(Throttled, match="RequestLimitExceeded"):
        open_ec2_provider().instance_of("n1")


def test_retries_are_bounded(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    since = aws.last_call()
    aws.inject(ApiFault("DescribeInstances", "InternalError", status=500, times=FOREVER))
    with pytest.raises(Unavailable):
        open_ec2_provider(attempts=2).instance_of("n1")
    assert len(aws.calls("DescribeInstances", since)) == 2


@pytest.mark.parametrize("action", ["RunInstances", "TerminateInstances", "RebootInstances", "CreateTags"])
def test_missing_permission_is_one_clear_line(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str, action: str
) -> None:
    ids = seed(aws.endpoint, cluster, ["n1"])
    provider = open_ec2_provider()
    aws.inject(ApiFault(action, "UnauthorizedOperation", "You are not authorized.\nEncoded: xyz", status=403))
    verbs: dict[str, Callable[[], object]] = {
        "RunInstances": lambda: launch(provider),
        "TerminateInstances": lambda: provider.terminate(ids["n1"]),
        "RebootInstances": lambda: provider.reboot(ids["n1"]),
        "CreateTags": lambda: provider.assign(ids["n1"], "n1"),
    }
    with pytest.raises(NotPermitted, match=f"{action}: UnauthorizedOperation: .*the role lacks") as caught:
        verbs[action]()
    assert "\n" not in str(caught.value)


def test_lost_answer_to_a_launch_makes_no_second_machine(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    since = aws.last_call()
    aws.inject(ApiFault("RunInstances", "InternalError", status=500, after=True))
    with pytest.raises(Unavailable):
        launch(open_ec2_provider())
    [made] = runs(aws, since)
    found = open_ec2_provider().find_launched("inc-1")
    assert found is not None
    assert found.instance_id == made
    assert launch(open_ec2_provider()) == made
    assert runs(aws, since) == [made]


def test_lost_answer_is_repeated_with_the_same_token_by_the_retries(
    aws: EmulatorControl, open_ec2_provider: Make
) -> None:
    since = aws.last_call()
    aws.inject(ApiFault("RunInstances", "InternalError", status=500, after=True))
    made = launch(open_ec2_provider(attempts=3))
    assert len(aws.calls("RunInstances", since)) == 2
    assert runs(aws, since) == [made]


def test_lost_launch_not_yet_visible_makes_no_second_machine(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    since = aws.last_call()
    aws.hide_new(3)
    aws.inject(ApiFault("RunInstances", "InternalError", status=500, after=True))
    with pytest.raises(Unavailable):
        launch(open_ec2_provider())
    restarted = open_ec2_provider()
    assert restarted.find_launched("inc-1") is None  # EC2 does not show it yet
    made = launch(restarted)
    assert runs(aws, since) == [made]


def test_slow_answer_is_unavailable_in_bounded_time(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    provider = open_ec2_provider(read_timeout_s=0.3)
    aws.inject(ApiFault("DescribeInstances", delay_s=20))
    began = time.monotonic()
    with pytest.raises(Unavailable, match="does not answer"):
        provider.instance_of("n1")
    assert time.monotonic() - began < 10


def test_nobody_listening_is_unavailable(open_ec2_provider: Make) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        open_ec2_provider(endpoint_url="http://127.0.0.1:9").instance_of("n1")


def test_just_launched_and_not_yet_visible(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    aws.hide_new(2)
    provider = open_ec2_provider()
    made = launch(provider)
    assert provider.instance(made).instance_id == made


def test_just_launched_and_not_visible_is_terminated_all_the_same(
    aws: EmulatorControl, open_ec2_provider: Make
) -> None:
    since = aws.last_call()
    aws.hide_new(2)
    made = launch(open_ec2_provider())
    open_ec2_provider().terminate(made)
    assert aws.effects("TerminateInstances", since) == [made]


def test_unknown_id_is_waited_for_once(aws: EmulatorControl, open_ec2_provider: Make) -> None:
    waits: list[float] = []
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += seconds

    settings = Ec2Settings("c", "us-east-1", TEMPLATE, attempts=1, consistency_wait_s=5.0)
    provider = Ec2Provider(settings, sleep=sleep, monotonic=lambda: now)
    for _ in range(2):
        with pytest.raises(NotFound):
            provider.instance("i-0123456789abcdef0")
    assert 5.0 <= sum(waits) <= 6.0


def test_impaired_machine_is_unhealthy(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, ["n1"])
    aws.impair(ids["n1"], "system")
    assert open_ec2_provider().instance(ids["n1"]).healthy is False


def test_health_that_cannot_be_asked_is_no_bad_news(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    ids = seed(aws.endpoint, cluster, ["n1"])
    aws.inject(ApiFault("DescribeInstanceStatus", "InternalError", status=500))
    with pytest.raises(Unavailable):
        open_ec2_provider().instance(ids["n1"])


def test_termination_protection_is_rejected_with_the_remedy(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    ids = seed(aws.endpoint, cluster, ["n1"])
    open_ec2(aws.endpoint).modify_instance_attribute(InstanceId=ids["n1"], DisableApiTermination={"Value": True})
    since = aws.last_call()
    with pytest.raises(Rejected, match="clear disableApiTermination"):
        open_ec2_provider().terminate(ids["n1"])
    assert aws.effects("TerminateInstances", since) == []


def test_machine_of_another_cluster_is_left_alone(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    ids = seed(aws.endpoint, f"{cluster}-other", ["n1"])
    since = aws.last_call()
    provider = open_ec2_provider()
    assert provider.instance_of("n1") is None
    for verb in (provider.terminate, provider.reboot, lambda i: provider.assign(i, "n1")):
        with pytest.raises(Rejected, match="left alone"):
            verb(ids["n1"])
    assert aws.effects("TerminateInstances", since) + aws.effects("RebootInstances", since) == []


def test_machine_of_an_auto_scaling_group_is_not_terminated(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    ids = seed(aws.endpoint, cluster, ["n1"])
    open_ec2(aws.endpoint).create_tags(Resources=[ids["n1"]], Tags=[{"Key": ASG_TAG, "Value": "gpus"}])
    with pytest.raises(Rejected, match="Auto Scaling group gpus"):
        open_ec2_provider().terminate(ids["n1"])


def test_two_machines_of_one_name_are_named(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, ["n1", "n2"])
    tag: TagTypeDef = {"Key": "holdfast:node", "Value": "n1"}
    open_ec2(aws.endpoint).create_tags(Resources=[ids["n2"]], Tags=[tag])
    with pytest.raises(Rejected) as caught:
        open_ec2_provider().instance_of("n1")
    assert ids["n1"] in str(caught.value)
    assert ids["n2"] in str(caught.value)


def test_assign_cut_in_the_middle_is_finished_by_the_next(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str
) -> None:
    seed(aws.endpoint, cluster, ["n1"])
    provider = open_ec2_provider()
    made = launch(provider)
    aws.inject(ApiFault("CreateTags", "InternalError", status=500, where={"ResourceId.1": made}))
    with pytest.raises(Unavailable):
        provider.assign(made, "n1")
    assert provider.instance_of("n1") is None  # none, never two
    provider.assign(made, "n1")
    serving = provider.instance_of("n1")
    assert serving is not None
    assert serving.instance_id == made


def test_doubled_launch_is_said_and_the_oldest_kept(
    aws: EmulatorControl, open_ec2_provider: Make, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = seed(aws.endpoint, cluster, ["n1", "n2"])
    tag: TagTypeDef = {"Key": "holdfast:token", "Value": "inc-1"}
    open_ec2(aws.endpoint).create_tags(Resources=list(ids.values()), Tags=[tag])
    with caplog.at_level(logging.WARNING):
        found = open_ec2_provider().find_launched("inc-1")
    assert found is not None
    [other] = set(ids.values()) - {found.instance_id}
    assert f"launch_doubled token=inc-1 kept={found.instance_id} terminate={other}" in caplog.text


def test_wrong_launch_template_is_rejected_by_name(open_ec2_provider: Make) -> None:
    with pytest.raises(Rejected, match="RunInstances: InvalidLaunchTemplateName"):
        launch(open_ec2_provider(launch_template="no-such-template"))


def test_many_machines_are_read_over_all_pages(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, [f"n{i}" for i in range(1, 8)])
    provider = open_ec2_provider(page_size=5)
    assert {n: getattr(provider.instance_of(n), "instance_id", None) for n in ids} == ids


def test_permissions_are_asked_by_dry_runs(aws: EmulatorControl, open_ec2_provider: Make, cluster: str) -> None:
    ids = seed(aws.endpoint, cluster, ["n1"])
    since = aws.last_call()
    aws.inject(ApiFault("TerminateInstances", "UnauthorizedOperation", status=403))
    asked = open_ec2_provider().permissions(ids["n1"])
    assert {action for action, obstacle in asked.items() if obstacle is not None} == {"TerminateInstances"}
    assert isinstance(asked["TerminateInstances"], NotPermitted)
    assert {f"ec2:{action}" for action in asked} == KINDS["ec2"].actions - {"iam:PassRole"}
    assert [call["effects"] for call in aws.calls(since=since)] == [[]] * len(asked)
    assert open_ec2_provider().instance(ids["n1"]).state == "running"
