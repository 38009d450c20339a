"""Status checks, scheduled events, ReportInstanceStatus, stop and start for moto's EC2.

- checks: initializing, ok, impaired with ImpairedSince, for system, instance and attached volumes; scheduled events;
  DescribeInstanceStatus with EC2's filters and pages, dry runs;
- DescribeSpotInstanceRequests for machines that are about to be reclaimed, by their status code;
- stopping takes time, or hangs until it is forced; a start moves to another host and sets another LaunchTime; spot machines,
  Capacity Blocks and instance-store roots cannot be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.spot_instances import SpotInstances

from holdfast.practice.aws.moto_parts import GONE, STATE_CODES, put
from holdfast.practice.aws.world import EmulatorWorld

CHECKS = {"SystemStatus": "system", "InstanceStatus": "instance", "AttachedEbsStatus": "ebs"}
FILTERS = {
    "system-status.status": "SystemStatus",
    "instance-status.status": "InstanceStatus",
    "attached-ebs-status.status": "AttachedEbsStatus",
}
FOR_EVER_S = 1e9


def install(world: EmulatorWorld) -> None:
    put(Instance, "stop", _stop(world))
    put(Instance, "start", _start(world))
    put(InstanceResponse, "describe_instance_status", _describe_instance_status(world))
    put(SpotInstances, "describe_spot_instance_requests", _describe_spot_instance_requests(world))
    put(InstanceResponse, "report_instance_status", _report_instance_status)


def _describe_instance_status(world: EmulatorWorld) -> Any:
    def describe_instance_status(self: Any) -> Any:
        self.error_on_dryrun()
        ids = self._get_param("InstanceIds", [])
        if ids and self._get_param("MaxResults"):
            raise EC2ClientError("InvalidParameterCombination", "MaxResults is not allowed together with instance ids.")
        everyone = self._get_bool_param("IncludeAllInstances", False)
        backend = self.ec2_backend
        machines = backend.get_multi_instances_by_id(ids) if ids else backend.all_instances()
        shown = [status_of(world, machine) for machine in machines if everyone or machine.state == "running"]
        filters = self._filters_from_querystring()
        passing = [status for status in shown if all(_passes(status, name, filters[name]) for name in filters)]
        first, size = int(self._get_param("NextToken") or 0), int(self._get_param("MaxResults") or FOR_EVER_S)
        more = {"NextToken": str(first + size)} if first + size < len(passing) else {}
        return ActionResult({"InstanceStatuses": passing[first : first + size], **more})

    return describe_instance_status


def _describe_spot_instance_requests(world: EmulatorWorld) -> Any:
    def describe_spot_instance_requests(self: Any) -> Any:
        self.error_on_dryrun()
        filters = self._filters_from_querystring()
        if set(filters) - {"status-code"}:
            raise EC2ClientError("InvalidParameterValue", f"Filters not known here: {', '.join(sorted(filters))}")
        code = "marked-for-termination"
        wanted = code in filters.get("status-code", [code])
        shown = [
            {
                "SpotInstanceRequestId": f"sir-{instance_id[2:10]}",
                "InstanceId": instance_id,
                "State": "active",
                "Status": {"Code": code, "Message": "Your instance is marked for termination.", "UpdateTime": at},
            }
            for instance_id, at in sorted(world.interrupted.items())
        ]
        return ActionResult({"SpotInstanceRequests": shown if wanted else []})

    return describe_spot_instance_requests


def _passes(status: Mapping[str, Any], name: str, values: list[str]) -> bool:
    if name == "event.code":
        return any(event["Code"] in values for event in status.get("Events", ()))
    if name not in FILTERS:
        raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return status[FILTERS[name]]["Status"] in values


def status_of(world: EmulatorWorld, machine: Any) -> dict[str, Any]:
    """One InstanceStatus of the answer."""
    status: dict[str, Any] = {
        "InstanceId": machine.id,
        "AvailabilityZone": machine.availability_zone,
        "InstanceState": {"Name": machine.state, "Code": STATE_CODES[machine.state]},
    }
    status |= {name: _check(world, machine, which) for name, which in CHECKS.items()}
    events = world.events.get(machine.id, [])
    if events:
        status["Events"] = [
            {
                "InstanceEventId": event.event_id,
                "Code": event.code,
                "Description": event.description,
                "NotBefore": event.not_before,
            }
            for event in events
        ]
    return status


def _check(world: EmulatorWorld, machine: Any, which: str) -> dict[str, Any]:
    if machine.state != "running":
        return {"Status": "not-applicable"}
    since = world.impaired.get(machine.id, {}).get(which)
    if since is not None:
        return {
            "Status": "impaired",
            "Details": [{"Name": "reachability", "Status": "failed", "ImpairedSince": since}],
        }
    settled = world.now() - machine._state.since >= world.delays.initializing_s
    passed = {"Name": "reachability", "Status": "passed" if settled else "initializing"}
    return {"Status": "ok" if settled else "initializing", "Details": [passed]}


def _report_instance_status(self: Any) -> Any:
    """Feedback to AWS; changes nothing (the call log shows it)."""
    self.error_on_dryrun()
    self.ec2_backend.get_multi_instances_by_id(self._get_param("Instances", []))
    return EmptyResult()


def _stop(world: EmulatorWorld) -> Any:
    def stop(self: Any) -> Any:
        before = {"Name": self.state, "Code": STATE_CODES[self.state]}
        if self.lifecycle in ("spot", "capacity-block"):
            raise EC2ClientError("UnsupportedOperation", f"You can't stop the {self.lifecycle} instance '{self.id}'.")
        if self.root_device_type == "instance-store":
            raise EC2ClientError(
                "UnsupportedOperation", f"The instance '{self.id}' does not have an 'ebs' root device."
            )
        if self.state == "pending" or self.state in GONE:
            raise EC2ClientError("IncorrectInstanceState", f"The instance '{self.id}' is {self.state}.")
        forced = world.parameters.get("Force") == "true"
        if self.state == "running":
            world.effects.append(self.id)
            self._state.name = "stopped"
            if self.id in world.stuck and not forced:
                self._state.last_at(world.now() + FOR_EVER_S)
        elif self.state == "stopping" and forced:
            world.stuck.discard(self.id)
            self._state.last_at(world.now() + world.delays.shutting_down_s)
        return before

    return stop


def _start(world: EmulatorWorld) -> Any:
    def start(self: Any) -> Any:
        before = {"Name": self.state, "Code": STATE_CODES[self.state]}
        if self.state == "stopping" or self.state in GONE:
            raise EC2ClientError("IncorrectInstanceState", f"The instance '{self.id}' is {self.state}.")
        if self.state == "stopped":
            world.effects.append(self.id)
            world.moves[self.id] = world.moves.get(self.id, 0) + 1
            world.impaired.pop(self.id, None)
            self._state.name = "running"
            # EC2 reports whole seconds, and no stop ends within one: never use the same LaunchTime twice.
            self.launch_time = max(world.utcnow(), self.launch_time + timedelta(seconds=1))
        return before

    return start
