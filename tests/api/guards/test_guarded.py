"""The token is required before anything of a body is read, and what is read is bounded, on every route that takes one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.api.guards.guarded import LIMIT_BYTES

ORDERS = (
    "/v1/pause",
    "/v1/brakes/drains/release",
    "/v1/incidents/0h3k5d2m8x1q/close",
    "/v1/suppressions",
    "/v1/maintenance",
    "/v1/checks/what-if",
)


class Endless:
    """A body that continues for 64 MiB, and how much of it was read."""

    def __init__(self) -> None:
        self.sent = 0

    async def __aiter__(self) -> Any:
        while self.sent < 64 << 20:
            self.sent += 1 << 16
            yield b" " * (1 << 16)


@pytest.mark.parametrize("path", ORDERS)
@pytest.mark.parametrize(("who", "status"), [(None, 401), ("n1", 403), ("eve", 403)])
def test_without_the_right_token_nothing_is_read(served: Any, path: str, who: str | None, status: int) -> None:
    body = Endless()
    assert served.call("POST", path, who, content=body).status_code == status
    assert body.sent <= 1 << 16


@pytest.mark.parametrize("path", ORDERS)
def test_with_it_a_body_is_bounded(served: Any, path: str) -> None:
    body = Endless()
    answer = served.call("POST", path, "op", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert body.sent <= LIMIT_BYTES + (2 << 16)


@pytest.mark.slow
def test_no_route_reads_a_body_before_it_knows_who_calls(served: Any) -> None:
    """Of all that the description shows; enrolment, which brings a token, is off and reads nothing either (`test_enrol.py`)."""
    paths = [path for path, verbs in served.app.openapi()["paths"].items() if "requestBody" in verbs.get("post", {})]
    assert len(paths) > 10
    for path in paths:
        body = Endless()
        answer = served.call("POST", re.sub(r"\{\w+\}", "x", path), None, content=body)
        status = 404 if path == "/v1/enrol" else 401
        assert (answer.status_code, body.sent <= 1 << 16) == (status, True), path
