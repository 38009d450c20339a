"""Traces against a receiver that reads requests by the protocol's own library (opentelemetry-proto)."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from holdfast import unexpected
from holdfast.config.sections import TelemetrySection
from holdfast.config.telemetry import check_telemetry
from holdfast.head.tracing import LOOK_EVERY_S, NOTE, SETTLE_S, OtlpReceiver, TraceSender
from holdfast.model.book import Change
from holdfast.model.errors import ConfigError, Unavailable
from holdfast.model.event import EventKind
from holdfast.store import SqlStore, open_store
from support.simulated.clock import SimClock
from support.whole_recovery import T0, WHOLE, event

IDS = ("traceId", "spanId", "parentSpanId")


def with_base64_ids(document: Any) -> Any:
    """OTLP's JSON has ids in hex, where the library's JSON has base64; all else is the same."""
    if isinstance(document, dict):
        return {
            key: base64.b64encode(bytes.fromhex(value)).decode() if key in IDS else with_base64_ids(value)
            for key, value in document.items()
        }
    return [with_base64_ids(each) for each in document] if isinstance(document, list) else document


class Receiver:
    """Takes ``POST /v1/traces``; an unknown field or a value of the wrong type is an error."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.status, self.answer = 200, b"{}"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/json")
                if outer.status == 200:
                    outer.requests.append(json_format.ParseDict(with_base64_ids(body), ExportTraceServiceRequest()))
                    outer.headers.append(dict(self.headers))
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def spans(self) -> list[Any]:
        return [s for r in self.requests for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans]

    def incidents(self) -> list[str]:
        return [a.value.string_value for s in self.spans() for a in s.attributes if a.key == "holdfast.incident.id"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)


class Head:
    """A leader's store with a clock."""

    def __init__(self, store: SqlStore, url: str) -> None:
        self.store, self.url, self.clock = store, url, SimClock()
        self.offset = self.clock.now() - T0
        lease = store.take_lease("head1", self.clock.now(), 1e9)
        assert lease is not None
        self.fence: int | None = lease.fence
        self.sender().look()  # switched on

    def sender(self) -> TraceSender:
        resource = {"service.name": "holdfast", "slurm.cluster": "c1"}
        receiver = OtlpReceiver(self.url)
        return TraceSender(self.store, self.clock, lambda: self.fence, receiver.send, lambda: resource)

    def incident(self, number: str) -> None:
        """One that is closed now."""
        events = (*WHOLE, event(142.0, EventKind.INCIDENT_CLOSED))
        later = self.clock.now() - T0 - timedelta(seconds=142)
        made = tuple(replace(e, at=e.at + later, incident_id=number) for e in events)
        assert self.fence is not None
        self.store.commit(Change(events=made), self.fence)


@pytest.fixture
def head(tmp_path: Path, receiver: Receiver) -> Iterator[Head]:
    store = open_store(f"sqlite:///{tmp_path}/holdfast.db")
    yield Head(store, receiver.url)
    store.close()


def settled(head: Head) -> None:
    head.clock.advance(SETTLE_S + 1)


def test_a_closed_incident_arrives_as_one_trace(head: Head, receiver: Receiver) -> None:
    head.clock.advance(1)
    head.incident("a")
    assert head.sender().look() == 0, "its job may still report"
    settled(head)
    assert head.sender().look() == 1
    root, *children = receiver.spans()
    assert (root.name, root.parent_span_id) == ("incident", b"")
    assert (root.end_time_unix_nano - root.start_time_unix_nano) / 1e9 == pytest.approx(42)
    assert {c.parent_span_id for c in children} == {root.span_id}
    assert {"phase detect", "phase restart", "job down"} <= {c.name for c in children}
    assert [e.name for e in root.events][:2] == ["fault.occurred", "incident.opened"]
    (resource,) = [rs.resource for r in receiver.requests for rs in r.resource_spans]
    assert {a.key: a.value.string_value for a in resource.attributes}["slurm.cluster"] == "c1"


def test_nothing_is_sent_twice_not_even_by_the_next_process(head: Head, receiver: Receiver) -> None:
    head.clock.advance(1)
    head.incident("a")
    settled(head)
    assert (head.sender().look(), head.sender().look()) == (1, 0)
    head.incident("b")
    settled(head)
    assert head.sender().look() == 1
    assert receiver.incidents() == ["a", "b"]


def test_what_was_closed_before_traces_were_switched_on_is_not_sent(tmp_path: Path, receiver: Receiver) -> None:
    store = open_store(f"sqlite:///{tmp_path}/old.db")
    head = Head(store, receiver.url)
    store.set_note(NOTE, "nonsense")
    head.incident("old")
    settled(head)
    assert head.sender().look() == 0
    settled(head)
    assert head.sender().look() == 0
    store.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_receiver_that_is_away_gets_it_later(head: Head, receiver: Receiver, status: int) -> None:
    head.clock.advance(1)
    head.incident("a")
    settled(head)
    receiver.status = status
    with pytest.raises(Unavailable, match=str(status)):
        head.sender().look()
    receiver.status = 200
    assert head.sender().look() == 1
    assert receiver.incidents() == ["a"]


