"""One emulator process for all tests of this folder; every test has a cluster name of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from holdfast.practice.aws import REGION, practice_env
from holdfast.practice.aws.client import EmulatorControl, running_emulator
from holdfast.practice.aws.seed import TEMPLATE, seed
from holdfast.providers.ec2 import Ec2Provider
from holdfast.providers.settings import Ec2Settings

SESSION = boto3.session.Session()
"""Shared for speed: a further client of the same session takes 6 ms instead of 0.1 s."""
NUMBERS = itertools.count(1)
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
        }
        return Ec2Provider(Ec2Settings(**given | changes), session=SESSION)

    return make
