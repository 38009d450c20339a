"""Sends each closed incident as a trace to a receiver of OTLP/HTTP.

It runs in a separate thread and reads the store by the number of the last event that was sent, which is a note in the store: there is no
queue that could fill up, nothing waits for the receiver, and a restart or a failover continues where the last one stopped. Only the leader
sends. An incident may be sent twice after a crash; it is the same trace then (``metrics/traces.py``)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event as Stop

import urllib3

from holdfast import __version__, unexpected
from holdfast.metrics.otlp import traces_request
from holdfast.metrics.traces import TraceAttributes, TraceSpan, trace_of
from holdfast.model.errors import LeaderFencedOff, OutsideError, Rejected, Stale, Unavailable
from holdfast.model.event import Event, EventKind
from holdfast.ports import Clock, Store

log = logging.getLogger(__name__)

NOTE = "otlp.sent"
PART = "traces"
"""Part of the process (:mod:`holdfast.unexpected`)."""
SETTLE_S = 300.0
"""An incident is sent this long after it was closed: its job may report meanwhile from which step it resumed."""
LOOK_EVERY_S = 10.0
LONGEST_PAUSE_S = 300.0
"""Between two tries while the receiver does not answer."""
PAGE = 100
CONNECT_S, READ_S = 3.0, 10.0
ANSWER_BYTES = 64 * 1024
_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which OTLP has a sender try again."""


@dataclass
class OtlpReceiver:
    """``POST`` to one address."""

    url: str
    """With its path, such as ``http://127.0.0.1:4318/v1/traces``."""
    header_file: Path | None = None
    """A file with one line ``Name: value``, read at each request; None: no header."""
    _pool: urllib3.PoolManager = field(init=False)

    def __post_init__(self) -> None:
        timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=1, retries=False, timeout=timeout)

    @property
    def named(self) -> str:
        """As it may be shown: what follows a question mark may be a key."""
        return self.url.partition("?")[0]

    def send(self, body: bytes) -> None:
        """Raises Unavailable where it is to be tried again; Rejected where the receiver will never take it."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **self._header()}
        try:
            answer = self._pool.request(
                "POST", self.url, body=body, headers=headers, redirect=False, preload_content=False
            )
            text = answer.read(ANSWER_BYTES)
            answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(f"{type(error).__name__} at {self.named}") from error
        if answer.status in _AGAIN:
            raise Unavailable(f"{self.named} answered {answer.status}")
        if answer.status != 200:
            raise Rejected(f"{self.named} answered {answer.status}")
        rejected = _rejected(text)
        if rejected:
            raise Rejected(f"{self.named} did not take {rejected} spans")

    def _header(self) -> dict[str, str]:
        if self.header_file is None:
            return {}
        try:
            name, _, value = self.header_file.read_text(encoding="utf-8").strip().partition(":")
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(f"telemetry.otlp_header_file cannot be read: {type(error).__name__}") from error
        return {name.strip(): value.strip()}


def _rejected(answer: bytes) -> int:
    """Spans that the receiver did not take (``partialSuccess``); 0: it took all, or says nothing that can be read."""
    try:
        return int(json.loads(answer)["partialSuccess"]["rejectedSpans"])
    except (ValueError, KeyError, TypeError):
        return 0


@dataclass(frozen=True, slots=True)
class SentTraces:
    """Where the sender is."""

    after_id: int
    """Number of the last event of a closed incident that was sent."""
    since: datetime
    """When traces were switched on: what was closed before is not sent."""

    def dump(self) -> str:
        return json.dumps({"after_id": self.after_id, "since": self.since.isoformat()})

    @classmethod
    def read(cls, note: str | None, now: datetime) -> SentTraces:
        """A note that cannot be read is as none: traces begin with what is closed from now on."""
        try:
            given = json.loads(note or "")
            return cls(int(given["after_id"]), datetime.fromisoformat(given["since"]))
        except (ValueError, KeyError, TypeError):
            return cls(0, now)


@dataclass
class TraceSender:
    """One for each controller process; :meth:`run` is its thread."""

    store: Store
    clock: Clock
    fence: Callable[[], int | None]
    """Fence of this process's lease; None: it does not lead."""
    send: Callable[[bytes], None]
    resource: Callable[[], TraceAttributes]
    _failing: bool = False

    def run(self, stop: Stop) -> None:
        """Until stopped. Whatever the receiver does, nothing else is disturbed."""
        pause_s = LOOK_EVERY_S
        while not stop.wait(pause_s):
            try:
                self.look()
            except OutsideError as error:
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                self._note_failure(str(error))
            except Exception as error:  # noqa: BLE001 - traces are missing then, nothing else
                pause_s = LONGEST_PAUSE_S
                unexpected.failed(PART, error)
            else:
                pause_s = LOOK_EVERY_S
                self._failing = False
                unexpected.passed(PART)

    def look(self) -> int:
        """Send what is due. Returns how many incidents were sent. Raises OutsideError: the rest is sent later."""
        fence, count = self.fence(), 0
        if fence is None:
            return 0
        before = self.store.note(NOTE)
        sent = SentTraces.read(before, self.clock.now())
        for closed in self._due(sent):
            self._send(closed)
            sent = SentTraces(closed.id, sent.since)
            if not self._keep(before, sent, fence):
                return count
            before, count = sent.dump(), count + 1
        if before != sent.dump():
            self._keep(before, sent, fence)
        return count

    def _due(self, sent: SentTraces) -> list[Event]:
        kinds, settled_at = (EventKind.INCIDENT_CLOSED,), self.clock.now() - timedelta(seconds=SETTLE_S)
        found = self.store.events(since=sent.since, after_id=sent.after_id, kinds=kinds, limit=PAGE)
        young = next((n for n, e in enumerate(found) if e.at > settled_at), len(found))
        return [e for e in found[:young] if e.incident_id is not None]

    def _keep(self, before: str | None, sent: SentTraces, fence: int) -> bool:
        try:
            self.store.record_once(NOTE, before, sent.dump(), (), fence)
        except (Stale, LeaderFencedOff):
            return False  # another controller sends
        return True

    def _send(self, closed: Event) -> None:
        number = closed.incident_id or ""
        spans: tuple[TraceSpan, ...] = trace_of(number, self.store.events(incident_id=number))
        body = json.dumps(traces_request(spans, self.resource(), __version__), separators=(",", ":")).encode()
        try:
            if spans:
                self.send(body)
        except Rejected as error:  # not again: the next ones would wait for it for ever
            log.error("event=trace_refused incident=%s error=%r", number, str(error))

    def _note_failure(self, error: str) -> None:
        if not self._failing:
            effect = "closed incidents are sent as traces once the receiver answers"
            log.warning("event=traces_unsent error=%r effect=%r", error, effect)
        self._failing = True
