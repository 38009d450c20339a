"""The policies under docs/iam/: what the code calls is granted, nothing else is, and only on what is ours."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from holdfast.providers import KINDS
from holdfast.providers.aws.tags import TagKeys
from holdfast.providers.ec2.requests import run_request
from holdfast.providers.ec2.settings import Ec2Settings, Offer

ROOT = Path(__file__).parents[2]
IAM = ROOT / "docs" / "iam"
POLICIES = sorted(IAM.glob("*.json"))
SCRIPTS = [ROOT / "lifecycle-scripts" / name for name in ("lib/token.sh", "bootstrap.sh", "tokens.sh")]

WITHOUT_RESOURCES = {
    *(
        "ec2:DescribeInstances",
        "ec2:DescribeInstanceStatus",
        "ec2:DescribeSpotInstanceRequests",
        "ec2:DescribeCapacityReservations",
        "ec2:ReportInstanceStatus",
    ),
    *("autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"),
}
"""Actions that IAM grants for no particular resource (service authorization reference)."""
CHANGES_MACHINES = {
    *("ec2:RebootInstances", "ec2:StopInstances", "ec2:StartInstances", "ec2:TerminateInstances", "ec2:CreateTags"),
}
OPERATORS = {"Bool", "StringEquals", "StringEqualsIfExists", "ArnLike", "ForAllValues:StringEquals"}
WITH_RIGHTS = tuple(name for name, kind in KINDS.items() if kind.iam)
"""Providers with a policy."""


def statements(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((IAM / f"{name}.json").read_text())["Statement"]
    return found


def granted(name: str) -> set[str]:
    return {action for statement in statements(name) for action in statement["Action"]}


def sources_of(provider: str) -> list[str]:
    return [file.read_text() for file in (ROOT / "daemon/holdfast/providers" / provider).glob("*.py")]


@cache
def operations() -> dict[str, str]:
    """boto3's method → IAM action, of the services that the providers use, by botocore's own models."""
    botocore = pytest.importorskip("botocore")
    session = pytest.importorskip("botocore.session").get_session()
    return {
        botocore.xform_name(operation): f"{service}:{operation}"
        for service in ("ec2", "autoscaling", "sagemaker")
        for operation in session.get_service_model(service).operation_names
    }


def called(provider: str) -> set[str]:
    """What a provider's own files call, by boto3's method names, pagination included."""
    sources = sources_of(provider)
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    words = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get_paginator":
            words |= {
                argument.value
                for argument in node.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            }
    return {operations()[word] for word in words & operations().keys()}


@pytest.mark.slow
@pytest.mark.parametrize("provider", WITH_RIGHTS)
def test_what_the_code_calls_is_granted_and_nothing_else(provider: str) -> None:
    own = called(provider)
    assert own, "the calls are found"
    assert own <= granted(provider)
    shares = any("from holdfast.providers.aws." in source for source in sources_of(provider))
    borrowed = called("aws") if shares else set()
    assert granted(provider) - own - borrowed <= {"iam:PassRole"}


@pytest.mark.slow
def test_what_providers_on_aws_share_is_granted_where_all_of_it_is_used() -> None:
    assert called("aws")
    assert called("aws") <= granted("ec2")


@pytest.mark.parametrize("provider", WITH_RIGHTS)
def test_the_policy_grants_what_the_provider_says_that_it_needs(provider: str) -> None:
    assert granted(provider) == KINDS[provider].actions


def test_every_provider_of_aws_has_a_policy() -> None:
    assert {*WITH_RIGHTS, "node-enrolment", "head-settings", "tokens"} == {file.stem for file in POLICIES}


def scripts_call() -> dict[str, set[str]]:
    """Script → the calls of the aws command in it, as IAM actions."""
    found: dict[str, set[str]] = {}
    for script in SCRIPTS:
        calls = re.findall(r"(?:aws|from_aws) (ssm|secretsmanager|s3) ([a-z-]+)", script.read_text())
        named = {f"{service}:{''.join(word.capitalize() for word in verb.split('-'))}" for service, verb in calls}
        found[script.name] = {"s3:GetObject" if action == "s3:Cp" else action for action in named}
    return found


def test_enrolment_may_do_what_its_scripts_do() -> None:
    calls = scripts_call()
    no_keys = {action for action in granted("node-enrolment") if not action.startswith("kms:")}
    assert no_keys == calls["token.sh"] | calls["bootstrap.sh"]
    assert {action for action in granted("tokens") if not action.startswith("kms:")} == calls["tokens.sh"]


@pytest.mark.parametrize("name", ["node-enrolment", "tokens"])
def test_a_cluster_reaches_no_tokens_of_another(name: str) -> None:
    places = [
        s["Resource"] for s in statements(name) if {"ssm", "secretsmanager"} & {a.split(":")[0] for a in s["Action"]}
    ]
    assert len(places) == 2
    for place in places:
        ours = place.replace("CLUSTER", "gpu1")
        assert fnmatchcase(place.replace("CLUSTER", "gpu1").replace("*", "n1-AbCdEf"), ours)
        assert not fnmatchcase(place.replace("CLUSTER", "gpu2").replace("*", "n1-AbCdEf"), ours)
        assert not fnmatchcase(place.replace("CLUSTER", "gpu10").replace("*", "n1-AbCdEf"), ours)


def test_what_is_documented_names_the_cluster() -> None:
    texts = [ROOT / "lifecycle-scripts/holdfast.conf.example", *(ROOT / "docs").glob("*.md")]
    for file in texts:
        for place in re.findall(r"(?:ssm:/|secretsmanager:)holdfast[\w/{}-]*", file.read_text()):
            if not place.endswith("/"):
                assert re.search(r"holdfast(-head)?/(\{cluster\}|CLUSTER|training)", place), f"{file.name}: {place}"


def test_no_role_of_nodes_reads_the_heads_settings() -> None:
    """They hold the database's password. The head reads them by the same calls as a node its token, at another place."""
    own = {r for s in statements("head-settings") for r in [s["Resource"]]}
    assert granted("head-settings") == scripts_call()["token.sh"] | {"kms:Decrypt"}
    places = [r for r in own if ":kms:" not in r]
    assert len(places) == 2
    assert all("holdfast-head/" in place for place in places)
    for statement in statements("node-enrolment"):
        pattern = statement["Resource"]
        assert not any(fnmatchcase(place.replace("*", "x"), pattern) for place in places)


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_the_shape_is_iams(file: Path) -> None:
    policy = json.loads(file.read_text())
    assert set(policy) == {"Version", "Statement"}
    assert policy["Version"] == "2012-10-17"
    assert len(json.dumps(policy, separators=(",", ":"))) < 6144, "IAM's limit for a managed policy"
    sids = [statement["Sid"] for statement in policy["Statement"]]
    assert len(set(sids)) == len(sids)
    for statement in policy["Statement"]:
        assert set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        assert statement["Effect"] == "Allow"
        assert re.fullmatch(r"[A-Za-z0-9]+", statement["Sid"])
        assert statement["Action"] == sorted(set(statement["Action"]))
        assert all(re.fullmatch(r"[a-z0-9]+:[A-Z][A-Za-z]+", action) for action in statement["Action"]), "no wildcards"
        resources = [statement["Resource"]] if isinstance(statement["Resource"], str) else statement["Resource"]
        assert all(r == "*" or re.fullmatch(r"arn:aws:[a-z0-9-]+:[A-Z]*:[A-Z]*:[\w*/:.-]+", r) for r in resources)
        assert set(statement.get("Condition", {})) <= OPERATORS


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_everything_is_allowed_only_where_it_must_be(file: Path) -> None:
    for statement in statements(file.stem):
        actions, condition = set(statement["Action"]), json.dumps(statement.get("Condition", {}))
        if statement["Resource"] == "*":
            assert actions <= WITHOUT_RESOURCES
            assert '"REGION"' in condition
        if actions & CHANGES_MACHINES:
            assert re.search(
                r"(aws:ResourceTag|aws:RequestTag)/(holdfast:cluster|aws:autoscaling:groupName|parallelcluster:cluster-name)",
                condition,
            )
        if "ec2:CreateTags" in actions and "ec2:CreateAction" not in condition:
            assert "aws:TagKeys" in condition, "no other tag is touched"


