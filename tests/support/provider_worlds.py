"""The providers of the contract suite, each with its simulated backend: ``WORLDS``. A new provider is one line there.

Fixtures of ``tests/providers/conftest.py`` are requested by name."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.ports import Provider
from holdfast.practice.aws import REGION
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.practice.aws.seed import seed, seed_group
from holdfast.practice.cluster import rack
from holdfast.providers import CommandSettings, HyperpodSettings, ParallelClusterSettings, open_provider
from support.clustermgtd import ClusterManager
from support.parallelcluster import EmulatedFleet, SimGround
from support.simulated.clock import SimClock
from support.simulated.slurm import PowerSaving, SimSlurm

SCRIPT = Path(__file__).parents[1] / "providers" / "site_script.py"


@dataclass(frozen=True, slots=True)
class World:
    """One provider and its simulated backend."""

    provider: Provider
    restart: Callable[[], Provider]
    """The same provider as a restarted process would have it."""
    serving: Mapping[str, str] = field(default_factory=dict)
    """Node → id of the machine that serves it."""
    launched: Callable[[], int] = lambda: 0
    """Machines actually launched or replaced since the test began, counted outside the provider."""
    terminated: Callable[[], int] = lambda: 0
    rebooted: Callable[[], int] = lambda: 0
    stopped: Callable[[], int] = lambda: 0
    settle: Callable[[], None] = lambda: None
    """What the backend does without a call while the provider waits."""


def open_none(_: pytest.FixtureRequest) -> World:
    return World(open_provider("none"), lambda: open_provider("none"))


def open_ec2(request: pytest.FixtureRequest, *, launch_first: bool) -> World:
    aws: EmulatorControl = request.getfixturevalue("aws")
    open_provider = request.getfixturevalue("open_ec2_provider")

    def make() -> Provider:
        return cast("Provider", open_provider(launch_first=launch_first))

    ids = seed(aws.endpoint, request.getfixturevalue("cluster"), ["n1", "n10"])
    since = aws.last_call()

    def count(action: str) -> Callable[[], int]:
        return lambda: len(aws.effects(action, since))

    launched, terminated, rebooted = count("RunInstances"), count("TerminateInstances"), count("RebootInstances")
    return World(make(), make, ids, launched, terminated, rebooted, count("StopInstances"))


def open_asg(request: pytest.FixtureRequest) -> World:
    """A group with a machine per node; it launches missing ones automatically. More is in test_asg.py."""
    aws: EmulatorControl = request.getfixturevalue("aws")
    cluster: str = request.getfixturevalue("cluster")
    make = request.getfixturevalue("open_asg_provider")
    ids = seed_group(aws.endpoint, cluster, cluster, ["n1", "n10"])
    since = aws.last_call()

    def ended() -> int:
        return len(aws.effects("TerminateInstanceInAutoScalingGroup", since))

    return World(make(), make, ids, launched=ended, rebooted=lambda: len(aws.effects("RebootInstances", since)))


def open_site(request: pytest.FixtureRequest, mode: str) -> World:
    """The provider ``command`` over a site's script."""
    site: Any = request.getfixturevalue("site_module")
    file: Path = request.getfixturevalue("tmp_path") / "site.json"
    ids = {"n1": "rack1-u1", "n10": "rack1-u10"}
    site.new_site(file, ids)
    command = (sys.executable, "-I", "-S", str(SCRIPT), str(file), mode)

    def make() -> Provider:
        return open_provider("command", CommandSettings("c", command))

    def count(*verbs: str) -> Callable[[], int]:
        return lambda: sum(len(site.effects(file, verb)) for verb in verbs)

    replaced, stopped = count("launch", "replace"), count("stop_start")
    return World(make(), make, ids, replaced, count("terminate"), count("reboot"), stopped)


def open_rack(request: pytest.FixtureRequest) -> World:
    """The provider ``command`` over the practice's rack, which carries out orders during waits."""
    folder: Path = request.getfixturevalue("tmp_path")
    (folder / "etc").mkdir()
    site = rack.Rack(folder)
    ids = site.fill(["n1", "n10"])
    command = (sys.executable, "-I", "-S", str(rack.__file__), str(folder))

    def make() -> Provider:
        return open_provider("command", CommandSettings("c", command))

    def count(verb: str) -> Callable[[], int]:
        return lambda: sum(order["verb"] == verb for order in site.orders())

    def settle() -> None:
        for number, order in enumerate(site.orders()):
            if "done_at" not in order:
                site.done(number)

    return World(make(), make, ids, launched=count("replace"), rebooted=count("reboot"), settle=settle)


def open_ipmi(request: pytest.FixtureRequest) -> World:
    """The provider ``command`` over the shipped example for BMCs."""
    bmcs = request.getfixturevalue("bmcs")

    def make() -> Provider:
        return open_provider("command", bmcs.settings)

    def cycles() -> int:
        return sum(call.endswith("power cycle") for call in bmcs.calls())

    return World(make(), make, {"n1": "asset-1", "n10": "asset-10"}, rebooted=cycles)


