"""Patches of moto's classes for EC2 behavior that moto lacks. Uses moto's internals: tested with moto 5.2.5.

- an instance takes time from pending to running and from shutting-down to terminated;
- RunInstances remembers ClientTokens (same parameters: same reservation; others: IdempotentParameterMismatch;
  every instance gone: that instance as it is, or IdempotentInstanceTerminated);
- a new instance may be invisible for some describes, and a describe may show states and tags of a while ago;
- terminating twice succeeds and has one effect.

Status checks, events, stop and start are in ``moto_status``, reservations in ``moto_capacity``, groups in ``moto_groups``.
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import instances as moto_instances
from moto.ec2.models.tags import TagBackend
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ec2.responses.instances import InstanceResponse

from holdfast.practice.aws import moto_capacity, moto_groups, moto_status
from holdfast.practice.aws.moto_parts import GONE, STATE_CODES, put
from holdfast.practice.aws.world import EmulatorWorld, TagChange, TokenLaunch


def install(world: EmulatorWorld) -> None:
    """Patch moto's EC2 for this process. Call once, before the first request."""
    instance, backend = moto_instances.Instance, moto_instances.InstanceBackend
    put(moto_instances, "InstanceState", _living_state(world))
    put(moto_instances, "utcnow", world.utcnow)
    put(instance, "terminate", _terminate(world, instance.terminate))
    put(instance, "reboot", _reboot(world))
    put(instance, "get_tags", _get_tags(world))
    put(TagBackend, "create_tags", _tags_changed(world, TagBackend.create_tags))
    put(TagBackend, "delete_tags", _tags_changed(world, TagBackend.delete_tags))
    put(backend, "all_reservations", _all_reservations(world, backend.all_reservations))
    put(InstanceResponse, "run_instances", _run_instances(world, InstanceResponse.run_instances))
    EC2BaseResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER["RunInstances.Reservation.Instances.Instance.State"] = _launched
    for other in (moto_status, moto_capacity, moto_groups):
        other.install(world)


def _living_state(world: EmulatorWorld) -> type:
    """moto's InstanceState whose name follows the clock."""

    class LivingState:
        def __init__(self, name: str = "pending", code: int = 0) -> None:
            pending_s = world.delays.pending_s
            self._path = [(world.now(), "pending"), (world.now() + pending_s, "running")]

        @property
        def began(self) -> float:
            """Unix time of the launch."""
            return self._path[0][0]

        @property
        def name(self) -> str:
            """As the current call shows it."""
            return next((name for at, name in reversed(self._path) if at <= world.seen_at()), self._path[0][1])

        @name.setter
        def name(self, target: str) -> None:
            via = {"terminated": "shutting-down", "stopped": "stopping", "running": "pending"}[target]
            if self.name in (target, via):
                return
            delay_s = world.delays.pending_s if target == "running" else world.delays.shutting_down_s
            past = [step for step in self._path if step[0] <= world.now()]
            self._path = [*past, (world.now(), via), (world.now() + delay_s, target)]

        def last_at(self, at: float) -> None:
            """Change the time at which the newest state is reached."""
            self._path[-1] = (at, self._path[-1][1])

        @property
        def code(self) -> int:
            return STATE_CODES[self.name]

        @code.setter
        def code(self, value: int) -> None:
            """moto also sets the code; here it follows from the name."""

        @property
        def since(self) -> float:
            """Unix time at which the current state started."""
            return max((at for at, _ in self._path if at <= world.seen_at()), default=self._path[0][0])

    return LivingState


def _terminate(world: EmulatorWorld, original: Any) -> Any:
    def terminate(self: Any) -> Any:
        if self.state in GONE:
            return _state_copy(self)
        world.effects.append(self.id)
        return original(self)

    return terminate


def _state_copy(instance: Any) -> dict[str, Any]:
    return {"Name": instance.state, "Code": STATE_CODES[instance.state]}


def _reboot(world: EmulatorWorld) -> Any:
    def reboot(self: Any) -> None:
        if self.state != "running":
            raise EC2ClientError("IncorrectInstanceState", f"The instance '{self.id}' is not in state 'running'.")
        world.effects.append(self.id)

    return reboot


def _get_tags(world: EmulatorWorld) -> Any:
    """By the instance's id; moto's own searches all tags of the account."""

    def get_tags(self: Any) -> list[dict[str, str]]:
        tags = world.tags_seen(self.id, self.ec2_backend.tags.get(self.id, {}))
        return [
            {"resource_id": self.id, "key": key, "value": value, "resource_type": "instance"}
            for key, value in tags.items()
        ]

    return get_tags


def _tags_changed(world: EmulatorWorld, original: Any) -> Any:
    def change(self: Any, resource_ids: list[str], tags: dict[str, str]) -> Any:
        for resource_id in resource_ids:
            if resource_id.startswith("i-"):
                before = TagChange(world.now(), dict(self.tags.get(resource_id, {})))
                world.tag_changes.setdefault(resource_id, []).append(before)
        return original(self, resource_ids, tags)

    return change


def _all_reservations(world: EmulatorWorld, original: Any) -> Any:
    def all_reservations(self: Any, filters: Any = None) -> Any:
        reservations = original(self, filters)
        if not world.hidden and not world.lag_s:
            return reservations
        for reservation in reservations:
            reservation.instances = [i for i in reservation.instances if shown(i)]
        return [r for r in reservations if r.instances]

    def shown(instance: Any) -> bool:
        return instance.id not in world.hidden and instance._state.began <= world.seen_at()

    return all_reservations


def _run_instances(world: EmulatorWorld, original: Any) -> Any:
    def run_instances(self: Any) -> Any:
        token = f"{self.region}/{self._get_param('ClientToken', '')}"
        prior = world.launches.get(token)
        if prior is not None:
            return ActionResult(_same_launch(prior, world))
        reserved = moto_capacity.take_place(world, self.ec2_backend)
        result = original(self)
        reservation = result.result
        for instance in reservation.instances:
            instance.lifecycle = world.parameters.get("InstanceMarketOptions.MarketType")
            instance.capacity_reservation_id = reserved
        world.launches[token] = TokenLaunch(dict(world.parameters), reservation)
        for instance in reservation.instances:
            world.effects.append(instance.id)
            if world.hide_describes:
                world.hidden[instance.id] = world.hide_describes
        return result

    return run_instances


def _launched(state: Any) -> Any:
    """Let RunInstances show new instances as pending; moto does so even for terminated ones."""
    return state if state.name in GONE else {"Code": STATE_CODES["pending"], "Name": "pending"}


def _same_launch(prior: TokenLaunch, world: EmulatorWorld) -> Any:
    if prior.parameters != world.parameters:
        raise EC2ClientError(
            "IdempotentParameterMismatch",
            "The client token you have provided is associated with a resource that was created with other parameters.",
        )
    if world.ended_launch_is_error and all(instance.state in GONE for instance in prior.reservation.instances):
        raise EC2ClientError(
            "IdempotentInstanceTerminated",
            "The request to launch an instance uses the same client token as a previous request for which the "
            "instance has been terminated.",
        )
    return prior.reservation
