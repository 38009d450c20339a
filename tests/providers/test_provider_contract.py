"""What every provider promises, run against each one for what it says it ``can``. EC2 over real HTTP, scripts as processes.

A new provider is one line in ``WORLDS``."""

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

from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.model.machine import Instance
from holdfast.ports import Provider
from holdfast.practice.aws import REGION
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.practice.aws.seed import seed, seed_group
from holdfast.practice.clustermgtd import ClusterManager
from holdfast.providers import PROVIDERS, CommandSettings, HyperpodSettings, ParallelClusterSettings, open_provider
from support.parallelcluster import EmulatedFleet, SimGround
from support.simulated.clock import SimClock
from support.simulated.slurm import PowerSaving, SimSlurm

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
    stopped: Callable[[], int] = lambda: 0
    settle: Callable[[], None] = lambda: None
    """What the world does by itself while one waits."""


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
    """A group with a machine per node; it launches what it lacks by itself. More is in test_asg.py."""
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
    command = (sys.executable, "-I", "-S", str(HERE / "site_script.py"), str(file), mode)

    def make() -> Provider:
        return open_provider("command", CommandSettings("c", command))

    def count(*verbs: str) -> Callable[[], int]:
        return lambda: sum(len(site.effects(file, verb)) for verb in verbs)

    replaced, stopped = count("launch", "replace"), count("stop_start")
    return World(make(), make, ids, replaced, count("terminate"), count("reboot"), stopped)


def open_ipmi(request: pytest.FixtureRequest) -> World:
    """The provider ``command`` over the shipped example for BMCs."""
    bmcs = request.getfixturevalue("bmcs")

    def make() -> Provider:
        return open_provider("command", bmcs.settings)

    def cycles() -> int:
        return sum(call.endswith("power cycle") for call in bmcs.calls())

    return World(make(), make, {"n1": "asset-1", "n10": "asset-10"}, rebooted=cycles)


def open_hyperpod(request: pytest.FixtureRequest) -> World:
    """Nodes by their instance names, which the file of the node that Holdfast runs on says. More is in test_hyperpod.py."""
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
        """Slurm's power saving, then clustermgtd: it lets the machine go at one turn, and launches another at the next."""
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
"""What a provider remembers, beside what it says in ``can``: a token, and which machines are on trial."""
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
    "hyperpod": Opening(open_hyperpod, does("status", "reboot", "in place"), (pytest.mark.aws,)),
    "parallelcluster": Opening(open_parallelcluster, does("status", "in place"), (pytest.mark.aws,)),
    "command, ipmi": Opening(open_ipmi, does("status", "reboot", "reboot by token"), SLOW),
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
    """A courtesy, whoever takes it."""
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
    """Asked until it is done, as the ladder does."""
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
    """Until the node is served again after an order to exchange its machine."""
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
