"""Whether EC2 would let us act, asked by dry runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from holdfast.model.errors import OutsideError
from holdfast.providers.aws_errors import error_code, translate
from holdfast.providers.ec2_requests import run_request
from holdfast.providers.settings import Ec2Settings

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

WOULD_SUCCEED = "DryRunOperation"
"""The error code by which EC2 says that the call would have been carried out."""


def dry_runs(client: EC2Client, settings: Ec2Settings, instance_id: str) -> dict[str, OutsideError | None]:
    """Action → None when it would succeed, else the error that it would meet."""
    request = run_request(settings, settings.offers[0], node="dry-run", incident="dry-run", token="dry-run")  # noqa: S106
    request["DryRun"] = True
    ids = [instance_id]
    reservations = [offer.capacity_reservation_id for offer in settings.offers if offer.capacity_reservation_id]
    tag = {"Key": settings.tags.cluster, "Value": settings.cluster}
    calls: dict[str, Callable[[], object]] = {
        "DescribeInstances": lambda: client.describe_instances(InstanceIds=ids, DryRun=True),
        "DescribeInstanceStatus": lambda: client.describe_instance_status(InstanceIds=ids, DryRun=True),
        "RunInstances": lambda: client.run_instances(**request),
        "CreateTags": lambda: client.create_tags(Resources=ids, Tags=[tag], DryRun=True),  # type: ignore[list-item]
        "TerminateInstances": lambda: client.terminate_instances(InstanceIds=ids, DryRun=True),
        "RebootInstances": lambda: client.reboot_instances(InstanceIds=ids, DryRun=True),
        "StopInstances": lambda: client.stop_instances(InstanceIds=ids, DryRun=True),
        "StartInstances": lambda: client.start_instances(InstanceIds=ids, DryRun=True),
        "ReportInstanceStatus": lambda: client.report_instance_status(
            Instances=ids, Status="impaired", ReasonCodes=["other"], DryRun=True
        ),
        "DescribeCapacityReservations": lambda: client.describe_capacity_reservations(
            CapacityReservationIds=reservations, DryRun=True
        ),
    }
    return {action: _obstacle(action, call) for action, call in calls.items()}


def _obstacle(action: str, call: Callable[[], object]) -> OutsideError | None:
    try:
        call()
    except ClientError as error:
        return None if error_code(error) == WOULD_SUCCEED else translate(action, error)
    except BotoCoreError as error:
        return translate(action, error)
    return None
