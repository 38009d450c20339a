"""EC2 calls shared by the providers: translated errors, pages, eventual consistency, and access only to our own machines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import boto3

from holdfast.model.errors import NotFound, NotPermitted, Rejected, Unavailable
from holdfast.model.machine import Instance
from holdfast.providers.aws.client import bounds
from holdfast.providers.aws.errors import translated
from holdfast.providers.aws.instances import (
    GONE_STATES,
    LIVE_STATES,
    judge_status,
    read_instance,
    serves,
    state_of,
    tags_of,
)
from holdfast.providers.aws.tags import TagKeys

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

log = logging.getLogger(__name__)
T = TypeVar("T")
_FIRST_WAIT_S = 0.1


class Access(Protocol):
    """Common settings of the providers on EC2."""

    @property
    def cluster(self) -> str: ...
    @property
    def region(self) -> str: ...
    @property
    def endpoint_url(self) -> str | None: ...
    @property
    def tags(self) -> TagKeys: ...
    @property
    def connect_timeout_s(self) -> float: ...
    @property
    def read_timeout_s(self) -> float: ...
    @property
    def attempts(self) -> int: ...
    @property
    def consistency_wait_s(self) -> float: ...
    @property
    def patience_s(self) -> float: ...
    @property
    def block_notice_s(self) -> float: ...
    @property
    def page_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Time:
    """Clocks, replaceable in tests."""

    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


def open_client(service: str, access: Access, session: boto3.session.Session | None) -> Any:
    """A client of one AWS service with the bounds of the settings."""
    return (session or boto3.session.Session()).client(
        service,  # type: ignore[call-overload]  # one of two literal names
        region_name=access.region,
        endpoint_url=access.endpoint_url,
        config=bounds(access.connect_timeout_s, access.read_timeout_s, access.attempts),
    )


class Ec2Calls:
    """Machines of one account within a scope: a tag key and the values that mark our machines. Thread-safe."""

    def __init__(self, access: Access, scope: tuple[str, tuple[str, ...]], client: EC2Client, clock: Time) -> None:
        self.access, self.keys, self.client, self.time = access, access.tags, client, clock
        self._scope = scope
        self._settled: set[str] = set()
        """Ids for which EC2's answer (known or unknown) is trusted at once."""
        self._born_s = clock.monotonic()

    def tagged(self, tags: Mapping[str, str]) -> Iterator[InstanceTypeDef]:
        """Our live machines with these tags. EC2 reads ``*`` and ``?`` as wildcards: compared again here."""
        key, values = self._scope
        filters: list[FilterTypeDef] = [{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]
        filters.append({"Name": f"tag:{key}", "Values": list(values)})
        filters.append({"Name": "instance-state-name", "Values": list(LIVE_STATES)})
        with translated("DescribeInstances"):
            pages = self.client.get_paginator("describe_instances").paginate(
                Filters=filters, PaginationConfig={"PageSize": self.access.page_size}
            )
            found = [raw for page in pages for r in page["Reservations"] for raw in r.get("Instances", [])]
        self._settled.update(raw.get("InstanceId", "") for raw in found)
        return (raw for raw in found if tags.items() <= tags_of(raw).items() and self._is_ours(raw))

    def serving(self, node: str) -> list[InstanceTypeDef]:
        """The live machines that claim to serve the node."""
        return [raw for raw in self.tagged({self.keys.node: node}) if serves(raw, self.keys, node)]

    def launched(self, token: str) -> Instance | None:
        """The live machine of this token; if there are several, the oldest, with a warning that names the rest."""
        found = sorted(self.tagged({self.keys.token: token}), key=age)
        if not found:
            return None
        if len(found) > 1:
            extra = ",".join(raw.get("InstanceId", "") for raw in found[1:])
            log.warning("event=launch_doubled token=%s kept=%s terminate=%s", token, found[0].get("InstanceId"), extra)
        return read_instance(found[0], self.keys)

    def ours(self, instance_id: str, *, live: bool = False) -> InstanceTypeDef:
        """The machine, if it is ours: no other is ever changed. Raises Rejected, NotFound."""
        raw = self.settle(instance_id, lambda: self.describe(instance_id))
        if not self._is_ours(raw):
            key, values = self._scope
            has = tags_of(raw).get(key)
            raise Rejected(f"{instance_id} is not tagged {key}={' or '.join(values)} but {has}: left alone")
        if live and state_of(raw) not in LIVE_STATES:
            raise Rejected(f"{instance_id} is {state_of(raw)}, so it can serve no node")
        return raw

    def ours_if_known(self, instance_id: str) -> InstanceTypeDef | None:
        """The same; None: EC2 does not know the id, for example an hour after termination."""
        try:
            return self.ours(instance_id)
        except NotFound:
            return None

    def describe(self, instance_id: str) -> InstanceTypeDef:
        with translated("DescribeInstances"):
            answer = self.client.describe_instances(InstanceIds=[instance_id])
        for reservation in answer["Reservations"]:
            for raw in reservation.get("Instances", []):
                return raw
        raise NotFound(f"DescribeInstances: EC2 shows no {instance_id}")

    def healthy(self, instance_id: str) -> bool | None:
        """EC2's status checks; None: no result yet."""
        try:
            with translated("DescribeInstanceStatus"):
                answer = self.client.describe_instance_status(InstanceIds=[instance_id], IncludeAllInstances=True)
        except NotFound:
            return None
        statuses = answer["InstanceStatuses"]
        return judge_status(statuses[0]) if statuses else None

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Set tags, all in one call."""

        def create() -> None:
            with translated("CreateTags"):
                self.client.create_tags(
                    Resources=[instance_id], Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
                )

        self.settle(instance_id, create)

    def terminate(self, instance_id: str) -> None:
        """Terminate a machine that was just described as live."""
        try:
            with translated("TerminateInstances"):
                self.client.terminate_instances(InstanceIds=[instance_id])
        except NotFound as error:
            # Just described as live, so this read is stale: treating it as gone would leak a machine.
            raise Unavailable(f"EC2 shows {instance_id} and does not know it: ask again") from error

    def await_off(self, instance_id: str, until_s: float) -> None:
        """Wait until the machine is terminated, or unknown. Raises Unavailable at ``until_s`` (monotonic)."""
        while True:
            raw = self.ours_if_known(instance_id)
            if raw is None or state_of(raw) == "terminated":
                return
            self.pause(until_s, f"{instance_id} is {state_of(raw)}, not off yet")

    def pause(self, until_s: float, why: str) -> None:
        """Wait a moment for a pending change. Raises Unavailable with the reason once ``until_s`` (monotonic) has passed."""
        left_s = until_s - self.time.monotonic()
        if left_s <= 0:
            raise Unavailable(f"{why}: ask again")
        self.time.sleep(min(left_s, max(_FIRST_WAIT_S, self.access.patience_s / 20)))

    def sure(self, look: Callable[[], T]) -> T:
        """Repeat a read while it is refused: a refusal based on EC2's data is trusted only if it lasts (tags and states may be late)."""
        deadline = self.time.monotonic() + self.access.consistency_wait_s
        while True:
            try:
                return look()
            except NotPermitted:
                raise
            except Rejected:
                if self.time.monotonic() >= deadline:
                    raise
                self.time.sleep(5 * _FIRST_WAIT_S)

    def await_consistency(self) -> None:
        """Wait after the start until EC2 shows the changes of the previous process."""
        left_s = self._born_s + self.access.consistency_wait_s - self.time.monotonic()
        if left_s > 0:
            self.time.sleep(left_s)

    def settle(self, instance_id: str, call: Callable[[], T]) -> T:
        """Repeat a call while EC2 does not know an id that it may have issued a moment ago.

        Waits once per id; from then on NotFound is trusted at once."""
        wait_s, deadline = _FIRST_WAIT_S, self.time.monotonic() + self.access.consistency_wait_s
        while True:
            try:
                result = call()
            except NotFound:
                if instance_id in self._settled or self.time.monotonic() >= deadline:
                    self._settled.add(instance_id)
                    raise
                self.time.sleep(wait_s)
                wait_s = min(2 * wait_s, 1.0)
            else:
                self._settled.add(instance_id)
                return result

    def _is_ours(self, raw: InstanceTypeDef) -> bool:
        key, values = self._scope
        return tags_of(raw).get(key) in values


def age(raw: InstanceTypeDef) -> tuple[datetime, str]:
    """Sort key: the oldest machine first; one without a LaunchTime is the newest."""
    return (raw.get("LaunchTime", datetime.max.replace(tzinfo=UTC)), raw.get("InstanceId", ""))


def is_going(raw: InstanceTypeDef | None) -> bool:
    """Whether a machine is ending, gone, or no longer known."""
    return raw is None or state_of(raw) in GONE_STATES
