"""What every provider promises, run against each one for what it says it ``can``. EC2 over real HTTP, scripts as processes.

A new provider is one line in ``WORLDS``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import NotFound, Rejected
from holdfast.model.machine import Instance
from holdfast.ports import Provider
from holdfast.practice.aws import REGION
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.practice.aws.seed import seed
from holdfast.providers import PROVIDERS, CommandSettings, HyperpodSettings, open_provider

HERE = Path(__file__).parent
UNKNOWN_ID = "i-0123456789abcdef0"


@dataclass(frozen=True, slots=True)
class World:
    """One provider and what stands behind it."""

    provider: Provider
    restart: Callable[[], Provider]
    """The same provider as a process started again would have it."""
    serving: Mapping[str, str] = field(default_factory=dict)
    """Node → id of the machine that serves it."""
    launched: Callable[[], int] = lambda: 0
    """Machines really launched or replaced since the test began, counted outside the provider."""
    terminated: Callable[[], int] = lambda: 0
    rebooted: Callable[[], int] = lambda: 0


def open_none(_: pytest.FixtureRequest) -> World:
    return World(open_provider("none"), lambda: open_provider("none"))


def open_ec2(request: pytest.FixtureRequest) -> World:
    aws: EmulatorControl = request.getfixturevalue("aws")
    make = request.getfixturevalue("open_ec2_provider")
    ids = seed(aws.endpoint, request.getfixturevalue("cluster"), ["n1", "n10"])
    since = aws.last_call()

    def count(action: str) -> Callable[[], int]:
        return lambda: len(aws.effects(action, since))

    return World(make(), make, ids, count("RunInstances"), count("TerminateInstances"), count("RebootInstances"))


def open_site(request: pytest.FixtureRequest, mode: str) -> World:
    """The provider ``command`` over a site's script."""
    site: Any = request.getfixturevalue("site_module")
    file: Path = request.getfixturevalue("tmp_path") / "site.json"
    ids = {"n1": "rack1-u1", "n10": "rack1-u10"}
    site.new_site(file, ids)
    command = (sys.executable, "-I", "-S", str(HERE / "site_script.py"), str(file), mode)

    def make() -> Provider:
        return open_provider("command", CommandSettings("c", command))

    def count(*verbs: str) -> Callable[[], int]:
        return lambda: sum(len(site.effects(file, verb)) for verb in verbs)

    return World(make(), make, ids, count("launch", "replace"), count("terminate"), count("reboot"))


def open_ipmi(request: pytest.FixtureRequest) -> World:
    """The provider ``command`` over the shipped example for BMCs."""
    bmcs = request.getfixturevalue("bmcs")

    def make() -> Provider:
        return open_provider("command", bmcs.settings)

    def cycles() -> int:
        return sum(call.endswith("power cycle") for call in bmcs.calls())

    return World(make(), make, {"n1": "asset-1", "n10": "asset-10"}, rebooted=cycles)


def open_hyperpod(request: pytest.FixtureRequest) -> World:
    """Nodes by their instance names. Its replacement in place is keyed by the machine: see test_hyperpod.py."""
    aws: EmulatorControl = request.getfixturevalue("aws")
    cluster: str = request.getfixturevalue("cluster")
    pod = HyperpodControl(aws.endpoint, cluster)
    ids = dict(zip(("n1", "n10"), pod.make([{"name": "gpu", "count": 2}]).values(), strict=True))
    instances = [{"InstanceName": node, "InstanceId": instance_id} for node, instance_id in ids.items()]
    config = {"ClusterConfig": {"ClusterName": cluster}, "InstanceGroups": [{"Instances": instances}]}
    file: Path = request.getfixturevalue("tmp_path") / "resource_config.json"
    file.write_text(json.dumps(config))
    settings = HyperpodSettings(cluster, REGION, mode="lead", resource_config=str(file), node_names="instance")

    def make() -> Provider:
        return open_provider("hyperpod", settings)

    since = aws.last_call()
    return World(make(), make, ids, rebooted=lambda: len(aws.effects("BatchRebootClusterNodes", since)))


@dataclass(frozen=True, slots=True)
class Opening:
    """How a world is opened, and what its provider must be able to do there."""

    open: Callable[[pytest.FixtureRequest], World]
    does: frozenset[str]
    marks: tuple[pytest.MarkDecorator, ...] = ()


def does(*what: str) -> frozenset[str]:
    return frozenset(what)


