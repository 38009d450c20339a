"""Sender thread: sends the loop's heartbeats and the outbox's reports to the controller."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.agent.node.job_gate import JobGate
from holdfast.agent.sending.client import ControllerAnswer, ControllerClient, NoAnswer
from holdfast.agent.sending.failures import SendFailure
from holdfast.agent.sending.outbox import Batch, Outbox
from holdfast.agent.sending.pace import HeartbeatPace
from holdfast.agent.sending.reporting import Reporting
from holdfast.agent.timing.jitter import JITTER
from holdfast.model.agents.report import WIRE_VERSION
from holdfast.model.pauses import doubling_s

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
POISON = frozenset({400, 413, 422})
"""Statuses that reject the content. After any other (401, 403, 404, 429, 5xx) a later retry may succeed: nothing is given up."""
_MOST_REFUSED = 10_000
_SOON_S = 0.1
"""Minimum time between immediate tries for a new finding during a backoff."""


@dataclass(frozen=True, slots=True)
class SenderIdentity:
    """Sender's identity: the envelope of every message."""

    node: str
    instance_id: str
    boot_id: str

    def envelope(self, boot_id: str | None = None) -> dict[str, Any]:
        return {
            "version": WIRE_VERSION,
            "node": self.node,
            "instance_id": self.instance_id,
            "boot_id": boot_id or self.boot_id,
            "agent_version": __version__,
        }


def backoff_s(failures: int, chance: Callable[[float, float], float] = JITTER.uniform) -> float:
    """Exponential with full jitter: between 0 and min(30 s, 0.5 s × 2^failures)."""
    return chance(0.0, doubling_s(BACKOFF_FIRST_S, failures + 1, BACKOFF_MAX_S))


