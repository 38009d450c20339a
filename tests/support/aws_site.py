"""A simulated site on the AWS emulator: real providers over HTTP, whose machines become simulated ones with agents.

What happened at AWS is read from the emulator's own journal after every call, never from what the provider reports, and
checked against the promises at once. The emulator's clock is the simulation's."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, cast

from holdfast.model.errors import Unavailable
from holdfast.model.ids import incident_of_reason
from holdfast.model.incidents.incident import Incident
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import HOLDING_STATES
from holdfast.ports import Provider, Store
from holdfast.practice.aws.client import EmulatorControl
from support.simulated import EPOCH, Machine, SimProvider, Site
from support.simulated.clock import SimClock

EPOCH_S = EPOCH.timestamp()
ENDS = (
    "TerminateInstances", "StopInstances", "RebootInstances", "TerminateInstanceInAutoScalingGroup",
    "BatchReplaceClusterNodes", "BatchRebootClusterNodes",
)  # fmt: skip
"""Calls that take a machine away from what runs on it."""


class Kind(Protocol):
    """One kind of provider: its machines at AWS, and how they come and go."""

    def make(self, control: EmulatorControl, cluster: str, nodes: int) -> Mapping[str, str]:
        """Running machines: node → instance."""
        ...

    def open(self, sleep: Callable[[float], None], monotonic: Callable[[], float]) -> Provider:
        """A provider as a freshly started actor has it; its waits take no real time."""
        ...

    def follow(self, cloud: Cloud, call: Mapping[str, Any]) -> None:
        """Let the simulated machines do what this call of the journal has caused."""
        ...

    def stir(self, cloud: Cloud, chance: random.Random) -> None:
        """What else may go wrong with this kind."""
        ...

    def mend(self) -> None:
        """End all of those faults."""
        ...

    def live(self) -> set[str]:
        """Instances that exist and are not being terminated."""
        ...


class Chances:
    """How machines that are made or booted turn out."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.broken = 0.0
        self.same_hardware = 0.0
        self.cured = 1.0
        """Share of boots after which a bad machine is healthy."""
        self.boot_s = (20.0, 60.0)

    def boots_in_s(self) -> float:
        return self.chance.uniform(*self.boot_s)

    def hits(self, share: float) -> bool:
        return self.chance.random() < share


class Cloud:
    """The emulated account's machines as simulated ones, and the record of what was done to them."""

    def __init__(
        self, control: EmulatorControl, clock: SimClock, sim: SimProvider, machines: dict[str, Machine], kind: Kind
    ) -> None:
        self.control, self.clock, self.sim, self.machines, self.kind = control, clock, sim, machines, kind
        self.chances = Chances(random.Random(0))
        self.since = control.last_call()
        self.launched: Counter[str] = Counter()
        """Token of a launch → machines launched with it."""
        self.did: list[tuple[str, str]] = []
        """(call, machine) in order."""
        self.before_end: Callable[[str, str], None] = lambda _action, _instance_id: None
        """Checks whether the machine may be taken now: its node is as it was when the call came in."""
        self.on_launch: Callable[[str, str], None] = lambda _instance_id, _token: None
        self._told_s = -1.0

    def tell_time(self) -> None:
        if self._told_s != self.clock.elapsed_s:
            self._told_s = self.clock.elapsed_s
            self.control.clock(EPOCH_S + self.clock.elapsed_s)

    def follow(self) -> None:
        """Every entry of the journal that is not recorded here."""
        for call in self._settled_calls():
            self.since = call["number"]
            for instance_id in call["effects"]:
                self.did.append((call["action"], instance_id))
                if call["action"] in ENDS:
                    self.before_end(call["action"], instance_id)
            if call["effects"] or call["action"] == "CreateTags":
                self.kind.follow(self, call)

    def _settled_calls(self) -> list[dict[str, Any]]:
        """New calls, once those whose client has timed out are over."""
        for _ in range(200):
            calls = self.control.calls(since=self.since)
            if all(call["status"] for call in calls):
                return calls
            time.sleep(0.02)
        raise AssertionError(f"the emulator hangs: {[c['action'] for c in calls if not c['status']]}")

    def serves(self, instance_id: str) -> str:
        """The node that the machine serves; empty: none."""
        return next((n for n, i in self.sim._serving.items() if i == instance_id), "")

    # What a kind does with the machines

    def make(self, instance_id: str, node: str, boots_at_s: float) -> Machine:
        old = self.machines[self.sim._serving[node]]
        made = Machine(instance_id, node, boots_at_s=boots_at_s, healthy=not self.chances.hits(self.chances.broken))
        if self.chances.hits(self.chances.same_hardware):
            made.gpu_prefix = old.gpu_prefix or old.instance_id
        self.machines[instance_id] = made
        return made

    def hand_over(self, node: str, instance_id: str) -> None:
        self.sim._serving[node] = instance_id

    def power_off(self, instance_id: str) -> None:
        self.machines[instance_id].powered = False

    def boot(self, instance_id: str, *, new_host: bool = False) -> None:
        machine = self.machines[instance_id]
        machine.boot += 1
        machine.boots_at_s = self.clock.elapsed_s + self.chances.boots_in_s()
        machine.powered, machine.cut_off, machine.agent_up = True, False, True
        machine.unreachable_by = set()
        machine.healthy = machine.healthy or self.chances.hits(self.chances.cured)
        if new_host and not self.chances.hits(self.chances.same_hardware):
            machine.gpu_prefix = f"{instance_id}-{machine.boot}"