SLOW = (pytest.mark.slow,)
WORLDS = {
    "none": Opening(open_none, does()),
    "ec2": Opening(open_ec2, does("status", "reboot", "launch first"), (pytest.mark.aws,)),
    "command, launch first": Opening(
        lambda request: open_site(request, "launch"), does("status", "reboot", "launch first"), SLOW
    ),
    "command, in place": Opening(
        lambda request: open_site(request, "in-place"), does("status", "reboot", "in place", "in place by token"), SLOW
    ),
    "hyperpod": Opening(open_hyperpod, does("status", "reboot", "in place"), (pytest.mark.aws,)),
    "command, ipmi": Opening(open_ipmi, does("status", "reboot"), SLOW),
}


def that_do(what: str) -> list[Any]:
    return [pytest.param(name, marks=one.marks) for name, one in WORLDS.items() if not what or what in one.does]


def that_lack(what: str) -> list[Any]:
    return [pytest.param(name, marks=one.marks) for name, one in WORLDS.items() if what not in one.does]


@pytest.fixture(params=that_do(""))
def opening(request: pytest.FixtureRequest) -> Opening:
    return WORLDS[request.param]


@pytest.fixture
def world(request: pytest.FixtureRequest, opening: Opening) -> World:
    return opening.open(request)


def _opened(request: pytest.FixtureRequest) -> World:
    return WORLDS[request.param].open(request)


serving = pytest.fixture(_opened, params=that_do("status"), name="serving")
"""The providers that show the machines of nodes."""
rebooting = pytest.fixture(_opened, params=that_do("reboot"), name="rebooting")
replacing = pytest.fixture(_opened, params=that_do("launch first"), name="replacing")
in_place = pytest.fixture(_opened, params=that_do("in place by token"), name="in_place")
"""Providers that remember a token; the others know an order by the machine that it was for."""
helpless = pytest.fixture(_opened, params=that_lack("launch first"), name="helpless")
rebootless = pytest.fixture(_opened, params=that_lack("reboot"), name="rebootless")


def test_every_provider_is_here() -> None:
    assert {name.partition(",")[0] for name in WORLDS} == set(PROVIDERS)


def await_state(provider: Provider, instance_id: str, state: str) -> Instance:
    deadline = time.monotonic() + 10
    while (seen := provider.instance(instance_id)).state != state:
        assert time.monotonic() < deadline, f"{seen} is not {state}"
        time.sleep(0.05)
    return seen


def test_what_it_can_is_what_is_tested_here(opening: Opening, world: World) -> None:
    can = world.provider.can
    said = {
        "status": can.status,
        "reboot": can.reboot,
        "launch first": can.launch_first,
        "in place": can.replace_in_place,
    }
    assert {what for what, true in said.items() if true} == opening.does - {"in place by token"}
    assert can.replace is (can.launch_first or can.replace_in_place)


def test_verbs_it_cannot_do_are_rejected(helpless: World) -> None:
    with pytest.raises(Rejected):
        helpless.provider.launch("n1", incident="inc", token="t")
    with pytest.raises(Rejected):
        helpless.provider.assign(UNKNOWN_ID, "n1")
    with pytest.raises(Rejected):
        helpless.provider.terminate(UNKNOWN_ID)


def test_a_reboot_it_cannot_do_is_rejected(rebootless: World) -> None:
    with pytest.raises(Rejected):
        rebootless.provider.reboot(UNKNOWN_ID)


def test_unknown_machine_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.provider.instance(UNKNOWN_ID)


def test_unknown_node_has_no_machine(world: World) -> None:
    assert world.provider.instance_of("n-nowhere") is None


def test_unknown_token_launched_nothing(world: World) -> None:
    assert world.provider.find_launched("never-used") is None


def test_node_is_served_by_its_own_machine(serving: World) -> None:
    found = serving.provider.instance_of("n1")
    assert found is not None
    assert (found.instance_id, found.node, found.state) == (serving.serving["n1"], "n1", "running")
    asked = serving.provider.instance(found.instance_id)
    assert (asked.instance_id, asked.node, asked.state) == (found.instance_id, "n1", "running")


def test_machine_has_an_address_and_an_age(replacing: World) -> None:
    found = replacing.provider.instance_of("n1")
    assert found is not None
    assert found.address
    assert found.launched_at is not None
    assert found.launched_at.tzinfo is UTC


def test_same_token_twice_is_one_machine(replacing: World) -> None:
    first = replacing.provider.launch("n1", incident="inc", token="inc-1")
    second = replacing.provider.launch("n1", incident="inc", token="inc-1")
    assert first.instance_id == second.instance_id
    assert (first.node, first.incident) == ("n1", "inc")
    assert replacing.launched() == 1


def test_other_token_is_another_machine(replacing: World) -> None:
    first = replacing.provider.launch("n1", incident="inc", token="inc-1")
    second = replacing.provider.launch("n1", incident="inc", token="inc-2")
    assert first.instance_id != second.instance_id
    assert replacing.launched() == 2