class Sender:
    """Owns the connection. ``beat`` and ``wake`` are called from the loop and return at once."""

    def __init__(
        self,
        client: ControllerClient,
        outbox: Outbox,
        identity: SenderIdentity,
        folder: Path,
        reporting: Reporting | None = None,
        gate: JobGate | None = None,
        neighbours: Callable[[object], None] = lambda _named: None,
        pace: HeartbeatPace | None = None,
        surveys: Callable[[object], None] = lambda _named: None,
        acting: Callable[[Mapping[str, Any]], None] = lambda _answer: None,
    ) -> None:
        """``reporting`` receives each request's outcome, ``gate``, ``pace`` and ``acting`` each answer to a heartbeat, ``neighbours``
        and ``surveys`` what a leader names; all from this class's thread."""
        self._acting = acting
        self._neighbours = neighbours
        self._surveys = surveys
        self._pace = pace
        self._client = client
        self._outbox = outbox
        self._identity = identity
        self._folder = folder
        self._event = threading.Event()
        self._stopping = False
        self._heartbeat: Mapping[str, Any] | None = None
        self._urgent = False
        self._failures = 0
        self._retrying = False
        self._retry_at_s = 0.0
        self._tried_at_s = 0.0
        self._envelope_accepted = False
        self._reporting = reporting
        self._gate = gate or JobGate()
        self._reachable: bool | None = None
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def start(self) -> None:
        self._event.set()
        self._thread.start()

    def stop(self, drain_s: float = 3.0) -> None:
        """Send what is waiting, for at most ``drain_s``, and stop. The rest is on disk."""
        self._stopping = True
        self._event.set()
        self._thread.join(drain_s)

    def beat(self, heartbeat: Mapping[str, Any]) -> None:
        """Send this heartbeat; one that was not sent yet is replaced."""
        self._heartbeat = heartbeat
        self._event.set()

    def wake(self, *, urgent: bool = False) -> None:
        """Wake the sender for new items. ``urgent``: a fault, try even during a backoff."""
        self._urgent = self._urgent or urgent
        self._event.set()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            self._event.wait(max(0.0, self._retry_at_s - time.monotonic()) if self._retrying else None)
            self._event.clear()
            stopping = self._stopping
            self._send_reports()
            self._send_heartbeat()
        self._client.close()

    def _send_heartbeat(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is None:
            return
        asked_s = self._gate.clock_s()
        try:
            message = {**self._identity.envelope(), **heartbeat, "words_wait_s": self._outbox.words_wait_s()}
            answer = self._client.post("/v1/heartbeats", message)
        except NoAnswer as error:
            self._note(error.failure, str(error))
            return
        self._envelope_accepted = answer.status == 200
        if self._envelope_accepted:
            self._gate.answered(answer.body, asked_s)
            self._neighbours(answer.body.get("neighbour_nodes"))
            if answer.body.get("leader") is True:
                self._surveys(answer.body.get("surveys", []))
            if self._pace is not None:
                self._pace.answered(heartbeat, answer.body)
            self._acting(answer.body)
        self._note(answer.failure, f"heartbeat answered {answer.status} {answer.error}", answer)
        if answer.status == 200 and self._failures:
            self._retry_at_s = 0.0
            self._event.set()

    def _send_reports(self) -> None:
        """Send everything that waits, oldest first, until the first failure; a waiting heartbeat goes between two reports."""
        if self._urgent:
            self._urgent = False
            self._retry_at_s = min(self._retry_at_s, self._tried_at_s + _SOON_S)
        if time.monotonic() < self._retry_at_s:
            return
        self._retrying = False
        while (batch := self._outbox.next_batch()) is not None:
            self._tried_at_s = time.monotonic()
            if not self._send(batch):
                self._retry_at_s = max(self._retry_at_s, time.monotonic() + backoff_s(self._failures))
                self._failures += 1
                self._retrying = True
                return
            self._failures = 0
            self._retry_at_s = 0.0
            self._send_heartbeat()

    def _send(self, batch: Batch) -> bool:
        """Send a report; whether the next one may be sent."""
        message = {
            **self._identity.envelope(batch.boot_id),
            "outbox_id": self._outbox.id,
            "sequence": batch.sequence,
            "items": batch.items,
        }
        try:
            answer = self._client.post("/v1/reports", message)
        except NoAnswer as error:
            self._note(error.failure, str(error))
            return False
        self._note(answer.failure, f"report answered {answer.status} {answer.error}", answer)
        if answer.status == 200:
            self._park_refused(batch, answer)
            self._outbox.accepted(batch)
            return True
        if answer.status in POISON:
            return self._refused(batch, answer)
        self._retry_at_s = time.monotonic() + answer.retry_after_s * JITTER.uniform(0.5, 1.5)
        return False

    def _park_refused(self, batch: Batch, answer: ControllerAnswer) -> None:
        """Park items that the controller refused in an accepted report: no other report will deliver them."""
        for number, why in refused_items(answer):
            if number < len(batch.items):
                self._outbox.write_off(batch, (batch.items[number],), self._folder, why)

    def _refused(self, batch: Batch, answer: ControllerAnswer) -> bool:
        """Handle rejected content. A single item is parked only if a heartbeat shows that the envelope is not what is refused."""
        if len(batch.items) > 1:
            log.warning("event=report_refused status=%d error=%r effect=sent_in_halves", answer.status, answer.error)
            return self._outbox.split(batch)
        if not self._envelope_accepted:
            return False
        return self._outbox.park(batch, self._folder, f"{answer.status} {answer.error}")

    def _note(self, failure: SendFailure | None, text: str, answer: ControllerAnswer | None = None) -> None:
        if self._reporting is not None:
            if failure is not None:
                self._reporting.failed(failure)
            elif answer is not None:
                self._reporting.succeeded(answer.url)
        reachable = answer is not None and answer.status == 200
        if reachable != self._reachable:
            self._reachable = reachable
            if reachable:
                log.info("event=controller_reachable")
            else:
                log.warning("event=controller_unreachable error=%r waiting=%d", text, len(self._outbox))


def refused_items(answer: ControllerAnswer) -> list[tuple[int, str]]:
    """Items of a report that the controller refused, with the reasons."""
    told = answer.body.get("refused")
    found = []
    for each in told[:_MOST_REFUSED] if isinstance(told, list) else ():
        number, why = (each.get("item"), each.get("message")) if isinstance(each, dict) else (None, None)
        if isinstance(number, int) and number >= 0:
            found.append((number, why[:300] if isinstance(why, str) else ""))
    return found
