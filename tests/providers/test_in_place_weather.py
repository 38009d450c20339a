"""Replacements in place and through groups, several nodes at once, under random faults and with restarts: always one machine per node."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.model.errors import OutsideError, Unavailable
from holdfast.ports import Provider
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.seed import seed, seed_group
from holdfast.providers.aws.instances import ASG_TAG, LIVE_STATES
from holdfast.providers.ec2.settings import Offer
from support.ec2_shown import machines, state_of, tags_of

NODES = [f"n{i}" for i in range(1, 5)]
ROUNDS = 2
"""Replacements of each node."""
BAD: dict[str, float] = {"throttled": 0.08, "errors": 0.08, "lost_answers": 0.08, "no_capacity": 0.25, "stale_s": 0.25}
QUICK: dict[str, Any] = {"consistency_wait_s": 0.4, "patience_s": 0.6}
OFFERS = (Offer(instance_type="p5.48xlarge"), Offer(instance_type="p5en.48xlarge"))


def live(aws: EmulatorControl, cluster: str) -> dict[str, list[str]]:
    """Node → ids of its live machines; an empty name is a machine of the group that has none."""
    found: dict[str, list[str]] = {}
    for instance_id, raw in machines(aws.endpoint).items():
        tags = tags_of(raw)
        ours = cluster in (tags.get("holdfast:cluster"), tags.get(ASG_TAG))
        if ours and state_of(raw) in LIVE_STATES:
            found.setdefault(tags.get("holdfast:node", ""), []).append(instance_id)
    return found


class Worker:
    """Replaces one node's machine repeatedly; from time to time its process is another one."""

    def __init__(self, node: str, old: str, make: Callable[[], Provider], number: int) -> None:
        self.node, self.old, self.make = node, old, make
        self.chance = random.Random(f"{node}-{number}")
        self.thread = threading.Thread(target=self.run)
        self.trouble: list[str] = []

    def run(self) -> None:
        for turn in range(ROUNDS):
            self.replace(f"{self.node}-inc-{turn}")

    def replace(self, token: str) -> None:
        deadline = time.monotonic() + 60
        provider = self.make()
        while time.monotonic() < deadline:
            try:
                self.old = provider.replace(self.node, self.old, incident="inc", token=token).instance_id
            except Unavailable:
                time.sleep(0.02)
                if self.chance.random() < 0.15:
                    provider = self.make()
            except OutsideError as error:
                self.trouble.append(f"{self.node}: {error!r}")
                return
            else:
                return
        self.trouble.append(f"{self.node}: not done in time")


@pytest.mark.slow
@pytest.mark.parametrize("number", [4])
@pytest.mark.parametrize("kind", ["ec2", "asg"])
def test_every_node_ends_with_one_machine_and_none_is_left(
    aws: EmulatorControl,
    open_ec2_provider: Callable[..., Provider],
    open_asg_provider: Callable[..., Provider],
    cluster: str,
    kind: str,
    number: int,
) -> None:
    shared: list[Provider] = []

    def make() -> Provider:
        """One process serves all nodes; a new one takes over all of them."""
        if kind == "ec2":
            return open_ec2_provider(launch_first=False, offers=OFFERS, **QUICK)
        if not shared:
            shared.append(open_asg_provider(**QUICK))
        return shared[0]

    ids = seed(aws.endpoint, cluster, NODES) if kind == "ec2" else seed_group(aws.endpoint, cluster, cluster, NODES)
    aws.delays(pending_s=0.1, shutting_down_s=0.2, relaunch_s=0.2)
    time.sleep(0.3)
    since = aws.last_call()
    aws.weather(number, **BAD)
    workers = [Worker(node, ids[node], make, number) for node in NODES]
    for worker in workers:
        worker.thread.start()
    for worker in workers:
        worker.thread.join(150)
    aws.clear()
    aws.delays(relaunch_s=0.0)
    assert [line for worker in workers for line in worker.trouble] == []
    assert {node: len(machines) for node, machines in live(aws, cluster).items()} == dict.fromkeys(NODES, 1)
    assert {worker.node: [worker.old] for worker in workers} == live(aws, cluster)
    ended = "TerminateInstances" if kind == "ec2" else "TerminateInstanceInAutoScalingGroup"
    assert Counter(aws.effects(ended, since)).total() == len(NODES) * ROUNDS
    if kind == "ec2":
        assert len(aws.effects("RunInstances", since)) == len(NODES) * ROUNDS