@pytest.mark.parametrize(
    ("status", "answer"), [(400, b"{}"), (301, b"{}"), (200, b'{"partialSuccess": {"rejectedSpans": "3"}}')]
)
def test_a_trace_that_is_refused_holds_up_no_other(head: Head, receiver: Receiver, status: int, answer: bytes) -> None:
    head.clock.advance(1)
    head.incident("a")
    settled(head)
    receiver.status, receiver.answer = status, answer
    assert head.sender().look() == 1
    receiver.status, receiver.answer = 200, b"not JSON"
    head.incident("b")
    settled(head)
    assert head.sender().look() == 1
    assert receiver.incidents()[-1] == "b"


def test_a_standby_sends_nothing(head: Head, receiver: Receiver) -> None:
    head.clock.advance(1)
    head.incident("a")
    settled(head)
    head.fence = None
    assert head.sender().look() == 0
    head.fence = 0  # it has lost the lease, and does not know
    assert head.sender().look() == 0
    assert head.store.note(NOTE) is not None
    assert len(receiver.incidents()) == 1, "at most once more; it is the same trace"


class Waits:
    """Stands for the thread's stop: ends it after some waits, and remembers them."""

    def __init__(self, times: int) -> None:
        self.left, self.waited_s = times, list[float]()

    def wait(self, pause_s: float) -> bool:
        self.waited_s.append(pause_s)
        self.left -= 1
        return self.left < 0


def test_failures_make_it_wait_longer_and_end_nothing(head: Head, caplog: pytest.LogCaptureFixture) -> None:
    sender, stop, fail = head.sender(), Waits(8), True

    def look() -> int:
        if fail:
            raise Unavailable("no route")
        return 0

    sender.look = look  # type: ignore[method-assign]
    sender.run(stop)  # type: ignore[arg-type]
    assert stop.waited_s == [LOOK_EVERY_S, 20, 40, 80, 160, 300, 300, 300, 300]
    assert caplog.text.count("event=traces_unsent") == 1
    fail, stop = False, Waits(1)
    sender.run(stop)  # type: ignore[arg-type]
    assert stop.waited_s[-1] == LOOK_EVERY_S


def test_a_bug_ends_nothing(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    monkeypatch.setattr(unexpected, "failed", lambda part, _error: failed.append(part))
    sender = head.sender()
    monkeypatch.setattr(sender, "look", lambda: 1 // 0)
    sender.run(Waits(2))  # type: ignore[arg-type]
    assert failed == ["traces", "traces"]


def test_a_receiver_that_does_not_listen_is_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:9/v1/traces"):
        OtlpReceiver("http://127.0.0.1:9/v1/traces").send(b"{}")


def test_the_header_comes_from_a_file_and_is_not_logged(
    head: Head, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "header"
    file.write_text("Authorization: Bearer secret\n")
    OtlpReceiver(receiver.url, file).send(b'{"resourceSpans": []}')
    assert receiver.headers[-1]["Authorization"] == "Bearer secret"
    assert "secret" not in caplog.text
    file.unlink()
    with pytest.raises(Unavailable, match="otlp_header_file"):
        OtlpReceiver(receiver.url, file).send(b"{}")


def test_a_key_in_the_address_is_in_no_error() -> None:
    with pytest.raises(Unavailable, match=r"at http://127\.0\.0\.1:9/v1/traces$"):
        OtlpReceiver("http://127.0.0.1:9/v1/traces?api-key=secret").send(b"{}")


@pytest.mark.parametrize(
    ("url", "header", "why"),
    [
        ("http://tempo:4318/v1/traces", None, ""),
        ("https://tempo/v1/traces", Path("h"), ""),
        ("http://127.0.0.1:4318/v1/traces", Path("h"), ""),
        ("", None, ""),
        ("tempo:4318", None, "is no address"),
        ("ftp://tempo/v1/traces", None, "is no address"),
        ("http://tempo:x/v1/traces", None, "is no address"),
        ("http://tempo:4318", None, "the path is missing"),
        ("http://a:b@tempo/v1/traces", None, "no password"),
        ("http://tempo:4318/v1/traces", Path("h"), "unencrypted"),
        ("", Path("h"), "no otlp_url"),
    ],
)
def test_settings(url: str, header: Path | None, why: str) -> None:
    section = TelemetrySection(url, header)
    if not why:
        check_telemetry(section, "telemetry")
        return
    with pytest.raises(ConfigError, match=why) as found:
        check_telemetry(section, "telemetry")
    assert "\n" not in str(found.value)
