"""Capacity reservations and Capacity Blocks for moto's EC2: DescribeCapacityReservations, and reservations that fill up.

Reservations are created by the control endpoint; CreateCapacityReservation and the purchase of blocks are not implemented."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.instances import InstanceResponse

from holdfast.practice.aws import REGION
from holdfast.practice.aws.moto_parts import GONE, put
from holdfast.practice.aws.world import CapacityReservation, EmulatorWorld

TARGET = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"


def install(world: EmulatorWorld) -> None:
    put(InstanceResponse, "describe_capacity_reservations", _describe(world))


def take_place(world: EmulatorWorld, backend: Any) -> str | None:
    """The reservation named in the current RunInstances, if it has a place left; None: it names none."""
    wanted = world.parameters.get(TARGET)
    if wanted is None:
        return None
    reservation = _known(world, wanted)
    if state_of(world, reservation) != "active":
        raise EC2ClientError("InvalidCapacityReservationState", f"The capacity reservation '{wanted}' is not active.")
    if _free(world, reservation, backend) < 1:
        raise EC2ClientError("ReservationCapacityExceeded", f"The capacity reservation '{wanted}' has no place left.")
    return wanted


def state_of(world: EmulatorWorld, reservation: CapacityReservation) -> str:
    ended = reservation.ends_at is not None and reservation.ends_at <= datetime.fromtimestamp(world.now(), UTC)
    return "expired" if ended else reservation.state


def _known(world: EmulatorWorld, wanted: str) -> CapacityReservation:
    if wanted not in world.reservations:
        code = "InvalidCapacityReservationId.NotFound"
        raise EC2ClientError(code, f"The capacity reservation '{wanted}' was not found.")
    return world.reservations[wanted]


def _free(world: EmulatorWorld, reservation: CapacityReservation, backend: Any) -> int:
    reuse_s = world.delays.slot_reuse_s
    taken = [
        machine
        for machine in backend.all_instances()
        if getattr(machine, "capacity_reservation_id", None) == reservation.id
        and (
            machine.state not in GONE
            or machine.state == "shutting-down"
            or world.now() - machine._state.since < reuse_s
        )
    ]
    return reservation.total - len(taken)


def _describe(world: EmulatorWorld) -> Any:
    def describe_capacity_reservations(self: Any) -> Any:
        self.error_on_dryrun()
        ids = self._get_param("CapacityReservationIds", [])
        found = [_known(world, wanted) for wanted in ids] if ids else list(world.reservations.values())
        return ActionResult({"CapacityReservations": [_shown(world, one, self.ec2_backend) for one in found]})

    return describe_capacity_reservations


def _shown(world: EmulatorWorld, reservation: CapacityReservation, backend: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "CapacityReservationId": reservation.id,
        "InstanceType": reservation.instance_type,
        "AvailabilityZone": f"{REGION}a",
        "TotalInstanceCount": reservation.total,
        "AvailableInstanceCount": max(0, _free(world, reservation, backend)),
        "State": state_of(world, reservation),
        "ReservationType": reservation.kind,
        "EndDateType": "limited" if reservation.ends_at else "unlimited",
    }
    if reservation.ends_at:
        shown["EndDate"] = reservation.ends_at
    return shown
