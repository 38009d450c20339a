"""Replacement in place, for a full reservation: terminate the old machine, then launch its successor under the node's name.

Every step detects what was done before, so that an interrupted replacement can be repeated: first the token's machine is
searched, then the old one is terminated, then the new one launched, whose ClientToken prevents a second launch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.model.errors import Rejected
from holdfast.model.machine import Instance
from holdfast.providers.aws.calls import Ec2Calls, is_going
from holdfast.providers.aws.instances import SERVING, in_group
from holdfast.providers.aws.node_machine import machine_of
from holdfast.providers.ec2.launch import Ec2Launcher

if TYPE_CHECKING:
    pass

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
