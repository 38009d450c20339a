"""EC2's notices about our machines: failed status checks, scheduled events, spot interruptions, the end of a Capacity Block.

Five filtered requests and one list cover any number of machines: there is no call per machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import NotPermitted
from holdfast.model.machine import Notice, NoticeKind
from holdfast.providers.aws.calls import Ec2Calls
from holdfast.providers.aws.capacity import Reserved, look_up
from holdfast.providers.aws.errors import translated
from holdfast.providers.aws.instances import tags_of
from holdfast.providers.one_line import one_line

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceStatusTypeDef, InstanceTypeDef, SpotInstanceRequestTypeDef

CHECKS = {
    "SystemStatus": "system-status",
    "InstanceStatus": "instance-status",
    "AttachedEbsStatus": "attached-ebs-status",
}
EVENTS = {
    "instance-reboot": NoticeKind.REBOOT,
    "system-reboot": NoticeKind.REBOOT,
    "instance-stop": NoticeKind.STOP,
    "instance-retirement": NoticeKind.STOP,
    "system-maintenance": NoticeKind.STOP,
}
"""EC2's codes of scheduled events."""
INTERRUPTED = ("marked-for-termination", "marked-for-stop")
"""Status codes of spot requests whose machine is about to be reclaimed (EC2 User Guide, "Spot request status")."""
NOTICE = timedelta(minutes=2)
"""Time from the mark to the interruption (EC2 User Guide, "Spot Instance interruption notices")."""
_OVER = re.compile(r"\s*\[[^\]]*\]")
"""Finished events stay listed for up to a week with ``[Completed]`` or ``[Canceled]`` before their text; any other prefix in brackets
is handled the same way."""


def notices(calls: Ec2Calls) -> tuple[Notice, ...]:
    """All notices, by instance id. Raises the core's errors."""
    machines = {raw.get("InstanceId", ""): raw for raw in calls.tagged({})}
    if not machines:
        return ()
    nodes = {instance_id: tags_of(raw).get(calls.keys.node, "") for instance_id, raw in machines.items()}
    said = [
        *_said(calls.client, calls.access.page_size, nodes),
        *_interrupted(calls, machines, nodes),
        *_ending(calls, machines, nodes),
    ]
    return tuple(sorted(said, key=lambda n: (n.instance_id, n.kind, n.code)))


def _said(client: EC2Client, page_size: int, nodes: Mapping[str, str]) -> Iterator[Notice]:
    found: dict[str, InstanceStatusTypeDef] = {}
    questions = {f"{check}.status": ["impaired"] for check in CHECKS.values()} | {"event.code": list(EVENTS)}
    for name, values in questions.items():
        with translated("DescribeInstanceStatus"):
            pages = client.get_paginator("describe_instance_status").paginate(
                Filters=[{"Name": name, "Values": values}], PaginationConfig={"PageSize": page_size}
            )
            found |= {status.get("InstanceId", ""): status for page in pages for status in page["InstanceStatuses"]}
    for instance_id, status in found.items():
        if instance_id in nodes:
            yield from read_status(status, nodes[instance_id])


def read_status(status: InstanceStatusTypeDef, node: str) -> Iterator[Notice]:
    """The notices in one machine's status. Only ``impaired`` counts: missing data and ``initializing`` are ignored."""
    instance_id = status.get("InstanceId", "")
    parts: Mapping[str, Any] = status
    for part, code in CHECKS.items():
        check = parts.get(part, {})
        if check.get("Status") != "impaired":
            continue
        details = [detail for detail in check.get("Details", ()) if detail.get("Status") != "passed"]
        since = min((_utc(detail["ImpairedSince"]) for detail in details if detail.get("ImpairedSince")), default=None)
        names = ", ".join(str(detail.get("Name", "")) for detail in details) or "no name given"
        text = f"EC2's {code.replace('-', ' ')} check is impaired: {names}"
        yield Notice(instance_id, node, NoticeKind.IMPAIRED, code, text, since)
    for event in status.get("Events", ()):
        kind, description = EVENTS.get(str(event.get("Code", ""))), event.get("Description", "")
        if kind is None or _OVER.match(description):
            continue
        at = event.get("NotBefore")
        text = one_line(description) or "EC2 gives no description"
        yield Notice(instance_id, node, kind, str(event.get("Code")), text, _utc(at) if at else None)


def _interrupted(calls: Ec2Calls, machines: Mapping[str, InstanceTypeDef], nodes: Mapping[str, str]) -> list[Notice]:
    if not any(raw.get("InstanceLifecycle") == "spot" for raw in machines.values()):
        return []
    try:
        with translated("DescribeSpotInstanceRequests"):
            pages = calls.client.get_paginator("describe_spot_instance_requests").paginate(
                Filters=[{"Name": "status-code", "Values": list(INTERRUPTED)}],
                PaginationConfig={"PageSize": calls.access.page_size},
            )
            requests = [request for page in pages for request in page["SpotInstanceRequests"]]
    except NotPermitted:  # reported by the doctor; the agents report interruptions too
        return []
    return [n for request in requests for n in read_request(request, nodes)]


def read_request(request: SpotInstanceRequestTypeDef, nodes: Mapping[str, str]) -> Iterator[Notice]:
    """The interruption in one spot request, if its machine is ours."""
    instance_id, status = request.get("InstanceId", ""), request.get("Status", {})
    code, since = str(status.get("Code", "")), status.get("UpdateTime")
    if instance_id not in nodes or code not in INTERRUPTED:
        return
    text = one_line(status.get("Message", "")) or "EC2 takes this spot machine back"
    at = _utc(since) + NOTICE if since else None
    yield Notice(instance_id, nodes[instance_id], NoticeKind.INTERRUPTION, code, text, at)


def _ending(calls: Ec2Calls, machines: Mapping[str, InstanceTypeDef], nodes: Mapping[str, str]) -> Iterable[Notice]:
    reservation_of = {
        instance_id: reservation_id
        for instance_id, raw in machines.items()
        if (reservation_id := raw.get("CapacityReservationId", ""))
    }
    if not reservation_of:
        return ()
    try:
        reserved = look_up(calls.client, reservation_of.values())
    except NotPermitted:  # logged, and reported by the doctor; EC2's other notices are still useful
        return ()
    return read_ends(reservation_of, reserved, nodes, calls.time.now(), calls.access.block_notice_s)


def read_ends(
    reservation_of: Mapping[str, str],
    reserved: Mapping[str, Reserved],
    nodes: Mapping[str, str],
    now: datetime,
    notice_s: float,
) -> Iterator[Notice]:
    """Machines whose Capacity Block ends within ``notice_s``."""
    for instance_id, reservation_id in reservation_of.items():
        known = reserved.get(reservation_id)
        at = known.machines_end_at if known is not None else None
        if known is None or at is None or at > now + timedelta(seconds=notice_s):
            continue
        text = (
            f"Capacity Block {reservation_id} ends at {known.ends_at:%Y-%m-%d %H:%M} UTC; EC2 ends its machines before"
        )
        yield Notice(instance_id, nodes[instance_id], NoticeKind.CAPACITY_END, "capacity-block-end", text, at)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