def test_launch_is_found_after_a_crash(replacing: World) -> None:
    launched = replacing.provider.launch("n1", incident="inc", token="inc-1")
    found = replacing.restart().find_launched("inc-1")
    assert found is not None
    assert (found.instance_id, found.node, found.incident) == (launched.instance_id, "n1", "inc")
    assert replacing.restart().launch("n1", incident="inc", token="inc-1").instance_id == launched.instance_id
    assert replacing.launched() == 1


def test_candidate_does_not_serve_until_assigned(replacing: World) -> None:
    provider = replacing.provider
    fresh = provider.launch("n1", incident="inc", token="inc-1")
    before = provider.instance_of("n1")
    assert before is not None
    assert before.instance_id == replacing.serving["n1"]
    for _ in range(2):  # idempotent
        provider.assign(fresh.instance_id, "n1")
        after = provider.instance_of("n1")
        assert after is not None
        assert after.instance_id == fresh.instance_id
    other = provider.instance_of("n10")
    assert other is not None
    assert other.instance_id == replacing.serving["n10"]


def test_terminate_twice_has_one_effect(replacing: World) -> None:
    provider, old = replacing.provider, replacing.serving["n1"]
    provider.terminate(old)
    provider.terminate(old)
    assert await_state(provider, old, "terminated").healthy is None
    replacing.restart().terminate(old)
    assert replacing.terminated() == 1
    assert provider.instance_of("n1") is None


def test_terminating_the_unknown_is_a_success(replacing: World) -> None:
    replacing.provider.terminate(UNKNOWN_ID)
    assert replacing.terminated() == 0


def test_terminated_launch_is_not_found_again(replacing: World) -> None:
    fresh = replacing.provider.launch("n1", incident="inc", token="inc-1")
    replacing.provider.terminate(fresh.instance_id)
    assert replacing.provider.find_launched("inc-1") is None
    with pytest.raises(Rejected, match="new token"):
        replacing.provider.launch("n1", incident="inc", token="inc-1")
    assert replacing.launched() == 1


def test_terminated_machine_can_serve_nothing(replacing: World) -> None:
    replacing.provider.terminate(replacing.serving["n10"])
    with pytest.raises(Rejected, match="can serve no node"):
        replacing.provider.assign(replacing.serving["n10"], "n1")


def test_new_machine_becomes_running_then_healthy(replacing: World) -> None:
    provider = replacing.provider
    fresh = provider.launch("n1", incident="inc", token="inc-1")
    assert (fresh.state in ("pending", "running"), fresh.healthy) == (True, None)
    await_state(provider, fresh.instance_id, "running")
    deadline = time.monotonic() + 10
    while provider.instance(fresh.instance_id).healthy is not True:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_reboot_keeps_the_machine(rebooting: World) -> None:
    rebooting.provider.reboot(rebooting.serving["n1"])
    assert rebooting.provider.instance(rebooting.serving["n1"]).state == "running"
    assert rebooting.rebooted() == 1


def test_unknown_machine_cannot_be_rebooted(rebooting: World) -> None:
    with pytest.raises(NotFound):
        rebooting.provider.reboot(UNKNOWN_ID)
    assert rebooting.rebooted() == 0


def test_replacement_in_place_happens_once_a_token(in_place: World) -> None:
    old = in_place.serving["n1"]
    first = in_place.provider.replace("n1", old, incident="inc", token="inc-1")
    assert (first.node, first.incident) == ("n1", "inc")
    again = in_place.restart().replace("n1", old, incident="inc", token="inc-1")
    assert again.instance_id == first.instance_id
    found = in_place.restart().find_launched("inc-1")
    assert found is not None
    assert found.instance_id == first.instance_id
    assert in_place.launched() == 1
    in_place.provider.replace("n1", first.instance_id, incident="inc", token="inc-2")
    assert in_place.launched() == 2


def test_replacement_in_place_serves_the_node_once_it_runs(in_place: World) -> None:
    provider = in_place.provider
    new = provider.replace("n1", in_place.serving["n1"], incident="inc", token="inc-1")
    await_state(provider, new.instance_id, "running")
    found = provider.instance_of("n1")
    assert found is not None
    assert found.instance_id == new.instance_id
    other = provider.instance_of("n10")
    assert other is not None
    assert other.instance_id == in_place.serving["n10"]


def test_unknown_machine_cannot_be_replaced_in_place(in_place: World) -> None:
    with pytest.raises(NotFound):
        in_place.provider.replace("n1", UNKNOWN_ID, incident="inc", token="inc-1")
    assert in_place.launched() == 0
