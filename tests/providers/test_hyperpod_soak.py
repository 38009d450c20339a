"""Random recoveries against an emulator that throttles, fails, loses answers and shows an old list."""

from __future__ import annotations

import random
import time

import boto3
import pytest

from holdfast.model.errors import Unavailable
from holdfast.practice.aws import REGION
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.faults import ApiFault
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.providers.hyperpod.adapter import HyperpodProvider
from holdfast.providers.hyperpod.settings import HyperpodSettings

SESSION = boto3.session.Session()
REPLACE = "BatchReplaceClusterNodes"
RECOVERIES = 40
FAULTS = (
    ApiFault("*", "ThrottlingException"),
    ApiFault("*", "InternalFailure", status=500),
    ApiFault("ListClusterNodes", "ServiceUnavailable", status=503),
    ApiFault(REPLACE, "InternalFailure", status=500, after=True),
    ApiFault(REPLACE, delay_s=0.4),
    ApiFault(REPLACE, delay_s=0.4, after=True),
)
"""Each hits one call. The last two are time-outs, before and after the effect: time-out of the client is 0.3 s."""
CODES = ("InternalServerError", "InvalidInstanceStatus", "InstanceIdInUse")


def disturb(pod: HyperpodControl, chance: random.Random, instance_id: str) -> None:
    pod.phases(list_lag_s=chance.choice([0.0, 0.05, 0.15]))
    for fault in chance.sample(FAULTS, k=chance.randint(0, 2)):
        pod.inject(fault)
    if chance.random() < 0.3:
        pod.refuse(instance_id, chance.choice(CODES), chance.randint(1, 2))
    if chance.random() < 0.1:
        pod.repair(instance_id, "replace")  # another client was faster


def recover(settings: HyperpodSettings, node: str, old: str) -> str:
    """A controller that forgets everything after each question; returns the new machine's id."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        provider = HyperpodProvider(settings, session=SESSION)
        try:
            shown = provider.replace(node, old, incident="inc", token="t")
        except Unavailable:
            shown = None
        if shown is not None and shown.instance_id != old and shown.state == "running":
            return shown.instance_id
        time.sleep(0.01)
    raise AssertionError(f"{node} was not replaced")


@pytest.mark.parametrize("seed", [1, 2])
def test_each_bad_machine_goes_once_and_no_other(aws: EmulatorControl, cluster: str, seed: int) -> None:
    chance = random.Random(seed)
    pod = HyperpodControl(aws.endpoint, cluster)
    pod.phases(shutting_down_s=0.05, pending_s=0.05, deep_check_s=0.0, list_lag_s=0.0)
    serving = pod.make([{"name": "gpu", "count": 4}])
    settings = HyperpodSettings(cluster, REGION, mode="lead", resource_config="", attempts=1, read_timeout_s=0.3)
    since, asked = pod.last_call(), list[str]()
    for _ in range(RECOVERIES // 2):
        node = chance.choice(sorted(serving))
        old = serving[node]
        disturb(pod, chance, old)
        serving[node] = recover(settings, node, old)
        asked.append(old)
        pod.clear()
    pod.phases(list_lag_s=0.0)
    effects = pod.effects(REPLACE, since)
    foreign = len(asked) - len(effects)  # replaced by another client before our call
    assert len(effects) == len(set(effects))
    assert set(effects) <= set(asked)
    assert 0 <= foreign < len(asked) // 2
    listed = HyperpodProvider(settings, session=SESSION).nodes()
    assert {node.node: node.instance_id for node in listed} == serving
