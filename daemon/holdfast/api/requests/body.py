"""Reading a request's body with a bound on its size and on the time it takes."""

from __future__ import annotations

from typing import Any, cast

import anyio
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from holdfast.api.errors import ApiError

MAX_BODY_BYTES = 1 << 20
"""docs/reference/wire.md."""
READ_TIMEOUT_S = 20.0


async def read_body(request: Request, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The whole body. Raises ApiError 413 as soon as it grows beyond ``limit_bytes``, 408 when it does not come."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(READ_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit_bytes:
                    raise _too_large(limit_bytes)
                chunks.append(chunk)
    except TimeoutError:
        raise ApiError(408, "timeout", f"The body did not arrive within {READ_TIMEOUT_S:.0f} s") from None
    except ClientDisconnect:
        raise ApiError(400, "malformed", "The connection ended before the body") from None
    return b"".join(chunks)


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises ApiError 400 ``malformed``."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, "malformed", f"The body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "malformed", "The body must be a JSON object")
    return cast(dict[str, Any], value)


def _too_large(limit_bytes: int) -> ApiError:
    return ApiError(413, "too_large", f"The body is larger than {limit_bytes} bytes; send fewer items at a time")
