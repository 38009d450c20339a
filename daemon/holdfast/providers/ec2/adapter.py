"""Provider ``ec2``: machines from a launch template, identified by tags.

With free capacity: launch, validate, assign, then terminate the old one. In a full reservation: replace in place."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import boto3

from holdfast.model.errors import NotFound, OutsideError, Rejected
from holdfast.model.machine import Instance, ProviderCan
from holdfast.providers.aws.calls import Ec2Calls, Time, is_going, open_client
from holdfast.providers.aws.instances import CANDIDATE, RETIRED, SERVING, in_group, read_instance, tags_of
from holdfast.providers.aws.machines import Ec2Machines
from holdfast.providers.ec2.exchange import exchange
from holdfast.providers.ec2.launch import Ec2Launcher
from holdfast.providers.ec2.permissions import dry_runs
from holdfast.providers.ec2.settings import Ec2Settings
from holdfast.providers.ec2.stop_start import StopOrder, stop_start

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

log = logging.getLogger(__name__)


class Ec2Provider(Ec2Machines):
    """``Provider`` on EC2. Thread-safe; every call is bounded by attempts × timeouts of the settings."""

    def __init__(
        self,
        settings: Ec2Settings,
        *,
        session: boto3.session.Session | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        client: EC2Client = open_client("ec2", settings, session)
        scope = (settings.tags.cluster, (settings.cluster,))
        super().__init__(Ec2Calls(settings, scope, client, Time(sleep, monotonic)))
        self._settings = settings
        self._launcher = Ec2Launcher(self._calls, settings)
        self._stops: dict[str, StopOrder] = {}

    @property
    def name(self) -> str:
        return "ec2"

    @property
    def can(self) -> ProviderCan:
        first = self._settings.launch_first
        return ProviderCan(
            reboot=True,
            replace=True,
            launch_first=first,
            status=True,
            power_off_confirmed=True,
            replace_in_place=not first,
            stop_start=True,
            report_fault=True,
            announces=True,
        )

    def on_trial(self) -> tuple[Instance, ...]:
        """Live machines launched for a replacement that serve no node yet: the candidates, by their tags."""
        found = self._calls.tagged({self._keys.role: CANDIDATE})
        return tuple(sorted((read_instance(raw, self._keys) for raw in found), key=lambda i: i.instance_id))

    def launch(self, node: str, *, incident: str, token: str) -> Instance:
        """Launch one machine per token, from the first offer that has capacity: a candidate for the node's name."""
        if not self._settings.launch_first:
            self._refuse(f"launch a machine for {node} in addition to the old one: launch_first is false")
        return self._launcher.launch(node, incident=incident, token=token, role=CANDIDATE)

    def assign(self, instance_id: str, node: str) -> None:
        """Retire the name's holders, then tag this machine as serving: a crash in between leaves no machine serving rather than two."""
        self._calls.ours(instance_id, live=True)
        for raw in self._calls.serving(node):
            holder = raw.get("InstanceId", "")
            if holder != instance_id:
                self._calls.tag(holder, {self._keys.role: RETIRED})
        self._calls.tag(instance_id, {self._keys.node: node, self._keys.role: SERVING, "Name": node})
        log.info("event=assigned node=%s instance=%s", node, instance_id)

    def terminate(self, instance_id: str) -> None:
        """Ask EC2 to terminate a machine of this cluster; ``instance().state`` shows when it is off.

        Success when it is gone or unknown. Raises Rejected for a foreign machine, one of an Auto Scaling group, one with
        termination protection, and where machines are replaced in place: a termination alone would leave the node without one."""
        if not self._settings.launch_first:
            self._refuse(f"terminate {instance_id} alone: launch_first is false, so it is replaced in place")
        try:
            raw = self._calls.ours(instance_id)
        except NotFound:
            log.info("event=terminate_unknown instance=%s", instance_id)
            return
        if is_going(raw):
            return
        group = in_group(raw)
        if group:
            raise Rejected(f"{instance_id} belongs to Auto Scaling group {group}, which would replace it")
        self._calls.terminate(instance_id)
        log.info("event=terminated instance=%s node=%s", instance_id, tags_of(raw).get(self._keys.node, "-"))

    def replace(self, node: str, instance_id: str, *, incident: str, token: str) -> Instance:
        """Terminate the node's machine and launch the next under its name; see ``exchange``. Rejected where a machine can be
        launched while the old one exists."""
        if self._settings.launch_first:
            self._refuse(f"exchange the machine of {node} in place: launch_first is true")
        return exchange(self._calls, self._launcher, node=node, instance_id=instance_id, incident=incident, token=token)

    def stop_start(self, instance_id: str, *, incident: str, token: str) -> Instance:
        """Stop and start a machine of this cluster, which moves it to another host; see ``stop_start``."""
        force_after_s = self._settings.force_stop_s
        made = stop_start(self._calls, self._stops, instance_id, token=token, force_after_s=force_after_s)
        log.info("event=stopped_and_started instance=%s incident=%s token=%s", instance_id, incident, token)
        return made

    def permissions(self, instance_id: str) -> dict[str, OutsideError | None]:
        """EC2 action → None where a dry run would have succeeded, else the obstacle; changes nothing.

        ``instance_id``: any machine of the cluster. For ``holdfast doctor``; only the first offer is checked."""
        return dry_runs(self._calls.client, self._settings, instance_id)
