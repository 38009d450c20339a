"""Stop and start: moves a machine to another host under the same instance id. Idempotent by a tag written once the stop is accepted.

The tag holds the token, the LaunchTime that the machine had, and when it was stopped. A start gives the machine a new
LaunchTime: by that a repeated call distinguishes a restarted machine from one that EC2 still shows as running."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.machine import Instance
from holdfast.providers.aws.calls import Ec2Calls
from holdfast.providers.aws.errors import translated
from holdfast.providers.aws.instances import GONE_STATES, in_group, read_instance, state_of, tags_of

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

log = logging.getLogger(__name__)
VERB = "stop"


@dataclass(frozen=True, slots=True)
class StopOrder:
    """Content of the tag."""

    token: str
    launched_s: float
    """Unix time of the LaunchTime before the stop."""
    ordered_s: float

    def __str__(self) -> str:
        return f"{VERB} {self.token} {self.launched_s:.3f} {self.ordered_s:.0f}"


def read_order(text: str) -> StopOrder | None:
    """The order in the tag; None: it is not ours, or is for another action."""
    words = text.split(" ")
    if len(words) != 4 or words[0] != VERB:
        return None
    try:
        return StopOrder(words[1], float(words[2]), float(words[3]))
    except ValueError:
        return None


def cannot_stop(raw: InstanceTypeDef) -> str:
    """Why this machine cannot be stopped and started; empty: it can."""
    instance_id, kind = raw.get("InstanceId", ""), str(raw.get("InstanceLifecycle", ""))
    if kind in ("spot", "capacity-block"):
        return f"{instance_id} is a {kind} machine, which cannot be stopped and started: replace it"
    if raw.get("RootDeviceType") == "instance-store":
        return f"{instance_id} has its root on an instance store, so it cannot be stopped: replace it"
    group = in_group(raw)
    if group:
        return f"{instance_id} belongs to Auto Scaling group {group}, which would replace it once it is stopped"
    if state_of(raw) in GONE_STATES:
        return f"{instance_id} is {state_of(raw)}, so it cannot be started"
    return ""


def stop_start(
    calls: Ec2Calls, orders: MutableMapping[str, StopOrder], instance_id: str, *, token: str, force_after_s: float
) -> Instance:
    """Stop the machine, wait for it, start it. Returns once the start is accepted, or was before.

    ``orders``: orders of this process, by token; EC2 may show a tag late. Raises Unavailable while it is stopping (ask
    again with the same token), InsufficientCapacity while no host takes it (it stays stopped), Rejected for one that cannot be
    stopped."""
    if not token or " " in token:
        raise Rejected(f"a token without spaces is needed to stop and start {instance_id}, not {token!r}")
    until_s = calls.time.monotonic() + calls.access.patience_s
    order = orders.get(token) or _ordered(calls, instance_id, token)
    if order is None:
        calls.await_consistency()
        order = _ordered(calls, instance_id, token) or _stop(calls, instance_id, token)
    orders[token] = order
    if tags_of(calls.ours(instance_id)).get(calls.keys.order) != str(order):
        calls.tag(instance_id, {calls.keys.order: str(order)})
    while True:
        raw = calls.describe(instance_id)
        state = state_of(raw)
        if _launched_s(raw) > order.launched_s:
            return read_instance(raw, calls.keys)
        if state in GONE_STATES:
            raise Rejected(cannot_stop(raw))
        if state == "stopped":
            return _start(calls, raw)
        age_s = calls.time.now().timestamp() - order.ordered_s
        if state == "stopping" and age_s >= force_after_s:
            _call_stop(calls, instance_id, force=True)
        elif state == "running" and age_s > calls.access.consistency_wait_s:
            _call_stop(calls, instance_id, force=False)  # neither started since nor stopped: order the stop again
        calls.pause(until_s, f"{instance_id} is {state} while it is stopped and started")


def _ordered(calls: Ec2Calls, instance_id: str, token: str) -> StopOrder | None:
    order = read_order(tags_of(calls.ours(instance_id)).get(calls.keys.order, ""))
    return order if order is not None and order.token == token else None


def _stop(calls: Ec2Calls, instance_id: str, token: str) -> StopOrder:
    raw = calls.ours(instance_id)
    why_not = cannot_stop(raw)
    if why_not:
        raise Rejected(why_not)
    if state_of(raw) == "pending":
        raise Unavailable(f"{instance_id} is pending, so it cannot be stopped yet: ask again")
    _call_stop(calls, instance_id, force=False)
    return StopOrder(token, _launched_s(raw), calls.time.now().timestamp())


def _call_stop(calls: Ec2Calls, instance_id: str, *, force: bool) -> None:
    with translated("StopInstances"):
        calls.client.stop_instances(InstanceIds=[instance_id], Force=force)
    log.info("event=stop_asked instance=%s force=%s", instance_id, str(force).lower())


def _start(calls: Ec2Calls, raw: InstanceTypeDef) -> Instance:
    instance_id = raw.get("InstanceId", "")
    with translated("StartInstances"):
        calls.client.start_instances(InstanceIds=[instance_id])
    log.info("event=start_asked instance=%s", instance_id)
    return replace(read_instance(raw, calls.keys), state="pending")


def _launched_s(raw: InstanceTypeDef) -> float:
    """Time with the precision of the tag."""
    return round(raw.get("LaunchTime", datetime.fromtimestamp(0, UTC)).timestamp(), 3)
