"""Calls of the API's own routes from within the process, for the token of a signed-in browser.

So every page shows what that token may see and every button does what it may do, by the same checks, limits and records as a program's
request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.types import ASGIApp, Message

from holdfast.api.callers.auth import SHOWN_TOKEN

ApiQuery = Mapping[str, str | list[str]]
"""Parameters; empty ones are left out."""


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """What a route answered."""

    status: int
    content: Any
    """As JSON; None: it had none."""

    @property
    def problem(self) -> str:
        """One line for people; empty: it succeeded."""
        if self.status < 400:
            return ""
        error = self.content.get("error", {}) if isinstance(self.content, Mapping) else {}
        return str(error.get("message") or f"the controller answered {self.status}")


async def ask(
    app: ASGIApp,
    request: Request,
    token: str,
    method: str,
    path: str,
    query: ApiQuery | None = None,
    body: Mapping[str, object] | None = None,
) -> ApiAnswer:
    """The answer of one route. ``request``: the browser's; ``token``: hash of the token of its session. ``path`` is not escaped."""
    content = json.dumps(body).encode() if body is not None else b""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"inside"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    await app(
        {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode({k: v for k, v in (query or {}).items() if v}, doseq=True).encode(),
            "headers": headers,
            "client": request.scope.get("client"),
            "server": request.scope.get("server"),
            SHOWN_TOKEN: token,
        },
        receive,
        send,
    )
    status = next((m["status"] for m in sent if m["type"] == "http.response.start"), 500)
    answered = b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")
    try:
        return ApiAnswer(status, json.loads(answered) if answered else None)
    except ValueError:
        return ApiAnswer(status, None)
