"""What every provider promises, run against each one for what it says it ``can``. EC2 over real HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC

import pytest

from holdfast.model.errors import NotFound, Rejected
from holdfast.ports import Instance, Provider
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.seed import seed
from holdfast.providers import PROVIDERS, open_provider

REPLACING = ["ec2"]
ALL = [pytest.param(name, marks=pytest.mark.aws if name in REPLACING else ()) for name in PROVIDERS]
UNKNOWN_ID = "i-0123456789abcdef0"


@dataclass(frozen=True, slots=True)
class World:
    """One provider and what stands behind it."""

    provider: Provider
    restart: Callable[[], Provider]
    """The same provider as a process started again would have it."""
    serving: Mapping[str, str]
    """Node → id of the machine that serves it."""
    launched: Callable[[], int]
    """Machines really launched since the test began, counted outside the provider."""
    terminated: Callable[[], int]


def open_world(name: str, request: pytest.FixtureRequest) -> World:
    if name == "none":
        none = open_provider("none")
        return World(none, lambda: open_provider("none"), {}, lambda: 0, lambda: 0)
    aws: EmulatorControl = request.getfixturevalue("aws")
    make = request.getfixturevalue("open_ec2_provider")
    ids = seed(aws.endpoint, request.getfixturevalue("cluster"), ["n1", "n10"])
    since = aws.last_call()
    return World(
        make(),
        make,
        ids,
        lambda: len(aws.effects("RunInstances", since)),
        lambda: len(aws.effects("TerminateInstances", since)),
    )


@pytest.fixture(params=ALL)
def world(request: pytest.FixtureRequest) -> World:
    return open_world(request.param, request)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.aws) for name in REPLACING])
def replacing(request: pytest.FixtureRequest) -> World:
    """The providers that say that they can replace."""
    return open_world(request.param, request)


@pytest.fixture(params=sorted(set(PROVIDERS) - set(REPLACING)))
def helpless(request: pytest.FixtureRequest) -> World:
    return open_world(request.param, request)


def await_state(provider: Provider, instance_id: str, state: str) -> Instance:
    deadline = time.monotonic() + 10
    while (seen := provider.instance(instance_id)).state != state:
        assert time.monotonic() < deadline, f"{seen} is not {state}"
        time.sleep(0.05)
    return seen


def test_what_it_can_is_what_is_tested_here(world: World) -> None:
    can = world.provider.can
    assert can.replace is (world.provider.name in REPLACING)
    assert can.reboot is can.replace


def test_verbs_it_cannot_do_are_rejected(helpless: World) -> None:
    world = helpless
    with pytest.raises(Rejected):
        world.provider.launch("n1", incident="inc", token="t")
    with pytest.raises(Rejected):
        world.provider.terminate(UNKNOWN_ID)
    with pytest.raises(Rejected):
        world.provider.reboot(UNKNOWN_ID)


def test_unknown_machine_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.provider.instance(UNKNOWN_ID)


def test_unknown_node_has_no_machine(world: World) -> None:
    assert world.provider.instance_of("n-nowhere") is None


def test_unknown_token_launched_nothing(world: World) -> None:
    assert world.provider.find_launched("never-used") is None


def test_node_is_served_by_its_own_machine(replacing: World) -> None:
    found = replacing.provider.instance_of("n1")
    assert found is not None
    assert (found.instance_id, found.node, found.state) == (replacing.serving["n1"], "n1", "running")
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


def test_reboot_keeps_the_machine(replacing: World) -> None:
    replacing.provider.reboot(replacing.serving["n1"])
    assert replacing.provider.instance(replacing.serving["n1"]).state == "running"
