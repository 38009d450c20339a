"""The WSGI application: the control endpoint, faults and the call log in front of moto's own application."""

from __future__ import annotations

import io
import re
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

from moto.moto_api._internal import mock_random
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from holdfast.practice.aws import CONTROL_PREFIX, REGION, moto_groups
from holdfast.practice.aws.calls import Call, CallLog
from holdfast.practice.aws.faults import ApiFault, FaultBook
from holdfast.practice.aws.hyperpod import Hyperpod, StartResponse
from holdfast.practice.aws.journal import Journal, JournalEntry
from holdfast.practice.aws.moto_patches import install
from holdfast.practice.aws.world import EmulatorWorld

READ_ONLY = ("Describe", "Get", "List")
NOT_A_PARAMETER = ("Action", "Version", "ClientToken")
GROUPS_TURN = "PracticeGroupsTurn"
"""Entry in the call log for automatic actions of Auto Scaling groups; its effects are the ids launched and terminated."""
FIRST_SEED = 20_261
"""Seed for what moto creates at start (default network); any constant works."""


class ControlVerbs(Protocol):
    """Verbs of the control endpoint, passed in because they use the emulator."""

    def __call__(self, emulator: Emulator, environ: Mapping[str, Any], body: bytes) -> tuple[int, bytes]:
        """HTTP status and JSON."""


class Emulator:
    """One emulated account. API calls run one at a time; delays of faults do not block other calls."""

    def __init__(self, state: Path | None, world: EmulatorWorld, control: ControlVerbs) -> None:
        self._control = control
        self.world = world
        self.faults = FaultBook()
        self.calls = CallLog()
        self.lock = threading.Lock()
        self.hyperpod = Hyperpod(state, self.lock, self.faults, self.calls, self.world.now)
        self._journal = Journal(state)
        install(self.world)
        mock_random.seed(FIRST_SEED)
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._load_ec2()
        self._replay()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        body = _body(environ)
        if environ.get("PATH_INFO", "").startswith(CONTROL_PREFIX):
            with self.lock:
                status, payload = self._control(self, environ, body)
            return _answer(start_response, status, payload, "application/json")
        if self.hyperpod.takes(environ):
            return self.hyperpod.answer(environ, body, start_response)
        return self._api(environ, body.decode(), start_response)

    def _api(self, environ: dict[str, Any], body: str, start_response: StartResponse) -> Iterable[bytes]:
        given = dict(parse_qsl(body, keep_blank_values=True))
        action = given.get("Action", "")
        with self.lock:
            self._let_groups_turn()
            call = self.calls.begin(action, given, self.world.now(), replayed=False)
            fault = self.faults.take(action, given)
        if fault is not None and not fault.after:
            time.sleep(fault.delay_s)
        if fault is not None and fault.code and not fault.after:
            return _injected(start_response, call, fault)
        with self.lock:
            status, headers, payload = self._run(environ, body, given, call)
        if fault is not None and fault.after:
            time.sleep(fault.delay_s)
            if fault.code:
                return _injected(start_response, call, fault)
        start_response(status, headers)
        return [payload]

    def _run(
        self, environ: dict[str, Any], body: str, given: Mapping[str, str], call: Call
    ) -> tuple[str, list[tuple[str, str]], bytes]:
        """Journal a mutating call, seed moto's ids, run it, note its effects."""
        if not call.action.startswith(READ_ONLY):
            entry = JournalEntry(self.world.now(), secrets.randbits(48), _region(environ), body, _service(environ))
            self._journal.write(entry)
            mock_random.seed(entry.seed)
        else:
            self.world.lag_s = self.faults.lag_s()
        try:
            status, headers, payload = self._forward(environ, body, given)
        finally:
            self.world.lag_s = 0.0
        _finish(call, int(status.split()[0]), payload, self.world.effects)
        if call.action.startswith("DescribeInstance"):
            self.world.one_describe_passed()
        return status, headers, payload

    def _let_groups_turn(self) -> None:
        """Run the due actions of Auto Scaling groups as a separate call in log and journal."""
        if not moto_groups.due(self.world):
            return
        body = urlencode({"Action": GROUPS_TURN, "Launch": ",".join(moto_groups.launching(self.world))})
        entry = JournalEntry(self.world.now(), secrets.randbits(48), REGION, body, "autoscaling")
        self._journal.write(entry)
        self._turn(entry, replayed=False)

    def _turn(self, entry: JournalEntry, *, replayed: bool) -> None:
        call = self.calls.begin(GROUPS_TURN, {}, entry.at, replayed=replayed)
        mock_random.seed(entry.seed)
        self.world.parameters, self.world.effects = {}, []
        launch = dict(parse_qsl(entry.body)).get("Launch", "")
        moto_groups.turn(self.world, launch.split(","))
        call.status, call.effects = 200, list(self.world.effects)

    def _forward(
        self, environ: dict[str, Any], body: str, given: Mapping[str, str]
    ) -> tuple[str, list[tuple[str, str]], bytes]:
        self.world.parameters = {k: v for k, v in given.items() if k not in NOT_A_PARAMETER}
        self.world.effects = []
        got: list[tuple[str, list[tuple[str, str]]]] = []
        payload = b"".join(
            self._moto(
                environ | {"wsgi.input": io.BytesIO(body.encode()), "CONTENT_LENGTH": str(len(body.encode()))},
                lambda status, headers, *_: got.append((status, headers)),
            )
        )
        return *got[0], payload

    def _load_ec2(self) -> None:
        """Make a first call before reporting ready: moto then loads EC2 and creates the default network, which takes seconds."""
        body = "Action=DescribeInstances&Version=2016-11-15"
        self._forward(_environ(JournalEntry(0.0, FIRST_SEED, REGION, body)), body, dict(parse_qsl(body)))

    def _replay(self) -> None:
        for entry in self._journal.entries():
            self.world.replayed_at = entry.at
            given = dict(parse_qsl(entry.body, keep_blank_values=True))
            if given.get("Action") == GROUPS_TURN:
                self._turn(entry, replayed=True)
                continue
            call = self.calls.begin(given.get("Action", ""), given, entry.at, replayed=True)
            mock_random.seed(entry.seed)
            status, _, payload = self._forward(_environ(entry), entry.body, given)
            _finish(call, int(status.split()[0]), payload, self.world.effects)
        self.world.replayed_at = None


