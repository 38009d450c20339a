"""Control verb ``GET /_practice/instances``: the actual state of EC2, regardless of faults and delays in its API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from holdfast.practice.aws import REGION

if TYPE_CHECKING:
    from holdfast.practice.aws.emulator import Emulator


def instances(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    """Every instance of the practice's region with its state and tags, including terminated ones."""
    backend = ec2_backends[DEFAULT_ACCOUNT_ID][REGION]
    emulator.world.lag_s = 0.0
    return [
        {"id": instance.id, "state": instance.state, "tags": {tag["key"]: tag["value"] for tag in instance.get_tags()}}
        for reservation in backend.reservations.values()
        for instance in reservation.instances
    ]
