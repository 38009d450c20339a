"""An emulated instance metadata service, version 2, for all machines of a practice cluster.

``http://127.0.0.1:PORT/machines/INSTANCE/latest/…`` is what that machine would see under 169.254.169.254. Its content is in the machine's
``imds.json``."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from holdfast.practice.aws import imds_state

log = logging.getLogger("holdfast.practice.aws.imds")

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
LONGEST_S = 21600
_PATH = re.compile(r"/(?P<machine>(?:machines|nodes)/[\w.-]+)/latest/(?P<rest>[\w./-]+?)/?")


class Imds(ThreadingHTTPServer):
    """Metadata server of the machines below one folder, on loopback. Port 0: a free one."""

    daemon_threads = True

    def __init__(self, cluster: Path, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.cluster = cluster
        self.tokens: dict[str, tuple[str, float]] = {}
        """Token → the machine that got it, and its expiry."""

    def handle_error(self, request: object, client_address: object) -> None:
        """The client has disconnected."""
        log.debug("event=caller_gone address=%s", client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def new_token(self, machine: str, ttl_s: int) -> str:
        token = secrets.token_urlsafe(40)
        self.tokens[token] = (machine, time.monotonic() + ttl_s)
        return token

    def knows(self, token: str, machine: str) -> bool:
        holder, until_s = self.tokens.get(token, ("", 0.0))
        return holder == machine and time.monotonic() < until_s


class _Handler(BaseHTTPRequestHandler):
    server: Imds
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_PUT(self) -> None:
        machine, rest = self._where()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("X-Forwarded-For"):
            return self._answer(HTTPStatus.FORBIDDEN)
        if machine is None or rest != "api/token":
            return self._answer(HTTPStatus.NOT_FOUND)
        ttl = self.headers.get(TTL, "")
        if not ttl.isdecimal() or not 1 <= int(ttl) <= LONGEST_S:
            return self._answer(HTTPStatus.BAD_REQUEST)
        return self._answer(HTTPStatus.OK, self.server.new_token(machine, int(ttl)), {TTL: ttl})

    def do_GET(self) -> None:
        machine, rest = self._where()
        if machine is None or not self.server.knows(self.headers.get(TOKEN, ""), machine):
            return self._answer(HTTPStatus.UNAUTHORIZED)
        text = document(self.server.cluster / machine, rest.removeprefix("meta-data/")) if rest else None
        return self._answer(HTTPStatus.NOT_FOUND) if text is None else self._answer(HTTPStatus.OK, text)

    def _where(self) -> tuple[str | None, str]:
        """The requesting machine and the path. If its service is switched off, the caller waits."""
        found = _PATH.fullmatch(self.path)
        if found is None or not (self.server.cluster / found["machine"] / "instance_id").exists():
            return None, ""
        if imds_state.read(self.server.cluster / found["machine"]).get("away"):
            time.sleep(3.0)
        return found["machine"], found["rest"]

    def _answer(self, status: HTTPStatus, text: str = "", headers: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        log.debug("event=request text=%r", format % args)


def document(machine: Path, path: str) -> str | None:
    """The metadata at a path; None: there is none."""
    said = imds_state.read(machine)
    tags: dict[str, str] = said.get("tags", {})
    match path.split("/"):
        case ["instance-id"]:
            return (machine / "instance_id").read_text(encoding="utf-8").strip()
        case ["instance-life-cycle"]:
            return "spot" if "spot" in said or "rebalance" in said else "on-demand"
        case ["placement", "availability-zone"]:
            return "us-east-1a"
        case ["placement", "region"]:
            return "us-east-1"
        case ["spot", "instance-action"]:
            return _json(said.get("spot"))
        case ["events", "recommendations", "rebalance"]:
            return _json(said.get("rebalance"))
        case ["events", "maintenance", ("scheduled" | "history") as which]:
            return _json(said.get(which))
        case ["tags", "instance"]:
            return "\n".join(sorted(tags)) or None
        case ["tags", "instance", name]:
            return tags.get(name)
        case _:
            return None


def _json(piece: object) -> str | None:
    return json.dumps(piece) if piece else None
