"""Replacement in place, for a full reservation: terminate the old machine, then launch its successor under the node's name.

Every step detects what was done before, so that an interrupted replacement can be repeated: first the token's machine is
searched, then the old one is terminated, then the new one launched, whose ClientToken prevents a second launch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.model.errors import NotFound, Rejected
from holdfast.model.machine import Instance
from holdfast.providers.ec2.calls import Ec2Calls, is_going
from holdfast.providers.ec2.launch import Ec2Launcher
from holdfast.providers.ec2.requests import SERVING, in_group, read_instance, tags_of

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

log = logging.getLogger(__name__)


def exchange(
    calls: Ec2Calls, launcher: Ec2Launcher, *, node: str, instance_id: str, incident: str, token: str
) -> Instance:
    """Terminate the node's machine, wait until it is off, launch the next one. Returns the new one.

    Raises Unavailable while the old one is shutting down, InsufficientCapacity while there is no place for the new one (the node has
    no machine then: call again with the same token), Rejected for a machine that is not the node's."""
    until_s = calls.time.monotonic() + calls.access.patience_s
    made = calls.launched(token)
    if made is not None:
        return made
    old, successor = calls.sure(lambda: machine_of(calls, node, instance_id))
    if successor is not None:
        return successor
    if old is not None and not is_going(old):
        group = in_group(old)
        if group:
            raise Rejected(f"{instance_id} belongs to Auto Scaling group {group}: that is provider asg's to replace")
        launcher.prove_worthwhile(node)
        calls.terminate(instance_id)
        log.info("event=terminated instance=%s node=%s", instance_id, node)
    calls.await_off(instance_id, until_s)
    return launcher.launch(node, incident=incident, token=token, role=SERVING)


def machine_of(calls: Ec2Calls, node: str, instance_id: str) -> tuple[InstanceTypeDef | None, Instance | None]:
    """The node's machine (None: EC2 has forgotten it), and the one that has taken its place, if one has already.

    Raises Rejected for a machine that is not the node's, or not its only one; NotFound for an unknown one of a node that is served."""
    old = calls.ours_if_known(instance_id)
    others = [raw for raw in calls.serving(node) if raw.get("InstanceId") != instance_id]
    names = ", ".join(raw.get("InstanceId", "") for raw in others)
    if old is None and others:
        raise NotFound(f"EC2 does not know {instance_id}; {node} is served by {names}")
    if old is None:
        log.info("event=replace_unknown node=%s instance=%s", node, instance_id)
        return None, None
    whose = tags_of(old).get(calls.keys.node, "")
    if whose != node:
        owner = f"is {whose}'s machine" if whose else "belongs to no node"
        raise Rejected(f"{instance_id} {owner}, not {node}'s: left alone")
    if is_going(old):
        return old, read_instance(others[0], calls.keys) if others else None
    if others:
        raise Rejected(
            f"{node} is served by {names} in addition to {instance_id}: remove the tag from those that do not"
        )
    return old, None
