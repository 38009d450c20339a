"""HTTP client for the controllers: one kept connection per instance, deadlines on everything, no retries."""

from __future__ import annotations

import json
import logging
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import urllib3

from holdfast.agent.sending import answers
from holdfast.agent.sending.authorities import file_stamp, trust_context
from holdfast.agent.sending.failures import SendFailure, of_answer, of_error
from holdfast.model.errors import Unavailable

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
_TOKEN_BYTES = 65536
READ_TIMEOUT_S = 5.0
"""Timeout for an answer to a report or heartbeat. Reports keep their name, so a late answer only costs a second delivery."""


class Controllers:
    """The controllers' URLs and which of them answered last as leader; shared by the agent's threads."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._index = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._urls)

    @property
    def current(self) -> str:
        return self._urls[self._index]

    def pass_over(self, url: str) -> None:
        """Try the next controller from now on: ``url`` did not answer as leader."""
        with self._lock:
            if len(self._urls) > 1 and self._urls[self._index] == url:
                self._index = (self._index + 1) % len(self._urls)
                log.info("event=controller_changed from=%s to=%s", url, self.current)


class NoAnswer(Unavailable):
    """The controller did not answer; ``failure`` gives the reason."""

    def __init__(self, text: str, failure: SendFailure) -> None:
        super().__init__(text)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class ControllerAnswer:
    """Status and parsed body; an unreadable body is an empty one."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict)
    retry_after_s: float = 0.0
    url: str = ""
    """URL of the controller that answered."""

    @property
    def failure(self) -> SendFailure | None:
        """Reason why the request counts as not accepted; None: a controller that is not a standby accepted it."""
        leader = self.body.get("leader")
        return of_answer(self.url, self.status, self.error, leader=leader if isinstance(leader, bool) else None)

    @property
    def error(self) -> str:
        """The controller's error message, in one line."""
        told = self.body.get("error")
        text = told.get("message") if isinstance(told, dict) else told
        return text[:300] if isinstance(text, str) else ""


class ControllerClient:
    """Client of one thread; not thread-safe."""

    def __init__(self, controllers: Controllers, token_file: Path | None, ca_file: Path | None) -> None:
        """Raises OSError in one line where ``ca_file`` cannot be used."""
        self._controllers = controllers
        self._token_file = token_file
        self._ca_file = ca_file
        self._trusted = file_stamp(ca_file)
        self._pool = self._new_pool()

    def _new_pool(self) -> urllib3.PoolManager:
        """Create the pool. Raises OSError that names the file of authorities where it cannot be read."""
        context = trust_context(self._ca_file)
        return answers.bounded(urllib3.PoolManager(num_pools=4, maxsize=1, retries=False, ssl_context=context))

    def _trust_again(self, error: urllib3.exceptions.HTTPError) -> None:
        """Read the authorities again after a refused certificate: the file may have been replaced since it was read."""
        stamp = file_stamp(self._ca_file)
        if not isinstance(error, urllib3.exceptions.SSLError) or stamp == self._trusted:
            return
        try:
            fresh = self._new_pool()
        except OSError as problem:
            log.error("event=authorities_unreadable error=%r effect=the_former_ones_stay", str(problem))
            return
        self._pool.clear()
        self._pool, self._trusted = fresh, stamp
        log.info("event=authorities_read_again path=%s", self._ca_file)

    def post(self, path: str, body: Mapping[str, Any]) -> ControllerAnswer:
        """Raises Unavailable when the controller does not answer in time."""
        data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
        return self._request("POST", path, data, READ_TIMEOUT_S)

    def get(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> ControllerAnswer:
        """Raises Unavailable when the controller does not answer in time."""
        return self._request("GET", path, None, read_timeout_s, query)

    def _request(
        self, method: str, path: str, data: bytes | None, read_timeout_s: float, query: Mapping[str, str] | None = None
    ) -> ControllerAnswer:
        url = self._controllers.current
        try:
            answer = self._once(method, url + path, data, read_timeout_s, query)
        except urllib3.exceptions.HTTPError as error:
            self._controllers.pass_over(url)
            self._trust_again(error)
            raise NoAnswer(f"{url}: {_short(error)}", of_error(url, error)) from error
        if answer.status == 503 or answer.body.get("leader") is False:
            self._controllers.pass_over(url)
        return replace(answer, url=url)

    def _once(
        self, method: str, url: str, data: bytes | None, read_timeout_s: float, query: Mapping[str, str] | None
    ) -> ControllerAnswer:
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s)
        arguments: dict[str, Any] = {"body": data, "headers": self._headers(), "timeout": timeout, "redirect": False}
        if query:
            url += "?" + urllib.parse.urlencode(query)
        try:
            return self._exchange(method, url, arguments)
        except urllib3.exceptions.ProtocolError:
            # The kept connection was closed by the other side at this very moment. Everything sent here may be repeated.
            return self._exchange(method, url, arguments)

    def _exchange(self, method: str, url: str, arguments: Mapping[str, Any]) -> ControllerAnswer:
        response = self._pool.request(method, url, preload_content=False, **arguments)
        return ControllerAnswer(
            response.status, parsed(answers.read(response)), _seconds(response.headers.get("Retry-After"))
        )

    def _headers(self) -> dict[str, str]:
        """Request headers. The token is read each time, so that it can be renewed without a restart."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        if self._token_file is not None:
            try:
                with open(self._token_file, "rb", buffering=0) as file:
                    headers["Authorization"] = f"Bearer {(file.read(_TOKEN_BYTES) or b'').decode().strip()}"
            except (OSError, UnicodeDecodeError) as error:
                log.error("event=token_unreadable path=%s error=%r", self._token_file, str(error))
        return headers

    def close(self) -> None:
        self._pool.clear()


def parsed(data: bytes) -> Mapping[str, Any]:
    """Parse an answer's object; an empty one for anything else."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _seconds(text: str | None) -> float:
    return min(60.0, float(text)) if text is not None and text.isascii() and text.isdigit() else 0.0


def _short(error: Exception) -> str:
    text = str(error.__cause__ or error)
    return f"{type(error).__name__}: {text.rsplit('>: ', maxsplit=1)[-1]}"[:200]