def _body(environ: Mapping[str, Any]) -> bytes:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    return bytes(environ["wsgi.input"].read(length)) if length else b""


def _finish(call: Call, status: int, payload: bytes, effects: Iterable[str]) -> None:
    call.status = status
    call.effects = list(effects) if status < 400 else []
    if status >= 400 and (found := re.search(rb"<Code>([^<]*)</Code>", payload)):
        call.error = found[1].decode()


def _injected(start_response: StartResponse, call: Call, fault: ApiFault) -> Iterable[bytes]:
    """EC2's error document. Effects of a call whose answer is lost stay recorded."""
    call.status, call.error, call.injected = fault.status, fault.code, True
    text = (
        '<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error>'
        f"<Code>{escape(fault.code)}</Code><Message>{escape(fault.message)}</Message>"
        f"</Error></Errors><RequestID>practice-{call.number}</RequestID></Response>"
    )
    return _answer(start_response, fault.status, text.encode(), "text/xml")


def _answer(start_response: StartResponse, status: int, payload: bytes, kind: str) -> Iterable[bytes]:
    start_response(f"{status} -", [("Content-Type", kind), ("Content-Length", str(len(payload)))])
    return [payload]


def _region(environ: Mapping[str, Any]) -> str:
    return _scope(environ)[0]


def _service(environ: Mapping[str, Any]) -> str:
    return _scope(environ)[1]


def _scope(environ: Mapping[str, Any]) -> tuple[str, str]:
    """Region and service from the signature's credential scope: key/date/region/service/aws4_request."""
    found = re.search(r"Credential=[^/]*/[^/]*/([^/]*)/([^/]*)/", environ.get("HTTP_AUTHORIZATION", ""))
    return (found[1], found[2]) if found else (REGION, "ec2")


def _environ(entry: JournalEntry) -> dict[str, Any]:
    """The minimal WSGI environment that moto needs to run a journalled call."""
    scope = f"practice/20260101/{entry.region}/{entry.service}/aws4_request"
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "127.0.0.1",
        "HTTP_AUTHORIZATION": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        "CONTENT_TYPE": "application/x-www-form-urlencoded; charset=utf-8",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
