"""Common part of the providers on EC2: show machines, reboot them, pass on EC2's notices."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from holdfast.model.errors import Rejected
from holdfast.model.machine import Instance, MetadataOptions, Notice
from holdfast.providers.aws.calls import Ec2Calls
from holdfast.providers.aws.errors import translated
from holdfast.providers.aws.instances import read_instance, read_metadata_options, reason_codes, state_of
from holdfast.providers.aws.notices import notices
from holdfast.providers.limits import LimitedProvider
from holdfast.providers.one_line import one_line

log = logging.getLogger(__name__)


class Ec2Machines(LimitedProvider):
    """Our machines on EC2. Thread-safe; every call is bounded by attempts × timeouts of the settings."""

    def __init__(self, calls: Ec2Calls) -> None:
        self._calls = calls
        self._keys = calls.keys

    def instance_of(self, node: str) -> Instance | None:
        """The live machine tagged with the node's name; ``healthy`` is left None.

        Raises Rejected when several claim the name: it is unknown which one serves."""
        claims = self._calls.serving(node)
        if len(claims) > 1:
            ids = ", ".join(sorted(raw.get("InstanceId", "") for raw in claims))
            raise Rejected(
                f"several live instances are tagged {self._keys.node}={node}: {ids}; "
                "remove the tag from those that do not serve the node"
            )
        return read_instance(claims[0], self._keys) if claims else None

    def instance(self, instance_id: str) -> Instance:
        """One machine with EC2's status checks. An id never seen before may take ``consistency_wait_s`` to be NotFound."""
        raw = self._calls.settle(instance_id, lambda: self._calls.describe(instance_id))
        healthy = self._calls.healthy(instance_id) if state_of(raw) == "running" else None
        return read_instance(raw, self._keys, healthy)

    def metadata_options(self, instance_id: str) -> MetadataOptions | None:
        """Of any machine, ours or not (the head node is not ours). None: EC2 does not report it."""
        return read_metadata_options(self._calls.describe(instance_id))

    def find_launched(self, token: str) -> Instance | None:
        """The live machine of this token; if there are several, the oldest, with a warning that names the rest."""
        return self._calls.launched(token)

    def notices(self) -> tuple[Notice, ...]:
        """Failed status checks, scheduled events that are not over, Capacity Blocks that end soon."""
        return notices(self._calls)

    def reboot(self, instance_id: str, *, incident: str = "", token: str = "") -> None:
        """Ask EC2 to reboot a running machine of ours (EC2 forces it after some minutes). EC2 keeps no token of a reboot:
        compare boot ids before you repeat it."""
        state = state_of(self._calls.ours(instance_id))
        if state != "running":
            raise Rejected(f"{instance_id} is {state}, so it cannot be rebooted")
        with translated("RebootInstances"):
            self._calls.client.reboot_instances(InstanceIds=[instance_id])
        log.info("event=reboot_asked instance=%s incident=%s token=%s", instance_id, incident or "-", token or "-")

    def report_fault(self, instance_id: str, *, since: datetime, text: str) -> None:
        """ReportInstanceStatus: feedback to AWS, which changes nothing and gets no reply."""
        self._calls.ours(instance_id)
        with translated("ReportInstanceStatus"):
            self._calls.client.report_instance_status(
                Instances=[instance_id],
                Status="impaired",
                ReasonCodes=reason_codes(text),
                StartTime=since.astimezone(UTC),
                Description=one_line(text),
            )
        log.info("event=fault_reported instance=%s", instance_id)
