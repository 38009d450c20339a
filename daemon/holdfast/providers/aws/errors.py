"""Mapping of botocore's errors to Holdfast's. The tables are the decision; tests cover every entry."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from holdfast.model.errors import (
    InsufficientCapacity,
    NotFound,
    NotPermitted,
    OutsideError,
    Rejected,
    Throttled,
    Unavailable,
)
from holdfast.providers.one_line import one_line

log = logging.getLogger(__name__)

CAPACITY_CODES = frozenset({
    # aws-parallelcluster-node 3.16.1's list of codes worth a fail-over
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
    "MaxSpotInstanceCountExceeded", "Unsupported", "SpotMaxPriceTooLow", "UnfulfillableCapacity", "InsufficientCapacity",
    # EC2 API reference, error codes: another subnet, reservation or instance family may still work
    "InsufficientFreeAddressesInSubnet", "ReservationCapacityExceeded", "InstanceLimitExceeded", "VcpuLimitExceeded",
    # a reservation that has ended or was removed: the next offer may work
    "InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationState",
})  # fmt: skip
THROTTLE_CODES = frozenset({
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
    "RequestThrottledException", "TooManyRequestsException", "BandwidthLimitExceeded", "EC2ThrottledException", "SlowDown",
    "PriorRequestNotComplete",
})  # fmt: skip
PERMISSION_CODES = frozenset({
    "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure", "InvalidClientTokenId",
    "UnrecognizedClientException", "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
    "MissingAuthenticationToken", "OptInRequired", "Blocked",
})  # fmt: skip
UNAVAILABLE_CODES = frozenset({
    "InternalError", "InternalFailure", "ServiceUnavailable", "ServiceUnavailableException", "Unavailable",
    "RequestTimeout", "RequestTimeoutException",
})  # fmt: skip
NOT_FOUND_CODES = frozenset({"InvalidInstanceID.NotFound"})
"""Only for the instance itself: a missing launch template or subnet is a wrong setting, hence Rejected."""

HINTS = {
    "OperationNotPermitted": "termination protection is on: clear disableApiTermination",
    "IdempotentInstanceTerminated": "the machine of this attempt is gone: a new attempt needs a new token",
    "IdempotentParameterMismatch": "this attempt was made with other settings: a new attempt needs a new token",
    "VcpuLimitExceeded": "raise the vCPU quota of this instance family",
    "InstanceLimitExceeded": "raise the instance quota",
    "RequestExpired": "check this machine's clock",
    "SignatureDoesNotMatch": "check this machine's clock and its credentials",
    "UnauthorizedOperation": "the role lacks this permission; see docs/providers.md",
}
_FIRST_SERVER_ERROR = 500


def translate(operation: str, error: ClientError | BotoCoreError) -> OutsideError:
    """The core's error for one of botocore's, with one clear line."""
    if isinstance(error, ClientError):
        return _from_answer(operation, error)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return NotPermitted(f"{operation}: no usable AWS credentials on this machine: {error}")
    if isinstance(error, ParamValidationError):
        return Rejected(f"{operation}: bad argument: {one_line(str(error))}")
    return Unavailable(f"{operation}: AWS does not answer: {one_line(str(error))}")


def _from_answer(operation: str, error: ClientError) -> OutsideError:
    code = error_code(error)
    message = one_line(str(error.response.get("Error", {}).get("Message", "")))
    hint = f" ({HINTS[code]})" if code in HINTS else ""
    return kind_of(code, http_status(error))(f"{operation}: {code}: {message}{hint}")


def kind_of(code: str, status: int) -> type[OutsideError]:
    """The core's error for an EC2 error code; an unknown code is classified by its HTTP status."""
    table: tuple[tuple[frozenset[str], type[OutsideError]], ...] = (
        (CAPACITY_CODES, InsufficientCapacity),
        (THROTTLE_CODES, Throttled),
        (PERMISSION_CODES, NotPermitted),
        (NOT_FOUND_CODES, NotFound),
        (UNAVAILABLE_CODES, Unavailable),
    )
    for codes, kind in table:
        if code in codes:
            return kind
    return Unavailable if status >= _FIRST_SERVER_ERROR else Rejected


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) or "no code"


def http_status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


@contextmanager
def translated(operation: str) -> Iterator[None]:
    """Run AWS calls of one operation: botocore's errors are raised as the core's, with one log line and the request id."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        known = translate(operation, error)
        request_id = ""
        if isinstance(error, ClientError):
            request_id = str(error.response.get("ResponseMetadata", {}).get("RequestId", ""))
        log.warning(
            'event=aws_call_failed operation=%s error=%s request_id=%s text="%s"',
            operation, type(known).__name__, request_id or "-", str(known).replace('"', "'"),
        )  # fmt: skip
        raise known from error
