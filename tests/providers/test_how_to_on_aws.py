"""The how-to pages of AWS against the emulator: provider and doctor find machines by the pages' tags and settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config.controller import ControllerSettings, read
from holdfast.doctor.gather.provider_edge import examine
from holdfast.practice.aws import REGION
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.faults import ApiFault
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.practice.aws.seed import TEMPLATE, open_ec2, seed, seed_group
from holdfast.providers.registry import open_provider

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def settings(name: str, number: int, change: Callable[[str], str], folder: Path) -> ControllerSettings:
    """A block of settings of the page, with the emulator's address."""
    for file in ("tls.pem", "tls.key"):
        (folder / file).touch()
    text = re.findall(r"^```toml\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)[number]
    return read(tomllib.loads(change(text.replace("/etc/holdfast", str(folder)))), folder / "controller.toml")


def test_ec2_by_the_tags_and_settings_of_the_page(aws: EmulatorControl, cluster: str, tmp_path: Path) -> None:
    """A machine that was there before gets its tags by the page's command; then it is node n1's, and every right is found."""
    (machine,) = seed(aws.endpoint, "nobodys", ["x"]).values()
    command = re.search(r"^aws ec2 create-tags --resources \S+ --tags (.*)$", page("how-to-ec2.md"), re.MULTILINE)
    assert command is not None
    tags = dict(re.findall(r"Key=(\S+),Value=(\S+)", command[1].replace("gpu1", cluster)))
    open_ec2(aws.endpoint).create_tags(Resources=[machine], Tags=[{"Key": k, "Value": v} for k, v in tags.items()])

    def change(text: str) -> str:
        named = text.replace("gpu1", cluster).replace("gpu-node", TEMPLATE).replace("us-west-2", REGION)
        return re.sub(r"^offers = \[.*?^\]\n", "", named, flags=re.MULTILINE | re.DOTALL)

    found = settings("how-to-ec2.md", 0, change, tmp_path)
    provider = open_provider(found.provider, found.provider_settings)
    node = provider.instance_of("n1")
    assert node is not None
    assert node.instance_id == machine
    told = examine(provider, ("n1",))
    assert (told.problem, told.denied, told.refused) == ("", {}, {})
    aws.inject(ApiFault("RunInstances", "UnauthorizedOperation", status=403))
    assert set(examine(provider, ("n1",)).denied) == {"RunInstances"}


def test_auto_scaling_by_the_settings_of_the_page(aws: EmulatorControl, cluster: str, tmp_path: Path) -> None:
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1", "n2"])
    names = {"gpu1": cluster, "gpu-nodes": cluster, "us-west-2": REGION}
    found = settings("how-to-ec2.md", 1, lambda text: re.sub("|".join(names), lambda m: names[m[0]], text), tmp_path)
    provider = open_provider(found.provider, found.provider_settings)
    node = provider.instance_of("n2")
    assert node is not None
    assert node.instance_id == ids["n2"]
    told = examine(provider, ("n1",))
    assert (told.problem, told.denied, told.refused) == ("", {}, {})


@pytest.mark.parametrize(
    ("mode", "recovery", "repairs"),
    [("observe", "Automatic", True), ("observe", "None", True), ("lead", "Automatic", True), ("lead", "None", False)],
)
def test_hyperpod_by_the_settings_of_the_page(
    aws: EmulatorControl, cluster: str, tmp_path: Path, mode: str, recovery: str, repairs: bool
) -> None:
    pod = HyperpodControl(aws.endpoint, cluster)
    pod.phases(shutting_down_s=0.0, pending_s=0.0, deep_check_s=0.0, rebooting_s=0.0, list_lag_s=0.0)
    groups = [{"name": "head", "count": 1, "node_type": "Controller"}, {"name": "gpu", "count": 2}]
    (name, machine), *_ = pod.make(groups, node_recovery=recovery).items()
    found = settings(
        "how-to-hyperpod.md",
        0,
        lambda text: text.replace("training", cluster).replace("us-west-2", REGION).replace('"observe"', f'"{mode}"'),
        tmp_path,
    )
    provider = open_provider(found.provider, found.provider_settings)
    node = provider.instance_of(name)
    assert node is not None
    assert node.instance_id == machine
    told = examine(provider, (name,))
    assert (told.problem, told.denied, told.refused, told.repairs) == ("", {}, {}, repairs)
    aws.inject(ApiFault("ListClusterNodes", "AccessDeniedException", status=400, times=9))
    assert examine(open_provider(found.provider, found.provider_settings), (name,)).denied