class Followed:
    """A provider whose every call is made at the simulation's time and checked in the journal when it is over."""

    def __init__(self, cloud: Cloud, provider: Provider, serving: Callable[[str], Machine]) -> None:
        self._cloud, self._provider = cloud, provider
        self.serving = serving

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._provider, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._cloud.tell_time()
            try:
                return found(*args, **kwargs)
            finally:
                self._cloud.follow()

        return call


class AwsSite(Site):
    """A site whose machines are at AWS. ``made``: node → instance, as ``kind`` has made them."""

    def __init__(
        self,
        control: EmulatorControl,
        made: Mapping[str, str],
        kind: Kind,
        *,
        policy: Policy,
        spares: tuple[str, ...] = (),
        store: Store | None = None,
    ) -> None:
        self.cloud: Cloud | None = None
        super().__init__(made=made, spares=spares, policy=policy, store=store, warm=False)
        sim = self.provider
        self.cloud = Cloud(control, self.clock, sim, self.machines, kind)
        self.cloud.before_end = self.may_be_taken
        self.cloud.on_launch = self.is_wanted
        self.by_hand: dict[str, str] = {}
        """Drains of operators that are in force: node → reason."""
        self.serving = sim.serving
        self.start_controller()
        self.start_actor()
        self.run(31, step_s=5)

    def start_actor(self) -> None:
        """A new process: its provider remembers nothing either."""
        if self.cloud is not None:
            real = self.cloud.kind.open(self.sleep, self.clock.monotonic_s)
            self.provider = cast("SimProvider", Followed(self.cloud, real, self.serving))
        super().start_actor()
        # The controller is another process and keeps its lease while the actor waits.
        self.actor.outside = replace(self.actor.outside, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        with contextlib.suppress(Unavailable):
            self.loop._lead()
        if self.cloud is not None:
            self.cloud.tell_time()

    # The promises, at the moment of each call

    def may_be_taken(self, action: str, instance_id: str) -> None:
        """No machine that serves is taken from under a job, from an operator, or while it is in service."""
        assert self.cloud is not None
        name = self.cloud.serves(instance_id)
        if not name:
            return
        what = f"{action} of {instance_id}, which serves {name}"
        machine, node = self.machines[instance_id], self.slurm.nodes[name]
        assert name not in self.by_hand, f"{what}: drained by hand\n{self.tale(name)}"
        held = [j for j in self.slurm.jobs.values() if name in j.nodes and j.state in HOLDING_STATES]
        alive = machine.powered and not machine.cut_off
        assert not (alive and held), f"{what}: job {held[0].job_id} is {held[0].state}\n{self.tale(name)}"
        if alive:
            assert node.drain or node.down, f"{what}: in service\n{self.tale(name)}"
            assert incident_of_reason(node.reason), f"{what}: {node.reason!r} is not ours\n{self.tale(name)}"

    def is_wanted(self, instance_id: str, token: str) -> None:
        """One machine per token, for an incident that the store knows."""
        assert self.cloud is not None
        made = self.cloud.launched[token]
        assert made == 1, f"{instance_id} is machine number {made} of token {token}"

    def tale(self, name: str) -> str:
        return "\n".join(f"--- {i.id} {i.state.value} {i.note}\n{self.story(i.id)}" for i in self.of(name))

    def of(self, name: str) -> tuple[Incident, ...]:
        return self.known_incidents(node=name)

    def known_incidents(self, **which: Any) -> tuple[Incident, ...]:
        """Also while Holdfast cannot reach the database."""
        away = getattr(self.store, "away", False)
        if away:
            cast("Any", self.store).away = False
        try:
            return self.store.incidents(**which)
        finally:
            if away:
                cast("Any", self.store).away = True
