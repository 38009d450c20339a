"""Auto Scaling groups for moto that replace instances after a while when they end or are reported as unhealthy.

moto 5.2.5 replaces at once on a termination and never on SetInstanceHealth. Here ``turn`` runs the actions of groups that
are due; the emulator calls it before each API call, as a separate journalled call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import (
    AutoScalingBackend,
    FakeAutoScalingGroup,
    TerminateInstanceActivity,
    autoscaling_backends,
)
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.responses import ActionResult

from holdfast.practice.aws.moto_parts import GONE, put
from holdfast.practice.aws.world import EmulatorWorld

OFF = (*GONE, "stopping", "stopped")
"""States that the group's EC2 health check treats as unhealthy."""


def install(world: EmulatorWorld) -> None:
    put(AutoScalingBackend, "notify_terminate_instances", lambda self, instance_ids: None)
    put(AutoScalingBackend, "set_instance_health", _set_instance_health)
    put(AutoScalingBackend, "terminate_instance", _terminate_instance)
    put(FakeAutoScalingGroup, "suspended_processes", _with_a_reason(FakeAutoScalingGroup.suspended_processes))
    put(AutoScalingResponse, "describe_scaling_activities", _describe_scaling_activities(world))


def _with_a_reason(moto: Any) -> property:
    """AWS reports when a process was suspended; moto returns an empty text, which AWS's model forbids."""

    def read(group: Any) -> list[dict[str, str]]:
        return [{**entry, "SuspensionReason": "User suspended"} for entry in moto.fget(group)]

    return property(read, moto.fset)


def due(world: EmulatorWorld) -> bool:
    """Whether an action of some group is due."""
    return any(_unhealthy(group) or _over(group) for group in _groups()) or bool(launching(world))


def launching(world: EmulatorWorld) -> list[str]:
    """Names of the groups that launch missing instances now."""
    return [group.name for group in _groups() if _launches(world, group)]


def turn(world: EmulatorWorld, launch: Iterable[str]) -> None:
    """Terminate and launch what is due in these groups. The ids launched and terminated are effects of the current call."""
    for group in _groups():
        for state in _unhealthy(group):
            state.lifecycle_state, state.health_status = "Terminating", "Unhealthy"
            state.instance.terminate()
        over = _over(group)
        group.instance_states = [state for state in group.instance_states if state not in over]
        if group.name in launch:
            _launch(world, group)


def _groups() -> Iterator[Any]:
    for backend in autoscaling_backends[DEFAULT_ACCOUNT_ID].values():
        yield from backend.autoscaling_groups.values()


def _suspended(group: Any) -> set[str]:
    return {entry["ProcessName"] for entry in group.suspended_processes}


def _unhealthy(group: Any) -> list[Any]:
    """Members that are to be terminated."""
    suspended = _suspended(group)
    if suspended & {"ReplaceUnhealthy", "Terminate"}:
        return []
    checked = "HealthCheck" not in suspended
    return [
        state
        for state in group.instance_states
        if state.lifecycle_state == "InService"
        and (state.health_status == "Unhealthy" or (checked and state.instance.state in OFF))
    ]


def _over(group: Any) -> list[Any]:
    """Members whose instance has ended."""
    return [state for state in group.instance_states if state.instance.state == "terminated"]


def _lacking(group: Any) -> int:
    serving = [s for s in group.instance_states if s.lifecycle_state == "InService" and s.instance.state not in OFF]
    return max(0, (group.desired_capacity or 0) - len(serving))


def _launches(world: EmulatorWorld, group: Any) -> bool:
    """Whether it has lacked instances for long enough, and may launch."""
    if not _lacking(group):
        world.relaunch_due.pop(group.name, None)
        return False
    at = world.relaunch_due.setdefault(group.name, world.now() + world.delays.relaunch_s)
    may = "Launch" not in _suspended(group) and group.name not in world.groups_without_capacity
    return may and at <= world.now()


def _launch(world: EmulatorWorld, group: Any) -> None:
    before = len(group.instance_states)
    group.replace_autoscaling_group_instances(_lacking(group), group.get_propagated_tags())
    world.effects.extend(state.instance_id for state in group.instance_states[before:])
    world.relaunch_due.pop(group.name, None)


def _member(backend: Any, instance_id: str) -> Any:
    for group in backend.autoscaling_groups.values():
        for state in group.instance_states:
            if state.instance_id == instance_id:
                return state
    raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def _set_instance_health(self: Any, instance_id: str, health_status: str) -> None:
    _member(self, instance_id).health_status = health_status


def _terminate_instance(self: Any, instance_id: str, should_decrement: bool) -> Any:
    state = _member(self, instance_id)
    group = state.auto_scaling_group
    before = group.desired_capacity
    state.lifecycle_state = "Terminating"
    if should_decrement:
        group.desired_capacity -= 1
    state.instance.terminate()
    return TerminateInstanceActivity(state.instance, before)


def _describe_scaling_activities(world: EmulatorWorld) -> Any:
    """Record a failed launch of a group that gets no capacity; other activities are not recorded."""

    def describe_scaling_activities(self: Any) -> Any:
        name = self._get_param("AutoScalingGroupName")
        group = self.autoscaling_backend.autoscaling_groups.get(name)
        failing = group is not None and name in world.groups_without_capacity and _lacking(group)
        return ActionResult({"Activities": [_failed_launch(world, name)] if failing else []})

    return describe_scaling_activities


def _failed_launch(world: EmulatorWorld, name: str) -> dict[str, Any]:
    return {
        "ActivityId": "practice-failed-launch",
        "AutoScalingGroupName": name,
        "Cause": f"At {world.utcnow():%Y-%m-%dT%H:%M:%SZ} an instance was started in response to a difference in capacity.",
        "StartTime": world.utcnow(),
        "StatusCode": "Failed",
        "StatusMessage": "We currently do not have sufficient capacity: InsufficientInstanceCapacity. Launching failed.",
        "Progress": 100,
    }
