"""EC2 Auto Scaling groups: the group terminates and launches machines, Holdfast gives them node names.

A replacement terminates the old machine through its group, waits until it is off, and gives the node's name to a machine that
the group has launched since and that has none. One tag call sets name and token, so that an interruption leaves both or neither."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import boto3

from holdfast.model.errors import InsufficientCapacity, OutsideError, Rejected
from holdfast.model.machine import Instance, ProviderCan
from holdfast.providers.asg.groups import AutoScalingGroup, Groups
from holdfast.providers.asg.settings import AsgSettings
from holdfast.providers.aws.calls import Ec2Calls, Time, age, is_going, open_client
from holdfast.providers.aws.instances import ASG_TAG, SERVING, in_group, read_instance, tags_of
from holdfast.providers.aws.machines import Ec2Machines
from holdfast.providers.aws.node_machine import machine_of
from holdfast.providers.aws.permissions import obstacles, shared

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

log = logging.getLogger(__name__)


class AsgProvider(Ec2Machines):
    """``Provider`` on EC2 Auto Scaling. Thread-safe; every call is bounded."""

    def __init__(
        self,
        settings: AsgSettings,
        *,
        session: boto3.session.Session | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        client = open_client("ec2", settings, session)
        super().__init__(Ec2Calls(settings, (ASG_TAG, settings.groups), client, Time(sleep, monotonic)))
        self._settings = settings
        self._groups = Groups(open_client("autoscaling", settings, session), settings.groups)
        self._naming = threading.Lock()
        """Held while a machine is chosen and named: two nodes must not get the same one."""
        self._named: dict[str, str] = {}
        """Instance id → node whose name this process gave it, or may have given it; EC2 may show a tag late."""

    @property
    def name(self) -> str:
        return "asg"

    @property
    def can(self) -> ProviderCan:
        return ProviderCan(
            reboot=True,
            replace=True,
            launch_first=False,
            status=True,
            power_off_confirmed=True,
            replace_in_place=True,
            report_fault=True,
            announces=True,
        )

    def replace(self, node: str, instance_id: str, *, incident: str, token: str) -> Instance:
        """Have the group replace the node's machine, and name the new one. Returns the new one.

        Raises Unavailable until the old one is off and the group has launched another, InsufficientCapacity when the group
        reports a failed launch, Rejected for a machine that is not the node's and for a group that would launch none."""
        until_s = self._calls.time.monotonic() + self._settings.patience_s
        made = self._calls.launched(token)
        if made is not None:
            return made
        old, successor = self._calls.sure(lambda: machine_of(self._calls, node, instance_id))
        if successor is not None:
            return successor
        if old is not None and not is_going(old):
            self._end(node, instance_id, in_group(old), token)
        self._calls.await_off(instance_id, until_s)
        while True:
            new = self._name(node, old, incident, token)
            if new is not None:
                return new
            self._ask_why(old, node)
            self._calls.pause(until_s, f"the Auto Scaling group has launched no machine for {node} yet")

    def permissions(self, instance_id: str) -> dict[str, OutsideError | None]:
        """Action → None where it would have succeeded, else the obstacle; changes nothing.

        By dry runs where EC2 has them, otherwise by reading. The permission to have the group replace a machine cannot be checked."""
        member = self._calls.ours(instance_id)
        questions = {
            "DescribeAutoScalingGroups": self._groups.all,
            "DescribeScalingActivities": lambda: self._groups.failure(in_group(member)),
        }
        return obstacles({**shared(self._calls.client, self._settings, instance_id), **questions})

    def _end(self, node: str, instance_id: str, group_name: str, token: str) -> None:
        """Order the replacement, unless it was ordered. The tag on the old machine is for operators."""
        way = self._settings.replace_by
        group = self._calls.sure(lambda: self._willing(group_name, instance_id))
        if group is None or group.members[instance_id].going:
            return
        self._calls.tag(instance_id, {self._keys.order: f"replace {token}"})
        self._groups.end(instance_id, way)
        log.info("event=group_replaces group=%s node=%s instance=%s by=%s", group_name, node, instance_id, way)

    def _willing(self, group_name: str, instance_id: str) -> AutoScalingGroup | None:
        """The group, if it would replace the machine; None: the machine has ended meanwhile, by an order whose answer was lost."""
        group = self._groups.all()[group_name]
        if instance_id not in group.members and is_going(self._calls.ours_if_known(instance_id)):
            return None
        why_not = group.cannot_replace(instance_id, self._settings.replace_by)
        if why_not:
            raise Rejected(why_not)
        return group

    def _name(self, node: str, old: InstanceTypeDef | None, incident: str, token: str) -> Instance | None:
        """Give the node's name to a new machine, once. None: the group has none yet."""
        self._calls.await_consistency()
        with self._naming:
            groups = self._groups.all()
            wanted = [groups[in_group(old)]] if old is not None and in_group(old) in groups else groups.values()
            new = self._unnamed(wanted, old, node)
            if new is None:
                return None
            instance_id = new.get("InstanceId", "")
            keys = self._keys
            tags = {
                keys.cluster: self._settings.cluster,
                keys.node: node,
                keys.incident: incident,
                keys.token: token,
                keys.role: SERVING,
                "Name": node,
            }
            self._named[instance_id] = node
            self._calls.tag(instance_id, tags)
        log.info("event=named node=%s instance=%s incident=%s token=%s", node, instance_id, incident, token)
        shown = dict(new) | {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        return read_instance(shown, self._keys)  # type: ignore[arg-type]  # the machine with its new tags

    def _unnamed(
        self, groups: Iterable[AutoScalingGroup], old: InstanceTypeDef | None, node: str
    ) -> InstanceTypeDef | None:
        """The oldest live member without a node that was launched no earlier than the old machine; one meant for this node comes first."""
        counting = {i for group in groups for i, member in group.members.items() if member.counts and member.healthy}
        since: datetime | None = old.get("LaunchTime") if old is not None else None
        found = [
            raw
            for raw in self._calls.tagged({})
            if (instance_id := raw.get("InstanceId", "")) in counting
            and self._named.get(instance_id, node) == node
            and tags_of(raw).get(self._keys.node, node) == node
            and (instance_id in self._named or self._keys.node not in tags_of(raw))
            and (since is None or age(raw)[0] >= since)  # EC2 reports whole seconds
        ]
        return min(found, key=lambda raw: (raw.get("InstanceId") not in self._named, age(raw)), default=None)

    def _ask_why(self, old: InstanceTypeDef | None, node: str) -> None:
        """Raise at once if the group cannot launch, instead of waiting."""
        name = in_group(old) if old is not None else ""
        group = self._groups.all().get(name)
        if group is None:
            return
        why_not = group.cannot_launch("terminate")
        if why_not:
            raise Rejected(why_not)
        failed = self._groups.failure(name)
        if failed:
            raise InsufficientCapacity(f"Auto Scaling group {name} has no machine for {node}: {failed}")
