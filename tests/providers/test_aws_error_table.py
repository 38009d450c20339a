"""Every botocore error becomes one of the core's, with one line. No network."""

from __future__ import annotations

import logging

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
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
from holdfast.providers.aws.errors import kind_of, translate, translated


def answer(code: str, message: str = "text", status: int = 400) -> ClientError:
    metadata = {"RequestId": "req-7", "HTTPStatusCode": status, "HTTPHeaders": {}, "HostId": "", "RetryAttempts": 0}
    return ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}, "RunInstances")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("InsufficientInstanceCapacity", 500, InsufficientCapacity),
        ("InsufficientHostCapacity", 400, InsufficientCapacity),
        ("InsufficientReservedInstanceCapacity", 400, InsufficientCapacity),
        ("MaxSpotInstanceCountExceeded", 400, InsufficientCapacity),
        ("Unsupported", 400, InsufficientCapacity),
        ("SpotMaxPriceTooLow", 400, InsufficientCapacity),
        ("UnfulfillableCapacity", 400, InsufficientCapacity),
        ("InsufficientCapacity", 400, InsufficientCapacity),
        ("VcpuLimitExceeded", 400, InsufficientCapacity),
        ("RequestLimitExceeded", 503, Throttled),
        ("ThrottlingException", 400, Throttled),
        ("UnauthorizedOperation", 403, NotPermitted),
        ("AccessDenied", 403, NotPermitted),
        ("ExpiredToken", 400, NotPermitted),
        ("InvalidInstanceID.NotFound", 400, NotFound),
        ("InvalidInstanceID.Malformed", 400, Rejected),
        ("InvalidLaunchTemplateName.NotFoundException", 400, Rejected),
        ("OperationNotPermitted", 400, Rejected),
        ("IdempotentParameterMismatch", 400, Rejected),
        ("InternalError", 500, Unavailable),
        ("ServiceUnavailable", 503, Unavailable),
        ("SomethingNew", 502, Unavailable),
        ("SomethingNew", 400, Rejected),
    ],
)
def test_code_becomes_exactly_this_error(code: str, status: int, kind: type[OutsideError]) -> None:
    assert kind_of(code, status) is kind
    error = translate("RunInstances", answer(code, status=status))
    assert type(error) is kind
    assert code in str(error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointConnectionError(endpoint_url="http://x"), Unavailable),
        (ConnectTimeoutError(endpoint_url="http://x"), Unavailable),
        (ReadTimeoutError(endpoint_url="http://x"), Unavailable),
        (NoCredentialsError(), NotPermitted),
        (ParamValidationError(report="bad\nworse"), Rejected),
    ],
)
def test_error_without_answer(error: BotoCoreError, kind: type[OutsideError]) -> None:
    known = translate("DescribeInstances", error)
    assert type(known) is kind
    assert "\n" not in str(known)


def test_long_message_of_aws_stays_one_short_line() -> None:
    error = translate("RunInstances", answer("UnauthorizedOperation", "Encoded:\n" + "x" * 5000 + "\x1b[31m"))
    assert len(str(error)) < 500
    assert str(error).isprintable()


def test_protected_instance_says_what_to_do() -> None:
    assert "disableApiTermination" in str(translate("TerminateInstances", answer("OperationNotPermitted")))


def test_failure_is_one_log_line_with_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(Throttled), translated("RunInstances"):
        raise answer("RequestLimitExceeded", status=503)
    assert [r.getMessage() for r in caplog.records] == [
        "event=aws_call_failed operation=RunInstances error=Throttled request_id=req-7 "
        'text="RunInstances: RequestLimitExceeded: text"'
    ]


def test_foreign_error_passes_untouched() -> None:
    with pytest.raises(KeyError), translated("RunInstances"):
        raise KeyError("ours")