def open_hyperpod(request: pytest.FixtureRequest) -> World:
    """Nodes by their instance names, as the file on Holdfast's own node lists them. More is in test_hyperpod.py."""
    aws: EmulatorControl = request.getfixturevalue("aws")
    cluster: str = request.getfixturevalue("cluster")
    pod = HyperpodControl(aws.endpoint, cluster)
    pod.phases(shutting_down_s=0.2, pending_s=0.2, deep_check_s=0.0, rebooting_s=0.2, list_lag_s=0.0)
    ids = dict(zip(("n1", "n10"), pod.make([{"name": "gpu", "count": 2}]).values(), strict=True))
    file: Path = request.getfixturevalue("tmp_path") / "resource_config.json"

    def write_config() -> None:
        text = json.dumps(pod.resource_config())
        file.write_text(text.replace('"gpu-1"', '"n1"').replace('"gpu-2"', '"n10"'))

    write_config()
    settings = HyperpodSettings(cluster, REGION, mode="lead", resource_config=str(file), node_names="instance")

    def make() -> Provider:
        return open_provider("hyperpod", settings)

    since = aws.last_call()

    def count(action: str) -> Callable[[], int]:
        return lambda: len(aws.effects(action, since))

    replaced, rebooted = count("BatchReplaceClusterNodes"), count("BatchRebootClusterNodes")
    return World(make(), make, ids, launched=replaced, rebooted=rebooted, settle=write_config)


def open_parallelcluster(request: pytest.FixtureRequest) -> World:
    """A simulated Slurm, EC2 over HTTP, and between the two the look-alike of clustermgtd. More is in test_parallelcluster*.py."""
    aws: EmulatorControl = request.getfixturevalue("aws")
    cluster: str = request.getfixturevalue("cluster")
    slurm = SimSlurm(SimClock(), ("n1", "n10"))
    slurm.saving = PowerSaving()
    ground = SimGround(slurm, EmulatedFleet(aws.endpoint, cluster))
    for name in slurm.nodes:
        ground.launch(name)
    manager = ClusterManager(ground, lambda: datetime.now(UTC), time.monotonic)
    backing = ground.backing()
    ids = {name: backing[slurm.addresses[name]].instance_id for name in slurm.nodes}
    settings = ParallelClusterSettings(cluster, REGION, attempts=1)

    def make() -> Provider:
        return open_provider("parallelcluster", settings, scheduler=slurm)

    def settle() -> None:
        """Slurm's power saving, then clustermgtd: it terminates the machine in one turn, and launches another in the next."""
        slurm.step(lambda _node: True)
        for _ in range(2):
            manager.turn()
        for name in slurm.nodes:
            slurm.nodes[name].power = ""
            ground.registers(name)

    def asked() -> int:
        return sum(verb == "power_down" for verb, _ in slurm.calls)

    return World(make(), make, ids, launched=asked, settle=settle)


@dataclass(frozen=True, slots=True)
class Opening:
    """How a world is opened, and what its provider must be able to do there."""

    open: Callable[[pytest.FixtureRequest], World]
    does: frozenset[str]
    marks: tuple[pytest.MarkDecorator, ...] = ()


def does(*what: str) -> frozenset[str]:
    return frozenset(what)


SLOW = (pytest.mark.slow,)
MEMORY = frozenset({"reboot by token", "in place by token", "on trial"})
"""What a provider remembers, in addition to its ``can``: a token, and which machines are on trial."""
WORLDS = {
    "none": Opening(open_none, does()),
    "ec2": Opening(
        lambda request: open_ec2(request, launch_first=True),
        does("status", "reboot", "launch first", "stop and start", "on trial"),
        (pytest.mark.aws,),
    ),
    "ec2, in place": Opening(
        lambda request: open_ec2(request, launch_first=False),
        does("status", "reboot", "in place", "in place by token", "stop and start"),
        (pytest.mark.aws,),
    ),
    "asg": Opening(open_asg, does("status", "reboot", "in place", "in place by token"), (pytest.mark.aws,)),
    "command, launch first": Opening(
        lambda request: open_site(request, "launch"), does("status", "reboot", "reboot by token", "launch first"), SLOW
    ),
    "command, in place": Opening(
        lambda request: open_site(request, "in-place"),
        does("status", "reboot", "reboot by token", "stop and start", "in place", "in place by token"),
        SLOW,
    ),
    "command, rack": Opening(
        open_rack, does("status", "reboot", "reboot by token", "in place", "in place by token"), SLOW
    ),
    "hyperpod": Opening(open_hyperpod, does("status", "reboot", "in place"), (pytest.mark.aws,)),
    "parallelcluster": Opening(open_parallelcluster, does("status", "in place"), (pytest.mark.aws,)),
    "command, ipmi": Opening(open_ipmi, does("status", "reboot", "reboot by token"), SLOW),
}
