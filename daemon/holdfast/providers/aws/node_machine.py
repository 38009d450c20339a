"""Proof that a machine is a node's, before it is replaced."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.model.errors import NotFound, Rejected
from holdfast.model.machine import Instance
from holdfast.providers.aws.calls import Ec2Calls, is_going
from holdfast.providers.aws.instances import read_instance, tags_of

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

log = logging.getLogger(__name__)


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
