"""The permissions that launches, stops and ends of machines need, checked by dry runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model.errors import OutsideError
from holdfast.providers.aws.permissions import obstacles, shared
from holdfast.providers.ec2.requests import run_request
from holdfast.providers.ec2.settings import Ec2Settings

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


def dry_runs(client: EC2Client, settings: Ec2Settings, instance_id: str) -> dict[str, OutsideError | None]:
    """Action → None when it would succeed, else the error that it would meet."""
    request = run_request(settings, settings.offers[0], node="dry-run", incident="dry-run", token="dry-run")  # noqa: S106
    request["DryRun"] = True
    ids = [instance_id]
    calls: dict[str, Callable[[], object]] = {
        "RunInstances": lambda: client.run_instances(**request),
        "TerminateInstances": lambda: client.terminate_instances(InstanceIds=ids, DryRun=True),
        "StopInstances": lambda: client.stop_instances(InstanceIds=ids, DryRun=True),
        "StartInstances": lambda: client.start_instances(InstanceIds=ids, DryRun=True),
    }
    reservations = [offer.capacity_reservation_id for offer in settings.offers if offer.capacity_reservation_id]
    return obstacles({**shared(client, settings, instance_id, reservations), **calls})
