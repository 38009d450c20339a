"""Check of permissions by dry runs, and the questions that every provider on EC2 asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from holdfast.model.errors import OutsideError
from holdfast.providers.aws.calls import Access
from holdfast.providers.aws.errors import error_code, translate

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

WOULD_SUCCEED = "DryRunOperation"
"""EC2's error code for a dry run that would have succeeded."""


Questions = Mapping[str, Callable[[], object]]
"""Action → the call that shows whether it is permitted and changes nothing."""


def shared(client: EC2Client, access: Access, instance_id: str, reservations: Sequence[str] = ()) -> Questions:
    """Permissions that every provider on EC2 needs."""
    ids = [instance_id]
    tag = {"Key": access.tags.cluster, "Value": access.cluster}
    return {
        "DescribeInstances": lambda: client.describe_instances(InstanceIds=ids, DryRun=True),
        "DescribeInstanceStatus": lambda: client.describe_instance_status(InstanceIds=ids, DryRun=True),
        "DescribeSpotInstanceRequests": lambda: client.describe_spot_instance_requests(DryRun=True),
        "DescribeCapacityReservations": lambda: client.describe_capacity_reservations(
            CapacityReservationIds=list(reservations), DryRun=True
        ),
        "CreateTags": lambda: client.create_tags(Resources=ids, Tags=[tag], DryRun=True),  # type: ignore[list-item]
        "RebootInstances": lambda: client.reboot_instances(InstanceIds=ids, DryRun=True),
        "ReportInstanceStatus": lambda: client.report_instance_status(
            Instances=ids, Status="impaired", ReasonCodes=["other"], DryRun=True
        ),
    }


def obstacles(questions: Questions) -> dict[str, OutsideError | None]:
    """Check each action. Action → None when it would succeed, else the error that it would meet."""
    return {action: _obstacle(action, call) for action, call in questions.items()}


def _obstacle(action: str, call: Callable[[], object]) -> OutsideError | None:
    try:
        call()
    except ClientError as error:
        return None if error_code(error) == WOULD_SUCCEED else translate(action, error)
    except BotoCoreError as error:
        return translate(action, error)
    except OutsideError as error:
        return error
    return None
