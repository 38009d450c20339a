"""Orders with the header ``Idempotency-Key``: a repeated one gets the first one's answer, and is not carried out again.

Only success is kept. An order that was refused has done nothing: its key is free, and the next try is evaluated again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.callers.auth import Principal
from holdfast.api.deps import Api
from holdfast.api.errors import ApiError
from holdfast.model.errors import NotFound, Rejected
from holdfast.model.operators.idempotency import FirstOrder

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
_PATTERN = "^[A-Za-z0-9._:-]{1,128}$"
PARAMETER: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "A name that the client makes up for this order, such as a UUID. A repeated order with it and the same body, "
    "by the same token within 24 h, is answered as the first one and not carried out again; another body is refused (422).",
    "schema": {"type": "string", "pattern": _PATTERN},
}


def key_of(request: Request) -> str | None:
    """None: the order has none. Raises ApiError 422."""
    key = request.headers.get(HEADER)
    if key is not None and not re.fullmatch(_PATTERN, key):
        raise ApiError(422, "invalid", f"{HEADER}: 1 to 128 letters, digits and . _ : -", HEADER)
    return key


def digest_of(request: Request, body: bytes) -> str:
    """Of what is ordered."""
    head = f"{request.method} {request.url.path}?{request.url.query}\n"
    return hashlib.sha256(head.encode() + body).hexdigest()


async def once(
    api: Api, request: Request, caller: Principal, body: bytes, carry_out: Callable[[], Awaitable[Response]]
) -> Response:
    """The answer of ``carry_out``, or the one that was given before. Raises what it raises, and ApiError 409, 422."""
    key = key_of(request)
    if key is None:
        return await carry_out()
    store, digest = api.deps.store, digest_of(request, body)
    first = await api.threads.write(store.begin_order, caller.token, key, digest, api.deps.clock.now())
    if first is not None:
        return _again(first, digest)
    try:
        answer = await carry_out()
    except (ApiError, Rejected, NotFound):  # anything else may have been done: its key stays taken
        await api.threads.write(store.forget_order, caller.token, key)
        raise
    if answer.status_code < 300:
        text = bytes(answer.body).decode()
        await api.threads.write(store.finish_order, caller.token, key, answer.status_code, text)
    else:
        await api.threads.write(store.forget_order, caller.token, key)
    return answer


def _again(first: FirstOrder, digest: str) -> Response:
    """The answer to an order whose key was used before."""
    if first.request != digest:
        text = f"This {HEADER} was used at {first.at:%Y-%m-%d %H:%M:%S} UTC for another order: make up a new one"
        raise ApiError(422, "key_reused", text, HEADER)
    if first.status is None:
        text = (
            f"The order with this {HEADER} began at {first.at:%Y-%m-%d %H:%M:%S} UTC and runs, or was cut off: GET /v1/events "
            "shows whether it was done; if not, send it with a new key"
        )
        raise ApiError(409, "in_progress", text, HEADER)
    return Response(first.answer, first.status, {REPLAYED: "true"}, media_type="application/json")
