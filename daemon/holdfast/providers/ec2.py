"""Plain EC2: machines from a launch template, known by tags. Launch, validate, assign, then terminate the old one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import boto3
from botocore.config import Config

from holdfast.model.errors import InsufficientCapacity, NotFound, OutsideError, Rejected, Unavailable
from holdfast.model.machine import Instance, ProviderCan
from holdfast.providers.aws_errors import translated
from holdfast.providers.ec2_permissions import dry_runs
from holdfast.providers.ec2_requests import (
    GONE_STATES,
    LIVE_STATES,
    RETIRED,
    SERVING,
    judge_status,
    read_instance,
    run_request,
    serves,
    state_of,
    tags_of,
)
from holdfast.providers.limits import Limited
from holdfast.providers.settings import Ec2Settings, Offer

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

log = logging.getLogger(__name__)
T = TypeVar("T")

ASG_TAG = "aws:autoscaling:groupName"
"""Set by EC2 Auto Scaling on the machines of a group, which would put a new one in the place of each that we end."""
_FIRST_WAIT_S = 0.1


class Ec2Provider(Limited):
    """``Provider`` on EC2. Thread-safe; every call is bounded by attempts × time-outs of the settings."""

    def __init__(
        self,
        settings: Ec2Settings,
        *,
        session: boto3.session.Session | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._monotonic = monotonic
        self._client = _open_client(settings, session)
        self._settled: set[str] = set()
        """Ids whose being known or unknown to EC2 is believed at once."""

    @property
    def name(self) -> str:
        return "ec2"

    @property
    def can(self) -> ProviderCan:
        first = self._settings.launch_first
        return ProviderCan(reboot=True, replace=True, launch_first=first, status=True, power_off_confirmed=True)

    def instance_of(self, node: str) -> Instance | None:
        """The live machine tagged with the node's name; ``healthy`` is left None.

        Raises Rejected when several claim the name: nobody can tell which one serves."""
        claims = self._serving(node)
        if len(claims) > 1:
            ids = ", ".join(sorted(raw.get("InstanceId", "") for raw in claims))
            raise Rejected(
                f"several live instances are tagged {self._settings.tags.node}={node}: {ids}; "
                "remove the tag from those that do not serve the node"
            )
        return read_instance(claims[0], self._settings.tags) if claims else None

    def instance(self, instance_id: str) -> Instance:
        """One machine with EC2's status checks. An id never seen before may take ``consistency_wait_s`` to be NotFound."""
        raw = self._settle(instance_id, lambda: self._describe(instance_id))
        healthy = self._healthy(instance_id) if state_of(raw) == "running" else None
        return read_instance(raw, self._settings.tags, healthy)

    def launch(self, node: str, *, incident: str, token: str) -> Instance:
        """One machine per token, from the first offer that has capacity.

        Asks for an earlier launch of this token first, since an earlier offer may have capacity again by now.
        InsufficientCapacity names every offer's refusal."""
        earlier = self.find_launched(token)
        if earlier is not None:
            log.info("launch_found node=%s incident=%s instance=%s", node, incident, earlier.instance_id)
            return earlier
        refusals: list[str] = []
        for offer in self._settings.offers:
            try:
                return self._run(offer, node, incident, token)
            except InsufficientCapacity as error:
                refusals.append(f"{offer}: {error}")
        raise InsufficientCapacity(f"no offer has a machine for {node}: {'; '.join(refusals)}")

    def find_launched(self, token: str) -> Instance | None:
        """The live machine of this token; the oldest should there be several, with a warning that names the rest."""
        keys = self._settings.tags
        found = [raw for raw in self._tagged({keys.token: token}) if tags_of(raw).get(keys.token) == token]
        if not found:
            return None
        found.sort(key=lambda raw: (raw.get("LaunchTime", datetime.max.replace(tzinfo=UTC)), raw.get("InstanceId", "")))
        if len(found) > 1:
            extra = ",".join(raw.get("InstanceId", "") for raw in found[1:])
            log.warning("launch_doubled token=%s kept=%s terminate=%s", token, found[0].get("InstanceId"), extra)
        return read_instance(found[0], keys)

    def assign(self, instance_id: str, node: str) -> None:
        """Retire the name's holders, then tag this machine as serving: a crash between leaves nobody serving, not two."""
        self._ours(instance_id, live=True)
        keys = self._settings.tags
        for raw in self._serving(node):
            holder = raw.get("InstanceId", "")
            if holder != instance_id:
                self._tag(holder, {keys.role: RETIRED})
        self._tag(instance_id, {keys.node: node, keys.role: SERVING, "Name": node})
        log.info("assigned node=%s instance=%s", node, instance_id)

    def terminate(self, instance_id: str) -> None:
        """Ask EC2 to end a machine of this cluster; ``instance().state`` says when it is off.

        Success when it is gone or unknown. Raises Rejected for a foreign machine, one of an Auto Scaling group, and
        one with termination protection."""
        try:
            raw = self._ours(instance_id)
        except NotFound:
            log.info("terminate_unknown instance=%s", instance_id)
            return
        if state_of(raw) in GONE_STATES:
            return
        _refuse_asg(raw)
        try:
            with translated("TerminateInstances"):
                self._client.terminate_instances(InstanceIds=[instance_id])
        except NotFound as error:
            # Just described as live: a stale reader, and taking it for gone would leak a machine.
            raise Unavailable(f"EC2 shows {instance_id} and does not know it: ask again") from error
        log.info("terminated instance=%s node=%s", instance_id, tags_of(raw).get(self._settings.tags.node, "-"))

    def reboot(self, instance_id: str, *, incident: str = "", token: str = "") -> None:
        """Ask EC2 to reboot a running machine of this cluster (EC2 forces it after some minutes)."""
        state = state_of(self._ours(instance_id))
        if state != "running":
            raise Rejected(f"{instance_id} is {state}, so it cannot be rebooted")
        with translated("RebootInstances"):
            self._client.reboot_instances(InstanceIds=[instance_id])
        log.info("reboot_asked instance=%s", instance_id)

    def permissions(self, instance_id: str) -> dict[str, OutsideError | None]:
        """EC2 action → None where a dry run would have succeeded, else what stands in the way; changes nothing.

        ``instance_id``: any machine of the cluster. For ``holdfast doctor``; the first offer stands for all."""
        return dry_runs(self._client, self._settings, instance_id)

    def _run(self, offer: Offer, node: str, incident: str, token: str) -> Instance:
        request = run_request(self._settings, offer, node=node, incident=incident, token=token)
        with translated("RunInstances"):
            raw = self._client.run_instances(**request)["Instances"][0]
        launched = read_instance(raw, self._settings.tags)
        log.info(
            "launched node=%s incident=%s instance=%s offer=%s token=%s",
            node, incident, launched.instance_id, offer, request.get("ClientToken"),
        )  # fmt: skip
        return launched

    def _ours(self, instance_id: str, *, live: bool = False) -> InstanceTypeDef:
        """The machine, if it is this cluster's: nothing else is ever touched. Raises Rejected, NotFound."""
        raw = self._settle(instance_id, lambda: self._describe(instance_id))
        cluster = tags_of(raw).get(self._settings.tags.cluster)
        if cluster != self._settings.cluster:
            key = self._settings.tags.cluster
            raise Rejected(f"{instance_id} is not tagged {key}={self._settings.cluster} but {cluster}: left alone")
        if live and state_of(raw) not in LIVE_STATES:
            raise Rejected(f"{instance_id} is {state_of(raw)}, so it can serve no node")
        return raw

    def _serving(self, node: str) -> list[InstanceTypeDef]:
        keys = self._settings.tags
        return [raw for raw in self._tagged({keys.node: node}) if serves(raw, keys, node)]

    def _tagged(self, tags: Mapping[str, str]) -> Iterator[InstanceTypeDef]:
        """Live machines of this cluster with these tags. EC2 reads ``*`` and ``?`` as wildcards: compare again."""
        wanted = {self._settings.tags.cluster: self._settings.cluster, **tags}
        filters: list[FilterTypeDef] = [{"Name": f"tag:{key}", "Values": [value]} for key, value in wanted.items()]
        filters.append({"Name": "instance-state-name", "Values": list(LIVE_STATES)})
        with translated("DescribeInstances"):
            pages = self._client.get_paginator("describe_instances").paginate(
                Filters=filters, PaginationConfig={"PageSize": self._settings.page_size}
            )
            found = [raw for page in pages for r in page["Reservations"] for raw in r.get("Instances", [])]
        self._settled.update(raw.get("InstanceId", "") for raw in found)
        return (raw for raw in found if wanted.items() <= tags_of(raw).items())

    def _describe(self, instance_id: str) -> InstanceTypeDef:
        with translated("DescribeInstances"):
            answer = self._client.describe_instances(InstanceIds=[instance_id])
        for reservation in answer["Reservations"]:
            for raw in reservation.get("Instances", []):
                return raw
        raise NotFound(f"DescribeInstances: EC2 shows no {instance_id}")

    def _healthy(self, instance_id: str) -> bool | None:
        try:
            with translated("DescribeInstanceStatus"):
                answer = self._client.describe_instance_status(InstanceIds=[instance_id], IncludeAllInstances=True)
        except NotFound:
            return None
        statuses = answer["InstanceStatuses"]
        return judge_status(statuses[0]) if statuses else None

    def _tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        def create() -> None:
            with translated("CreateTags"):
                self._client.create_tags(
                    Resources=[instance_id], Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
                )

        self._settle(instance_id, create)

    def _settle(self, instance_id: str, call: Callable[[], T]) -> T:
        """Repeat a call while EC2 does not know an id that it may have given out a moment ago.

        Waited for once per id; from then on NotFound is believed at once."""
        wait_s, deadline = _FIRST_WAIT_S, self._monotonic() + self._settings.consistency_wait_s
        while True:
            try:
                result = call()
            except NotFound:
                if instance_id in self._settled or self._monotonic() >= deadline:
                    self._settled.add(instance_id)
                    raise
                self._sleep(wait_s)
                wait_s = min(2 * wait_s, 1.0)
            else:
                self._settled.add(instance_id)
                return result


def _refuse_asg(raw: InstanceTypeDef) -> None:
    group = tags_of(raw).get(ASG_TAG)
    if group:
        raise Rejected(
            f"{raw.get('InstanceId')} belongs to Auto Scaling group {group}, which would replace it by itself"
        )


def _open_client(settings: Ec2Settings, session: boto3.session.Session | None) -> EC2Client:
    return (session or boto3.session.Session()).client(
        "ec2",
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        config=Config(
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": settings.attempts},
            user_agent_extra="holdfast",
        ),
    )
