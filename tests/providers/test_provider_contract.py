"""What every provider promises, run against each one for its declared ``can``. EC2 over real HTTP, scripts as processes.

A new provider is one line in ``support.provider_worlds.WORLDS``."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.model.machine import Instance
from holdfast.ports import Provider
from holdfast.providers import PROVIDERS
from support.provider_worlds import MEMORY, WORLDS, Opening, World

UNKNOWN_ID = "i-0123456789abcdef0"


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
rebooting_once = pytest.fixture(_opened, params=that_do("reboot by token"), name="rebooting_once")
stopping = pytest.fixture(_opened, params=that_do("stop and start"), name="stopping")
in_place = pytest.fixture(_opened, params=that_do("in place"), name="in_place")
in_place_by_token = pytest.fixture(_opened, params=that_do("in place by token"), name="in_place_by_token")
"""Providers that remember a token; the others know an order by the machine that it was for."""
on_trial = pytest.fixture(_opened, params=that_do("on trial"), name="on_trial")
stopless = pytest.fixture(_opened, params=that_lack("stop and start"), name="stopless")
placeless = pytest.fixture(_opened, params=that_lack("in place"), name="placeless")
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
        "stop and start": can.stop_start,
    }
    assert {what for what, true in said.items() if true} == opening.does - MEMORY
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


def test_a_stop_and_start_it_cannot_do_is_rejected(stopless: World) -> None:
    with pytest.raises(Rejected):
        stopless.provider.stop_start(UNKNOWN_ID, incident="inc", token="inc-1")


def test_an_exchange_it_cannot_do_is_rejected(placeless: World) -> None:
    with pytest.raises(Rejected):
        placeless.provider.replace("n1", UNKNOWN_ID, incident="inc", token="inc-1")
    assert placeless.launched() == 0


def test_a_quiet_site_has_nothing_to_say_by_itself(world: World) -> None:
    assert world.provider.repairs_itself() is False
    assert world.provider.notices() == ()
    assert world.provider.on_trial() == ()


def test_a_word_about_a_fault_changes_nothing(world: World) -> None:
    """Best effort, whichever provider accepts it."""
    told = next(iter(world.serving.values()), UNKNOWN_ID)
    world.provider.report_fault(told, since=datetime.now(UTC), text="GPU 3 fell off the bus (Xid 79)")
    assert (world.launched(), world.terminated(), world.rebooted(), world.stopped()) == (0, 0, 0, 0)


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


def test_one_token_is_one_reboot(rebooting_once: World) -> None:
    for provider in (rebooting_once.provider, rebooting_once.provider, rebooting_once.restart()):
        provider.reboot(rebooting_once.serving["n1"], incident="inc", token="inc-1")
    assert rebooting_once.rebooted() == 1
    rebooting_once.provider.reboot(rebooting_once.serving["n1"], incident="inc", token="inc-2")
    assert rebooting_once.rebooted() == 2


def stop_start(provider: Provider, instance_id: str, token: str) -> Instance:
    """Called until it is done, as the ladder does."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return provider.stop_start(instance_id, incident="inc", token=token)
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_stop_and_start_keeps_the_machine_and_is_done_once_a_token(stopping: World) -> None:
    machine = stopping.serving["n1"]
    for provider in (stopping.provider, stopping.restart()):
        shown = stop_start(provider, machine, "inc-1")
        assert shown.instance_id == machine
        assert shown.state in ("pending", "running")
    await_state(stopping.provider, machine, "running")
    assert stopping.stopped() == 1
    stop_start(stopping.provider, machine, "inc-2")
    assert stopping.stopped() == 2
    with pytest.raises(NotFound):
        stopping.provider.stop_start(UNKNOWN_ID, incident="inc", token="inc-3")


def await_exchange(world: World, node: str) -> Instance:
    """Until the node is served again after an order to replace its machine."""
    deadline = time.monotonic() + 10
    while True:
        world.settle()
        found = world.provider.instance_of(node)
        if found is not None and found.state == "running":
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_one_order_in_place_is_one_exchange_however_often_it_is_given(in_place: World) -> None:
    old = in_place.serving["n1"]
    for provider in (in_place.provider, in_place.provider, in_place.restart()):
        shown = provider.replace("n1", old, incident="inc", token="inc-1")
        assert shown.node == "n1"
    assert in_place.launched() == 1
    new = await_exchange(in_place, "n1")
    assert in_place.restart().replace("n1", old, incident="inc", token="inc-1").instance_id == new.instance_id
    assert in_place.launched() == 1
    other = in_place.provider.instance_of("n10")
    assert other is not None
    assert (other.instance_id, other.state) == (in_place.serving["n10"], "running")


def test_another_order_in_place_is_another_exchange(in_place: World) -> None:
    in_place.provider.replace("n1", in_place.serving["n1"], incident="inc", token="inc-1")
    new = await_exchange(in_place, "n1")
    in_place.provider.replace("n1", new.instance_id, incident="inc", token="inc-2")
    assert in_place.launched() == 2


def test_an_order_in_place_is_found_by_its_token(in_place_by_token: World) -> None:
    old = in_place_by_token.serving["n1"]
    first = in_place_by_token.provider.replace("n1", old, incident="inc", token="inc-1")
    assert first.incident == "inc"
    found = in_place_by_token.restart().find_launched("inc-1")
    assert found is not None
    assert found.instance_id == first.instance_id


def test_unknown_machine_cannot_be_replaced_in_place(in_place_by_token: World) -> None:
    with pytest.raises(NotFound):
        in_place_by_token.provider.replace("n1", UNKNOWN_ID, incident="inc", token="inc-1")
    assert in_place_by_token.launched() == 0


def test_what_was_launched_is_on_trial_until_it_serves(on_trial: World) -> None:
    fresh = on_trial.provider.launch("n1", incident="inc", token="inc-1")
    tried = on_trial.restart().on_trial()
    assert [(one.instance_id, one.node, one.incident) for one in tried] == [(fresh.instance_id, "n1", "inc")]
    on_trial.provider.assign(fresh.instance_id, "n1")
    assert on_trial.provider.on_trial() == ()
    gone = on_trial.provider.launch("n10", incident="inc2", token="inc2-1")
    on_trial.provider.terminate(gone.instance_id)
    assert on_trial.provider.on_trial() == ()