LAUNCH_PARAMETERS = {
    "InstanceType": set[str](),  # a value, no resource
    "InstanceMarketOptions": set[str](),
    "SubnetId": {"subnet", "network-interface"},
    "CapacityReservationSpecification": {"capacity-reservation"},
}
"""What an offer puts in place of the template's value, and the resources that IAM asks for with it."""
TAKEN_FROM_THE_TEMPLATE = {"image", "key-pair", "security-group", "snapshot"}
"""With another of these an attacker with the actor's rights could run a program with the nodes' role, or reach the machine."""


def kinds(statement: dict[str, Any]) -> set[str]:
    resources = statement["Resource"]
    return {r.split(":")[5].partition("/")[0] for r in ([resources] if isinstance(resources, str) else resources)}


def test_a_launch_takes_image_key_and_rules_from_the_named_template_alone() -> None:
    launches = [s for s in statements("ec2") if s["Action"] == ["ec2:RunInstances"]]
    for statement in launches:
        assert list(statement["Condition"]["ArnLike"]) == ["ec2:LaunchTemplate"]
        held = statement["Condition"].get("Bool", {}) == {"ec2:IsLaunchTemplateResource": "true"}
        assert held == bool(kinds(statement) & TAKEN_FROM_THE_TEMPLATE)
        assert held == (kinds(statement) <= TAKEN_FROM_THE_TEMPLATE)
    assert set().union(*map(kinds, launches)) >= TAKEN_FROM_THE_TEMPLATE


def test_what_an_offer_overrides_is_not_held_to_the_template() -> None:
    """IAM would refuse the launch."""
    everything = Offer(
        instance_type="p5.48xlarge",
        subnet_id="subnet-0123456789abcdef0",
        market="spot",
        capacity_reservation_id="cr-0123456789abcdef0",
    )
    settings = Ec2Settings(cluster="c", region="us-east-1", launch_template="gpu")
    requests = [run_request(settings, o, node="n1", incident="i", token="t") for o in (Offer(), everything)]
    overridden = set(requests[1]) - set(requests[0])
    assert overridden == set(LAUNCH_PARAMETERS)
    assert not TAKEN_FROM_THE_TEMPLATE & set().union(*LAUNCH_PARAMETERS.values())


def test_the_tags_that_may_be_set_are_those_of_the_settings() -> None:
    keys = {"Name", *dataclasses.asdict(TagKeys()).values()}
    for name in ("ec2", "asg"):
        listed = [
            s["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"]
            for s in statements(name)
            if "ForAllValues:StringEquals" in s.get("Condition", {})
        ]
        assert [set(one) for one in listed] == [keys]


def test_the_page_names_every_policy_and_every_word_to_fill_in() -> None:
    page = (IAM / "README.md").read_text()
    for file in POLICIES:
        assert f"]({file.name})" in page
    words = {w for f in POLICIES for w in re.findall(r"\b[A-Z]{3,}(?:_[A-Z]+)?\b", f.read_text())}
    assert words == {"REGION", "ACCOUNT", "CLUSTER", "CLUSTER_ID", "TEMPLATE", "NODE_ROLE", "GROUP", "KEY_ID", "BUCKET"}
