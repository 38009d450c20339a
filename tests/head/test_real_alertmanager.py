"""Debian's own Alertmanager takes Holdfast's alerts: one appears, is silenced by its silence, and resolves."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3

from holdfast.actor.notice_desk import NoticeDesk, Place
from holdfast.clock import SystemClock
from holdfast.decisions.notices.texts import NoticeLinks
from holdfast.head.addresses import address
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Notify
from holdfast.model.actions.steps import StepKey
from holdfast.model.book import Change
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.ports import Operation
from support.elastic_groups import free_port
from support.simulated.store import MemoryStore
from support.store_nouns import incident

pytestmark = pytest.mark.slow
PROGRAM = "prometheus-alertmanager"
CONFIG = "route: {receiver: none, group_wait: 0s}\nreceivers: [{name: none}]\n"
HTTP = urllib3.PoolManager()


def ask(port: int, verb: str, path: str, body: object = None) -> Any:
    headers = {"Content-Type": "application/json"}
    answer = HTTP.request(
        verb,
        f"http://127.0.0.1:{port}/api/v2/{path}",
        body=json.dumps(body).encode() if body else None,
        headers=headers,
    )
    assert answer.status == 200, answer.data
    return json.loads(answer.data)


def until(found: Callable[[], Any], within_s: float = 60.0) -> Any:
    end = time.monotonic() + within_s
    while True:
        try:
            if got := found():
                return got
        except urllib3.exceptions.HTTPError:
            pass
        assert time.monotonic() < end, "not within its time"
        time.sleep(0.05)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    assert shutil.which(PROGRAM), f"{PROGRAM} is missing: ./dev setup installs it"
    (tmp_path / "am.yml").write_text(CONFIG)
    number = free_port()
    command = [PROGRAM, f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/data"]
    command += [f"--web.listen-address=127.0.0.1:{number}", "--cluster.listen-address="]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        until(lambda: ask(number, "GET", "status"))
        yield number
        process.terminate()


def test_an_alert_appears_is_silenced_and_resolves(port: int) -> None:
    store, clock = MemoryStore(), SystemClock()
    lease = store.take_lease("head", clock.now(), 3600)
    assert lease is not None
    links = NoticeLinks("https://docs.example", "https://hf.example/incidents", "prod")
    desk = NoticeDesk(store, clock, [Place(address("urls[0]", f"alertmanager://127.0.0.1:{port}", clock, links))])
    broken = replace(incident(), state=IncidentState.AWAITING_HUMAN, closed_at=None, opened_at=clock.now())
    key = StepKey(broken.id, steps.notify_awaiting_human(0), 1).text
    notify = Notify("n1 needs an operator: no rung is left", "why", NoticeLevel.NEEDS_SOMEBODY, Topic.AWAITING_HUMAN)
    intent = Intent(key, broken.id, notify, "why", lease.fence, IntentState.PLANNED, clock.now())
    store.commit(Change(incidents=(broken,), intents=(intent,)), lease.fence)

    desk.turn(store.due_intents(), lease.fence)
    assert (desk.state().error, store.due_intents()) == ("", ())
    (alert,) = until(lambda: ask(port, "GET", "alerts"))
    assert alert["labels"]["alertname"] == "HoldfastAwaitingHuman"
    assert (alert["labels"]["node"], alert["labels"]["incident"]) == (broken.node, broken.id)
    assert alert["annotations"]["summary"] == notify.subject
    assert alert["status"]["state"] in ("unprocessed", "active")
    lasts = datetime.fromisoformat(alert["endsAt"]) - datetime.now(UTC)
    assert lasts > timedelta(minutes=5), "it outlives the minutes until it is posted again"

    now = datetime.now(UTC)
    matcher = {"name": "node", "value": broken.node, "isRegex": False, "isEqual": True}
    silence = {
        "matchers": [matcher],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(hours=1)).isoformat(),
        "createdBy": "ops",
        "comment": "known",
    }
    number = ask(port, "POST", "silences", silence)["silenceID"]

    def silenced() -> bool:
        (shown,) = ask(port, "GET", "alerts")
        return bool(shown["status"]["silencedBy"] == [number])

    assert until(silenced)

    store.operate(Operation("close", "ops", broken.id, "fixed"), clock.now())
    desk.turn((), lease.fence)
    assert until(lambda: ask(port, "GET", "alerts") == [])
    assert desk.state().error == ""
