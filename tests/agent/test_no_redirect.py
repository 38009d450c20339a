"""The agent sends its token only to its controllers, whatever they or the instance metadata answer, and whatever proxy is configured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from holdfast.agent.selfcheck import SelfcheckLevel, controller
from holdfast.agent.sending.client import ControllerClient, Controllers
from holdfast.agent.sending.memory import AgentMemory
from holdfast.agent.sending.outbox import Outbox, OutboxItem
from holdfast.agent.sending.sender import Sender, SenderIdentity
from holdfast.agent.sources.machine_id import FROM_IMDS, machine_id
from holdfast.config.agent import AgentConfig
from holdfast.model.errors import ConfigError
from holdfast_checks.settings import CloudSettings
from support.practice import eventually

STATUSES = (301, 302, 303, 307, 308)
"""Those that an HTTP library may follow; 307 and 308 with the method and the body."""


class Place:
    """A server that records each request, with its token, and redirects all of them to ``to``; without it, it answers 200."""

    def __init__(self, status: int = 200, to: str = "") -> None:
        self.asked: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                token = self.headers.get("Authorization") or self.headers.get("X-aws-ec2-metadata-token") or ""
                outer.asked.append((f"{self.command} {self.path.partition('?')[0]}", token))
                self.send_response(status)
                if to:
                    self.send_header("Location", f"{to}/elsewhere")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = do_PUT = do_CONNECT = answer  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def open(self) -> Iterator[Place]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Where redirects lead, and the proxy of the environment: nothing may arrive here."""
    with Place().open() as place:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, place.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield place
        assert place.asked == []


@pytest.fixture(params=STATUSES)
def redirecting(request: pytest.FixtureRequest, elsewhere: Place) -> Iterator[Place]:
    with Place(request.param, elsewhere.url).open() as place:
        yield place


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o600)
    return path


def test_reports_and_heartbeats_stay_and_the_report_is_kept(
    redirecting: Place, token_file: Path, tmp_path: Path
) -> None:
    outbox = Outbox(AgentMemory(tmp_path), "boot-1")
    outbox.put([OutboxItem({"kind": "finding", "check": "gpu.xid", "code": "79"}, 0.0)])
    client = ControllerClient(Controllers((redirecting.url,)), token_file, None)
    sender = Sender(client, outbox, SenderIdentity("n1", "i-0abc", "boot-1"), tmp_path)
    sender.start()
    sender.beat({"interval_s": 1})
    eventually(lambda: {what for what, _ in redirecting.asked} >= {"POST /v1/reports", "POST /v1/heartbeats"})
    sender.stop()
    assert {token for _, token in redirecting.asked} == {"Bearer secret"}
    assert len(outbox) == 1


def test_questions_for_orders_and_for_rooms_stay(redirecting: Place, token_file: Path) -> None:
    client = ControllerClient(Controllers((redirecting.url,)), token_file, None)
    answers = client.get("/v1/orders", {"node": "n1"}, 5.0), client.post("/v1/agent/room", {"job_id": 1})
    client.close()
    assert all("it answers 30" in str(each.failure) for each in answers)
    assert redirecting.asked == [("GET /v1/orders", "Bearer secret"), ("POST /v1/agent/room", "Bearer secret")]


def test_the_self_check_stays_and_says_so(redirecting: Place, token_file: Path) -> None:
    lines = list(controller(redirecting.url, AgentConfig(node="n1", token_file=token_file)))
    assert [line.text for line in lines if line.level is SelfcheckLevel.FAILED and "it answers 30" in line.text]
    assert [token for _, token in redirecting.asked] == ["Bearer secret"]


def test_what_asks_for_the_machines_id_stays(redirecting: Place) -> None:
    config = AgentConfig(instance_id=FROM_IMDS, cloud=CloudSettings(imds=redirecting.url))
    with pytest.raises(ConfigError, match="does not answer"):
        machine_id(config, patience_s=0.0)
    assert redirecting.asked == [("PUT /latest/api/token", "")]
