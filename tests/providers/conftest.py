"""One emulator process for all tests of this folder; every test has a separate cluster name in it."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest

from holdfast.practice.aws import REGION, practice_env
from holdfast.practice.aws.client import EmulatorControl, running_emulator
from holdfast.practice.aws.seed import TEMPLATE, seed
from holdfast.providers.asg.adapter import AsgProvider
from holdfast.providers.asg.settings import AsgSettings
from holdfast.providers.command.settings import CommandSettings
from holdfast.providers.ec2.adapter import Ec2Provider
from holdfast.providers.ec2.settings import Ec2Settings

SESSION = boto3.session.Session()
"""Shared for speed: a further client of the same session takes 6 ms instead of 0.1 s."""
NUMBERS = itertools.count(1)
HERE = Path(__file__).parent
IPMI = HERE.parents[1] / "docs" / "examples" / "provider-ipmi.sh"
OpenEc2 = Callable[..., Ec2Provider]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``-m "not aws"`` is the fast part: no process is started."""
    for item in items:
        if "emulator" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.aws)


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorControl]:
    folder: Path = tmp_path_factory.mktemp("aws")
    with running_emulator(folder) as control:
        seed(control.endpoint, "template-only", [])
        yield control


@pytest.fixture
def aws(emulator: EmulatorControl, monkeypatch: pytest.MonkeyPatch) -> EmulatorControl:
    """The emulator without faults and without delays, and an environment in which boto3 can reach nothing else."""
    emulator.clear()
    emulator.delays(pending_s=0.0, initializing_s=0.0, shutting_down_s=0.0)
    for name, value in practice_env(emulator.endpoint).items():
        monkeypatch.setenv(name, value)
    return emulator


@pytest.fixture
def cluster() -> str:
    return f"c{next(NUMBERS)}"


@pytest.fixture
def open_ec2_provider(aws: EmulatorControl, cluster: str) -> OpenEc2:
    """Makes a provider as a freshly started controller would: short time-outs, one attempt unless said otherwise."""

    def make(**changes: Any) -> Ec2Provider:
        given: dict[str, Any] = {
            "cluster": cluster,
            "region": REGION,
            "launch_template": TEMPLATE,
            "attempts": 1,
            "read_timeout_s": 5.0,
            "consistency_wait_s": 0.6,
            "patience_s": 3.0,
        }
        return Ec2Provider(Ec2Settings(**given | changes), session=SESSION)

    return make


@pytest.fixture
def open_asg_provider(aws: EmulatorControl, cluster: str) -> Callable[..., AsgProvider]:
    """The same for the group that is called as the cluster."""
    aws.delays(relaunch_s=0.05)

    def make(**changes: Any) -> AsgProvider:
        given: dict[str, Any] = {
            "cluster": cluster,
            "region": REGION,
            "groups": (cluster,),
            "attempts": 1,
            "read_timeout_s": 5.0,
            "consistency_wait_s": 0.2,
            "patience_s": 3.0,
        }
        return AsgProvider(AsgSettings(**given | changes), session=SESSION)

    return make


@pytest.fixture(scope="session")
def site_module() -> ModuleType:
    """``site_script.py`` as a module, so that tests can make and inspect the site behind it."""
    spec = importlib.util.spec_from_file_location("holdfast_site_script", HERE / "site_script.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, slots=True)
class Bmcs:
    """BMCs in a folder, ``bmc1`` of n1 and ``bmc10`` of n10, behind the shipped example script and a fake ``ipmitool``."""

    folder: Path
    settings: CommandSettings

    def set(self, bmc: str, state: str) -> None:
        """``on``, ``off``, or the line with which ipmitool fails."""
        (self.folder / bmc).write_text(f"{state}\n", encoding="utf-8")

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def bmcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bmcs:
    for name in ("bin", "bmcs", "state"):
        (tmp_path / name).mkdir()
    shutil.copy(HERE / "fake_ipmitool.sh", tmp_path / "bin" / "ipmitool")
    (tmp_path / "hosts").write_text(
        "# node bmc asset\nn1 bmc1 asset-1\n\nn10 bmc10 asset-10 # spare\nn3 bmc3 # no tag\n"
    )
    (tmp_path / "password").write_text("secret\n")
    env = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "FAKE_BMCS": str(tmp_path / "bmcs"),
        "HOLDFAST_IPMI_HOSTS": str(tmp_path / "hosts"),
        "HOLDFAST_IPMI_PASSWORD_FILE": str(tmp_path / "password"),
        "HOLDFAST_IPMI_STATE": str(tmp_path / "state"),
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    made = Bmcs(tmp_path / "bmcs", CommandSettings("c", (str(IPMI),)))
    (made.folder / "calls").touch()
    for bmc in ("bmc1", "bmc3", "bmc10"):
        made.set(bmc, "on")
    return made
