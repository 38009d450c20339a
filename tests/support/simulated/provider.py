"""A provider in memory: idempotent by token, as the port requires."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from holdfast.model.errors import InsufficientCapacity, NotFound, RepairsItself, Unavailable
from holdfast.model.machine import CAN_NOTHING, Instance, Notice, ProviderCan
from support.simulated.clock import SimClock
from support.simulated.machines import Machine

FULL = ProviderCan(
    reboot=True,
    replace=True,
    launch_first=True,
    status=True,
    power_off_confirmed=True,
    stop_start=True,
    announces=True,
)
IN_PLACE = replace(FULL, launch_first=False, replace_in_place=True, power_off_confirmed=False)
"""As HyperPod or bare metal."""
NOTHING = CAN_NOTHING


class SimProvider:
    """Implements :class:`holdfast.ports.Provider` over the machines of a site."""

    def __init__(self, clock: SimClock, machines: dict[str, Machine], can: ProviderCan = FULL) -> None:
        self._clock = clock
        self._machines = machines
        self._can = can
        self._shown: dict[str, Instance] = {}
        self._serving: dict[str, str] = {}
        self.tokens: dict[str, str] = {}
        self.terminated: Counter[str] = Counter()
        """How often a machine went from alive to terminated."""
        self.on_terminate: Callable[[str], None] = lambda _instance_id: None
        self.on_boot: Callable[[str], None] = lambda _instance_id: None
        self.away = False
        self.sees_power = True
        """Shows a machine without power as stopped; otherwise as running with failed checks."""
        self.itself = False
        """The provider repairs nodes automatically."""
        self.announced: list[Notice] = []
        self.replaced: dict[str, str] = {}
        """Machine that was replaced in place → the one that took its place."""
        self.cycled: dict[str, str] = {}
        """Token of a reboot or of a stop and start → machine."""
        self.reported: list[str] = []
        self.reboots_help = True
        """A reboot repairs a broken machine."""
        self.capacity = True
        self.boot_s = 40.0
        self.launches_broken = False
        """Machines launched from now on fail their validation."""
        self.same_hardware = False
        """Machines launched from now on carry the GPUs of the one that they replace."""
        for machine in machines.values():
            self._shown[machine.instance_id] = Instance(machine.instance_id, machine.node, "running", healthy=True)
            self._serving[machine.node] = machine.instance_id

    @property
    def name(self) -> str:
        return "sim" if self._can.replace else "none"

    @property
    def can(self) -> ProviderCan:
        return self._can

    @can.setter
    def can(self, can: ProviderCan) -> None:
        self._can = can

    def repairs_itself(self) -> bool:
        self._answer()
        return self.itself

    def notices(self) -> tuple[Notice, ...]:
        self._answer()
        return tuple(self.announced)

    def on_trial(self) -> tuple[Instance, ...]:
        self._answer()
        return tuple(self._shown[i] for i in sorted(self.candidates()))

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("the provider does not answer")

    def serving(self, node: str) -> Machine:
        return self._machines[self._serving[node]]

    def forget_who_serves(self, node: str) -> None:
        """Remove the tags that say which machine serves the node."""
        del self._serving[node]

    def live(self) -> set[str]:
        return {i.instance_id for i in self._shown.values() if i.state == "running"}

    def candidates(self) -> set[str]:
        """Machines that run and serve no node."""
        return self.live() - set(self._serving.values())

    def instance_of(self, node: str) -> Instance | None:
        self._answer()
        shown = self._shown.get(self._serving.get(node, ""))
        return shown if shown is not None and shown.state == "running" else None

    def instance(self, instance_id: str) -> Instance:
        self._answer()
        if instance_id not in self._shown:
            raise NotFound(f"no instance {instance_id}")
        shown = self._shown[instance_id]
        machine = self._machines[instance_id]
        if shown.state == "running" and not machine.powered:
            return replace(shown, state="stopped") if self.sees_power else replace(shown, healthy=False)
        return replace(shown, healthy=True if shown.state == "running" else None)

    def launch(self, node: str, *, incident: str, token: str) -> Instance:
        self._answer()
        if token in self.tokens:
            return self._shown[self.tokens[token]]
        if not self.capacity:
            raise InsufficientCapacity("no machine of this kind now")
        number = f"i-{len(self._shown) + 1:04d}"
        old = self.serving(node)
        self._machines[number] = Machine(
            number,
            node,
            boots_at_s=self._clock.elapsed_s + self.boot_s,
            healthy=not self.launches_broken,
            gpu_prefix=(old.gpu_prefix or old.instance_id) if self.same_hardware else "",
        )
        self.tokens[token] = number
        self._shown[number] = Instance(number, node, "running", launched_at=self._clock.now(), incident=incident)
        return self._shown[number]

    def find_launched(self, token: str) -> Instance | None:
        self._answer()
        return self._shown.get(self.tokens.get(token, ""))

    def assign(self, instance_id: str, node: str) -> None:
        self._answer()
        self._serving[node] = instance_id

    def terminate(self, instance_id: str) -> None:
        self._answer()
        shown = self._shown.get(instance_id)
        if shown is None or shown.state == "terminated":
            return
        self.on_terminate(instance_id)
        self.terminated[instance_id] += 1
        self._shown[instance_id] = replace(shown, state="terminated")
        self._machines[instance_id].powered = False

    def replace(self, node: str, instance_id: str, *, incident: str, token: str) -> Instance:
        self._answer()
        if self.itself:
            raise RepairsItself("it repairs automatically")
        if instance_id in self.replaced:
            return self._shown[self.replaced[instance_id]]
        if not self.capacity:
            raise InsufficientCapacity("no machine of this kind now")
        self.terminate(instance_id)
        made = self.launch(node, incident=incident, token=f"in-place-{token}")
        self._serving[node] = made.instance_id
        self.replaced[instance_id] = made.instance_id
        return made

    def reboot(self, instance_id: str, *, incident: str = "", token: str = "") -> None:
        self._answer()
        name = token or f"untold-{len(self.cycled)}"
        if name not in self.cycled:
            self.cycled[name] = instance_id
            self._boot(instance_id)

    def stop_start(self, instance_id: str, *, incident: str, token: str) -> Instance:
        self._answer()
        if token not in self.cycled:
            self.cycled[token] = instance_id
            machine = self._boot(instance_id)
            machine.gpu_prefix = machine.gpu_prefix if self.same_hardware else f"{instance_id}-{token}"
        return self._shown[instance_id]

    def report_fault(self, instance_id: str, *, since: datetime, text: str) -> None:
        self._answer()
        self.reported.append(instance_id)

    def exchange(self, node: str) -> None:
        """Replace the node's machine by the provider's own decision."""
        itself, self.itself = self.itself, False
        self.replace(node, self._serving[node], incident="", token=f"by-itself-{node}")
        self.itself = itself

    def power_cycle(self, node: str) -> None:
        """Reboot the node's machine from outside, not through the provider."""
        self._boot(self._serving[node])

    def _boot(self, instance_id: str) -> Machine:
        self.on_boot(instance_id)
        machine = self._machines[instance_id]
        machine.boot += 1
        machine.boots_at_s = self._clock.elapsed_s + self.boot_s
        machine.powered = True
        machine.healthy = self.reboots_help
        return machine
