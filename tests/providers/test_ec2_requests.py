"""What is sent to EC2 and how answers read. No network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.errors import ConfigError, NotFound, Rejected
from holdfast.model.machine import MetadataOptions
from holdfast.providers import Ec2Settings, Offer, TagKeys, open_provider
from holdfast.providers.aws.instances import judge_status, read_instance, read_metadata_options, serves
from holdfast.providers.ec2.requests import CLIENT_TOKEN_MAX, TOKEN_MAX, client_token, run_request

SETTINGS = Ec2Settings(cluster="c", region="us-east-1", launch_template="gpu")
KEYS = TagKeys()


def raw(state: str = "running", **tags: str) -> Any:
    return {
        "InstanceId": "i-1",
        "State": {"Name": state},
        "Tags": [{"Key": f"holdfast:{k}", "Value": v} for k, v in tags.items()],
    }


def test_token_belongs_to_the_offer_not_to_its_place() -> None:
    first, second = Offer(subnet_id="subnet-a"), Offer(subnet_id="subnet-b")
    ab, ba = replace(SETTINGS, offers=(first, second)), replace(SETTINGS, offers=(second, first))
    assert client_token("t", ab, first) == client_token("t", ba, first)
    assert client_token("t", ab, first) != client_token("t", ab, second)
    assert client_token("t", ab, first) != client_token("u", ab, first)


def test_longest_token_fits_ec2() -> None:
    assert len(client_token("t" * TOKEN_MAX, SETTINGS, Offer())) == CLIENT_TOKEN_MAX


@pytest.mark.parametrize("token", ["", "t" * (TOKEN_MAX + 1), "tökn", "a\nb"])
def test_token_that_ec2_would_refuse_is_rejected_here(token: str) -> None:
    with pytest.raises(Rejected, match="launch token"):
        client_token(token, SETTINGS, Offer())


def test_request_sends_only_what_the_offer_overrides() -> None:
    plain = run_request(SETTINGS, Offer(), node="n1", incident="inc", token="t")
    assert plain["LaunchTemplate"] == {"LaunchTemplateName": "gpu", "Version": "$Default"}
    assert not {"InstanceType", "SubnetId", "InstanceMarketOptions", "CapacityReservationSpecification"} & set(plain)


def test_request_of_a_full_offer() -> None:
    offer = Offer("p5.48xlarge", "subnet-a", "lt-0123456789abcdef0", "7", "capacity-block", "cr-1")
    request: Any = run_request(SETTINGS, offer, node="n1", incident="inc", token="t")
    assert request["LaunchTemplate"] == {"LaunchTemplateId": "lt-0123456789abcdef0", "Version": "7"}
    assert (request["InstanceType"], request["SubnetId"]) == ("p5.48xlarge", "subnet-a")
    assert request["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert request["CapacityReservationSpecification"]["CapacityReservationTarget"] == {"CapacityReservationId": "cr-1"}


def test_tags_are_set_in_the_launch_itself() -> None:
    request: Any = run_request(SETTINGS, Offer(), node="n1", incident="inc", token="t")
    [spec] = request["TagSpecifications"]
    assert {t["Key"]: t["Value"] for t in spec["Tags"]} == {
        "Name": "n1",
        "holdfast:cluster": "c",
        "holdfast:node": "n1",
        "holdfast:incident": "inc",
        "holdfast:token": "t",
        "holdfast:role": "candidate",
    }


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        (raw(node="n1"), True),
        (raw(node="n1", role="serving"), True),
        (raw("pending", node="n1"), True),
        (raw("stopped", node="n1"), True),
        (raw(node="n1", role="candidate"), False),
        (raw(node="n1", role="retired"), False),
        (raw("terminated", node="n1"), False),
        (raw("shutting-down", node="n1"), False),
        (raw(node="n10"), False),
        (raw(), False),
    ],
)
def test_who_serves_a_node(instance: Any, expected: bool) -> None:
    assert serves(instance, KEYS, "n1") is expected


@pytest.mark.parametrize(
    ("system", "instance", "ebs", "healthy"),
    [
        ("ok", "ok", None, True),
        ("ok", "ok", "ok", True),
        ("impaired", "ok", None, False),
        ("ok", "impaired", None, False),
        ("ok", "ok", "impaired", False),
        ("initializing", "impaired", None, False),
        ("initializing", "initializing", None, None),
        ("ok", "initializing", None, None),
        ("insufficient-data", "ok", None, None),
        ("not-applicable", "not-applicable", None, None),
        (None, None, None, None),
    ],
)
def test_status_checks_are_three_valued(
    system: str | None, instance: str | None, ebs: str | None, healthy: bool | None
) -> None:
    parts = {"SystemStatus": system, "InstanceStatus": instance, "AttachedEbsStatus": ebs}
    status: Any = {name: {"Status": word} for name, word in parts.items() if word is not None}
    assert judge_status(status) is healthy


def test_bare_answer_reads_as_unknown_not_as_bad() -> None:
    seen = read_instance({"InstanceId": "i-1"}, KEYS)
    assert (seen.node, seen.state, seen.healthy, seen.launched_at, seen.incident) == ("", "pending", None, None, "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster": ""}, "cluster is empty"),
        ({"launch_template": ""}, "launch_template is empty"),
        ({"offers": ()}, "offers is empty"),
        ({"attempts": 0}, "attempts is 0"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(SETTINGS, **changes)


def test_wrong_market_is_named() -> None:
    with pytest.raises(ConfigError, match="'spott'"):
        Offer(market="spott")


def test_unknown_provider_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean ec2"):
        open_provider("ec3")
    with pytest.raises(ConfigError, match="there are: none, ec2"):
        open_provider("toaster")
    with pytest.raises(ConfigError, match="launch_template"):
        open_provider("ec2")


def test_none_knows_nothing_and_refuses_everything() -> None:
    none = open_provider("none")
    assert not any((none.can.reboot, none.can.replace, none.can.launch_first, none.can.status))
    assert none.can.power_off_confirmed is False
    assert none.instance_of("n1") is None
    assert none.find_launched("t") is None
    with pytest.raises(NotFound):
        none.instance("i-1")
    with pytest.raises(Rejected, match="launch a machine for n1"):
        none.launch("n1", incident="inc", token="t")
    with pytest.raises(Rejected, match="by hand"):
        none.terminate("i-1")
    with pytest.raises(Rejected, match="reboot i-1"):
        none.reboot("i-1")
    with pytest.raises(Rejected, match="hand n1 over"):
        none.assign("i-1", "n1")


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({"HttpTokens": "required", "HttpPutResponseHopLimit": 1}, MetadataOptions(tokens_required=True, hop_limit=1)),
        ({"HttpTokens": "optional", "HttpPutResponseHopLimit": 2}, MetadataOptions(tokens_required=False, hop_limit=2)),
        ({"HttpTokens": "optional", "HttpPutResponseHopLimit": 2, "HttpEndpoint": "disabled"}, None),
        ({"HttpTokens": "required"}, None),
        ({}, None),
    ],
)
def test_how_the_metadata_is_served(options: Any, read: MetadataOptions | None) -> None:
    said = raw() | {"MetadataOptions": options}
    assert read_metadata_options(said) == read
    assert read_metadata_options(raw()) is None
