"""The API as the command line sees it. Standard library only."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any

from holdfast.config.in_clear import in_clear
from holdfast.model.errors import HoldfastError, NotFound, Rejected, Unavailable, Usage

DEFAULT_URL = "http://127.0.0.1:8460"
TIMEOUT_S = 30.0
MOST_TRIES = 4
"""Of a request that is answered 429: nothing of it was done."""
MOST_BYTES = 64 * 1024 * 1024
"""Of an answer. The longest are lists of all nodes of a large cluster: 4,096 nodes take some MiB."""
MOST_LINE_BYTES = 4 * 1024 * 1024
"""Of a stream: one record."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_MOST_REFUSAL_BYTES = 64 * 1024
LONGEST_WAIT_S = 30.0
"""Between two of them; where the controller asks for more, the verb fails at once."""
USER_TOKEN = Path("~/.config/holdfast/token")


class ApiClient:
    """Calls one controller. Every error is ours, in one line."""

    def __init__(
        self,
        url: str | None = None,
        env: Mapping[str, str] = os.environ,
        sleep: Callable[[float], None] = time.sleep,
        timeout_s: float = TIMEOUT_S,
        tries: int = MOST_TRIES,
    ) -> None:
        """``url`` goes before HOLDFAST_URL. Raises Usage without a token or for what is no URL."""
        self._url = (url or env.get("HOLDFAST_URL") or DEFAULT_URL).rstrip("/")
        if not self._url.startswith(("http://", "https://")):
            raise Usage(f"{self._url!r} is not a URL such as {DEFAULT_URL}: set --url or HOLDFAST_URL")
        try:
            clear = in_clear(self._url)
        except ValueError as error:
            raise Usage(f"{self._url!r} is not a URL: {error}") from None
        if clear:
            raise Usage(f"{self._url!r} would send your token unencrypted: use https, or http on loopback alone")
        self._token = _token(env)
        self._sleep, self._timeout_s, self._tries = sleep, timeout_s, tries
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
        if env.get("HOLDFAST_CA_FILE"):
            handlers.append(urllib.request.HTTPSHandler(context=_trust(env["HOLDFAST_CA_FILE"])))
        self._opener = urllib.request.build_opener(*handlers)

    @property
    def url(self) -> str:
        """Of the controller, without a slash at its end."""
        return self._url

    def get(self, path: str, **query: Any) -> Any:
        """Parsed JSON. Raises Unavailable, Rejected, Usage."""
        return self._call("GET", _with_query(path, query), None)

    def post(self, path: str, body: Mapping[str, Any], key: str = "") -> Any:
        """As :meth:`get`. ``key``: the same for each try of one order, so that it is carried out once (``Idempotency-Key``)."""
        return self._call("POST", path, json.dumps(body).encode(), {"Idempotency-Key": key} if key else {})

    def delete(self, path: str) -> Any:
        """As :meth:`get`."""
        return self._call("DELETE", path, None)

    def fetch(self, path: str) -> bytes:
        """The bytes at a path. Raises as :meth:`get`."""
        return self._send("GET", path, None)

    def lines(self, path: str, headers: Mapping[str, str], timeout_s: float, **query: Any) -> Iterator[bytes]:
        """Lines of an answer that does not end, each without its end. Raises as :meth:`get`, also where none comes for ``timeout_s``."""
        url = self._url + _with_query(path, query)
        given = {"Authorization": f"Bearer {self._token}", "Accept": "text/event-stream", **headers}
        request = urllib.request.Request(url, headers=given)  # noqa: S310 - scheme checked
        with self._opened(request, timeout_s) as answer:
            try:
                while line := answer.readline(MOST_LINE_BYTES):
                    yield line.rstrip(b"\r\n")
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise Unavailable(f"the stream of {self._url} was cut off: {error}") from None

    def _call(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] = NO_HEADERS) -> Any:
        try:
            return json.loads(self._send(method, path, body, headers))
        except (ValueError, RecursionError) as error:
            raise Unavailable(f"{self._url} answered with something else than JSON: {error}") from None

    def _send(self, method: str, path: str, body: bytes | None, more: Mapping[str, str] = NO_HEADERS) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **more}
        request = urllib.request.Request(self._url + path, data=body, headers=headers, method=method)  # noqa: S310 - scheme checked
        for _ in range(self._tries - 1):
            try:
                return self._once(request)
            except _Limited as limited:
                if limited.retry_after_s > LONGEST_WAIT_S:
                    raise
                sys.stderr.write(f"holdfast: {limited}; waiting {limited.retry_after_s:g} s\n")
                self._sleep(limited.retry_after_s)
        return self._once(request)

    def _once(self, request: urllib.request.Request) -> bytes:
        try:
            with self._opened(request, self._timeout_s) as answer:
                content = bytes(answer.read(MOST_BYTES + 1))
        except (OSError, ValueError) as error:
            raise self._no_answer(error) from None
        if len(content) > MOST_BYTES:
            raise Unavailable(f"{self._url} answered with more than {MOST_BYTES} bytes")
        return content

    def _opened(self, request: urllib.request.Request, timeout_s: float) -> Any:
        try:
            return self._opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            raise _refusal(
                error.code, error.read(_MOST_REFUSAL_BYTES), error.headers.get("Retry-After") or ""
            ) from None
        except (OSError, ValueError) as error:
            raise self._no_answer(error) from None

    def _no_answer(self, error: Exception) -> Unavailable:
        why = getattr(error, "reason", error)
        return Unavailable(f"the controller at {self._url} does not answer: {why}; is `holdfast controller` running?")


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    given = {k: v for k, v in query.items() if v is not None}
    return f"{path}?{urllib.parse.urlencode(given, doseq=True)}" if given else path


class _Limited(Rejected):
    """The token asks for too much at this moment."""

    def __init__(self, text: str, retry_after_s: float) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the token to another address; no controller answers with one."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _token(env: Mapping[str, str]) -> str:
    if env.get("HOLDFAST_TOKEN"):
        return env["HOLDFAST_TOKEN"].strip()
    named = env.get("HOLDFAST_TOKEN_FILE")
    path = Path(named) if named else USER_TOKEN.expanduser()
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        if named:
            raise Usage(f"HOLDFAST_TOKEN_FILE: {path}: {error.strerror}") from None
        hint = f"set HOLDFAST_TOKEN or HOLDFAST_TOKEN_FILE, or write it to {USER_TOKEN}"
        raise Usage(f"no token: {hint}; `holdfast token create` makes one") from None


def _trust(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise Usage(f"HOLDFAST_CA_FILE: {path}: {error.strerror or error}") from None


def _refusal(status: int, body: bytes, retry_after: str) -> HoldfastError:
    try:
        text = "".join(c if c.isprintable() else "?" for c in str(json.loads(body)["error"]["message"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        text = f"the server answered with status {status}; is this a Holdfast controller?"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return _Limited(text, float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 1.0)
    if status == HTTPStatus.NOT_FOUND:
        return NotFound(text)
    if status in (401, 403, 422):
        return Usage(text)
    return Unavailable(text) if status >= 500 else Rejected(text)
