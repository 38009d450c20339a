"""Capacity reservations and Capacity Blocks: when they end, and the consequences. Pure, except for one API call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.model.errors import InsufficientCapacity, NotPermitted, Rejected
from holdfast.providers.aws.errors import translated

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import CapacityReservationTypeDef

BLOCK = "capacity-block"
CLEARED_BEFORE = timedelta(minutes=30)
"""EC2 ends the machines of a Capacity Block from 30 minutes before its end on (EC2 User Guide, Capacity Blocks)."""
ULTRASERVER_CLEARED_BEFORE = timedelta(minutes=60)
ULTRASERVERS = ("p6e-", "trn2u.")
"""Instance types that come as UltraServers."""
_PAGE_IDS = 100


@dataclass(frozen=True, slots=True)
class Reserved:
    """The relevant fields of a capacity reservation."""

    reservation_id: str
    state: str
    """``active``, ``expired``, ``cancelled``, ``scheduled`` … as EC2 spells them."""
    block: bool
    """Its machines end with it; those of an ordinary reservation continue as on-demand machines."""
    instance_type: str = ""
    ends_at: datetime | None = None

    @property
    def machines_end_at(self) -> datetime | None:
        """When EC2 starts to terminate its machines; None: not because of the reservation."""
        if not self.block or self.ends_at is None:
            return None
        ultra = self.instance_type.startswith(ULTRASERVERS)
        return self.ends_at - (ULTRASERVER_CLEARED_BEFORE if ultra else CLEARED_BEFORE)


def look_up(client: EC2Client, ids: Iterable[str]) -> dict[str, Reserved]:
    """The reservations of these ids, without those that EC2 does not know (any more). Raises the core's errors."""
    wanted = sorted({reservation_id for reservation_id in ids if reservation_id})
    found: dict[str, Reserved] = {}
    for first in range(0, len(wanted), _PAGE_IDS):
        found |= _known(client, wanted[first : first + _PAGE_IDS])
    return found


def _known(client: EC2Client, ids: list[str]) -> dict[str, Reserved]:
    """Read the reservations; since one unknown id fails a whole call, each is then requested separately."""
    try:
        with translated("DescribeCapacityReservations"):
            answer = client.describe_capacity_reservations(CapacityReservationIds=ids)
    except NotPermitted:
        raise
    except (Rejected, InsufficientCapacity):  # the latter for an id that a launch would be refused for
        one_by_one = [_known(client, [reservation_id]) for reservation_id in ids] if len(ids) > 1 else []
        return {name: one for known in one_by_one for name, one in known.items()}
    return {one.reservation_id: one for one in map(_read, answer["CapacityReservations"])}


def _read(raw: CapacityReservationTypeDef) -> Reserved:
    ends_at = raw.get("EndDate")
    return Reserved(
        raw.get("CapacityReservationId", ""),
        str(raw.get("State", "")),
        raw.get("ReservationType") == BLOCK,
        raw.get("InstanceType", ""),
        ends_at.astimezone(UTC) if ends_at else None,
    )
