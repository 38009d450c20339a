"""Posts alerts to an Alertmanager: its silences, routes and inhibition then hold for Holdfast's messages, too."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import urllib3
from urllib3.util import Url, make_headers, parse_url

from holdfast.decisions.notices.texts import TOPIC_TEXTS, NoticeLinks, runbook
from holdfast.model.errors import Unavailable
from holdfast.model.notice import Matter, Message, NoticeLevel
from holdfast.ports import Clock

HOLD_S = 900.0
"""An alert is posted with its end this far ahead, and again each minute while it is open: one that is no longer posted ends."""
PAGE_HOLD_S = 86_400.0
"""The same for a page of a process itself, which is posted once."""
TIMEOUT_S = 10.0
_PER_POST = 200
"""Most alerts in one request."""
_MOST_ANSWER_BYTES = 120
"""Of a refusal that is shown; no more is read of an answer."""
_SEVERITIES: Mapping[NoticeLevel, str] = {
    NoticeLevel.NEEDS_SOMEBODY: "critical",
    NoticeLevel.HEALED: "info",
    NoticeLevel.DIGEST: "info",
}
SCHEMES: Mapping[str, str] = {"alertmanager": "http", "alertmanagers": "https"}
"""Schemes of addresses, and how the Alertmanager is reached."""


@dataclass(frozen=True)
class Alertmanager:
    """One Alertmanager, by ``alertmanager://[USER:PASSWORD@]HOST:PORT[/PREFIX]``, or ``alertmanagers://`` for https.

    Implements :class:`holdfast.ports.Address`."""

    name: str
    url: Url = field(repr=False)
    clock: Clock
    links: NoticeLinks = field(default_factory=NoticeLinks)
    _pool: urllib3.PoolManager = field(default_factory=urllib3.PoolManager, repr=False)
    _pages: dict[str, datetime] = field(default_factory=dict, repr=False)
    """Starts of the pages that were posted and are not over."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def send(self, message: Message) -> None:
        """Post one alert for each matter of the message; over: with their end now. Raises Unavailable."""
        now = self.clock.now()
        ends = now if message.over or message.level is not NoticeLevel.NEEDS_SOMEBODY else _after(now, HOLD_S)
        single = len(message.matters) == 1
        self._post([self._alert(m, now, ends, message.body if single else "") for m in message.matters])

    def keep(self, matters: Sequence[Matter]) -> None:
        """Post what is open again, so that it does not count as resolved. Raises Unavailable."""
        now = self.clock.now()
        self._post([self._alert(m, now, _after(now, HOLD_S), m.body) for m in matters])

    def page(self, matter: Matter, *, over: bool) -> None:
        """A page of a process itself: it lasts for a day unless it is over before. Raises Unavailable."""
        now = self.clock.now()
        self._post([self._alert(matter, now, now if over else _after(now, PAGE_HOLD_S), matter.body)])

    def _alert(self, matter: Matter, now: datetime, ends: datetime, body: str) -> dict[str, Any]:
        labels = {
            "alertname": alert_name(matter),
            "severity": _SEVERITIES[matter.level],
            "topic": matter.topic.value,
            "cluster": self.links.cluster,
            "node": matter.nodes[0] if len(matter.nodes) == 1 else "",
            "incident": matter.incident_id,
            "target": "" if matter.incident_id else matter.target,
        }
        notes = {
            "summary": matter.subject,
            "description": body or f"Next, Holdfast: {TOPIC_TEXTS[matter.topic].next_step}",
            "runbook_url": runbook(self.links, matter.topic),
        }
        alert: dict[str, Any] = {
            "labels": {key: value for key, value in labels.items() if value},
            "annotations": notes,
            "startsAt": _rfc3339(min(matter.since or now, now)),
            "endsAt": _rfc3339(ends),
        }
        if self.links.incidents.startswith(("http://", "https://")) and matter.incident_id:
            alert["generatorURL"] = f"{self.links.incidents.rstrip('/')}/{matter.incident_id}"
        return alert

    def _post(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        for start in range(0, len(alerts), _PER_POST):
            self._post_some(alerts[start : start + _PER_POST])

    def _post_some(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        headers = {"Content-Type": "application/json"}
        if self.url.auth:
            headers |= make_headers(basic_auth=self.url.auth)
        try:
            answer = self._pool.request(
                "POST",
                _target(self.url),
                body=json.dumps(alerts).encode(),
                headers=headers,
                timeout=TIMEOUT_S,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            said = answer.read(_MOST_ANSWER_BYTES) if answer.status != 200 else b""
            answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"{self.url.host} does not answer: {type(error).__name__}") from error
        if answer.status != 200:
            raise Unavailable(f"{self.url.host} answered {answer.status}: {said.decode(errors='replace')!r}")


def alertmanager(name: str, url: str, clock: Clock, links: NoticeLinks) -> Alertmanager:
    """Raises ValueError, without the address in its text, for one that cannot be used."""
    try:
        parsed = parse_url(url)
    except urllib3.exceptions.LocationParseError:
        raise ValueError("it is no address such as alertmanager://HOST:9093") from None
    if parsed.scheme not in SCHEMES or not parsed.host:
        raise ValueError("it names no host: alertmanager://HOST:9093")
    return Alertmanager(name, parsed, clock, links)


def alert_name(matter: Matter) -> str:
    """``HoldfastAwaitingHuman``: rules and routes go by it."""
    return "Holdfast" + "".join(word.capitalize() for word in matter.topic.value.split("_"))


def _target(url: Url) -> str:
    port = f":{url.port}" if url.port else ":9093"
    path = (url.path or "").rstrip("/")
    return f"{SCHEMES[url.scheme or '']}://{url.host}{port}{path}/api/v2/alerts"


def _after(now: datetime, seconds: float) -> datetime:
    return now + timedelta(seconds=seconds)


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
