"""Sending: nothing lost, nothing renamed, refusals distinguished, a fault sent at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.sending import sender as sender_module
from holdfast.agent.sending.client import ControllerClient, Controllers
from holdfast.agent.sending.memory import AgentMemory
from holdfast.agent.sending.outbox import Outbox, OutboxItem
from holdfast.agent.sending.sender import Sender, SenderIdentity, backoff_s
from support.agent_bench import FakeController

ME = SenderIdentity("n1", "i-0abc", "boot-1")


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "BACKOFF_FIRST_S", 0.02)
    monkeypatch.setattr(sender_module, "BACKOFF_MAX_S", 0.1)


def finding(code: str) -> OutboxItem:
    return OutboxItem({"kind": "finding", "check": "gpu.xid", "code": code}, time.monotonic())


@contextmanager
def sending(
    folder: Path, *urls: str, items: tuple[OutboxItem, ...] = (), event: threading.Event | None = None
) -> Iterator[tuple[Sender, Outbox]]:
    outbox = Outbox(AgentMemory(folder), "boot-1")
    outbox.put(items)
    sender = Sender(ControllerClient(Controllers(urls), None, None), outbox, ME, folder)
    sender._event = event or sender._event
    sender.start()
    yield sender, outbox
    sender.stop()


def codes(controller: FakeController) -> list[str]:
    return [item["code"] for item in controller.items()]


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.005)


def refuse_code(code: str, status: int) -> Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]:
    def answer(report: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        bad = any(item.get("code") == code for item in report["items"])
        return (status, {"error": {"code": "invalid", "message": "no"}}) if bad else (200, {})

    return answer


def test_a_lost_answer_is_the_same_report_again(tmp_path: Path, controller: FakeController) -> None:
    controller.lose_answers = 2
    with sending(tmp_path, controller.url, items=(finding("79"),)) as (sender, outbox):
        until(lambda: len(outbox) == 0)
        outbox.put([finding("48")])
        sender.wake()
        until(lambda: len(outbox) == 0)
    names = [report["sequence"] for report in controller.reports]
    assert names.count(names[0]) >= 2
    assert codes(controller) == ["79", "48"]


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_what_does_not_blame_the_content_is_kept_and_tried_again(
    tmp_path: Path, controller: FakeController, status: int
) -> None:
    controller.answer = lambda _report: (status, {}) if len(controller.reports) < 3 else (200, {})
    with sending(tmp_path, controller.url, items=(finding("1"), finding("2"))) as (_sender, outbox):
        until(lambda: len(outbox) == 0)
    assert codes(controller) == ["1", "2"]
    assert not (tmp_path / "dead-letters.jsonl").exists()


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_poisonous_item_is_parked_and_the_others_arrive(
    tmp_path: Path, controller: FakeController, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    controller.answer = refuse_code("bad", status)
    with sending(tmp_path, controller.url) as (sender, outbox):
        sender.beat({"interval_s": 1})
        controller.wait(lambda: bool(controller.heartbeats))
        outbox.put([finding("1"), finding("bad"), finding("2")])
        sender.wake(urgent=True)
        until(lambda: len(outbox) == 0)
    assert codes(controller) == ["1", "2"]
    (line,) = (tmp_path / "dead-letters.jsonl").read_text().splitlines()
    assert [item["code"] for item in json.loads(line)["items"]] == ["bad"]
    assert "event=item_refused" in caplog.text


def test_nothing_is_parked_while_the_controller_refuses_every_word_of_ours(
    tmp_path: Path, controller: FakeController
) -> None:
    controller.answer = lambda _report: (422, {"error": {"code": "unsupported_version", "message": "upgrade"}})
    controller.heartbeat_status = 422
    with sending(tmp_path, controller.url, items=(finding("1"), finding("2"))) as (sender, outbox):
        sender.beat({"interval_s": 1})
        controller.wait(lambda: len(controller.reports) > 4)
        assert len(outbox) == 2
        controller.answer = lambda _report: (200, {})
        until(lambda: len(outbox) == 0)
    assert sorted(codes(controller)) == ["1", "2"]
    assert not (tmp_path / "dead-letters.jsonl").exists()


def test_the_next_controller_is_asked_when_the_first_is_not_there_or_not_the_leader(
    tmp_path: Path, controller: FakeController
) -> None:
    follower = FakeController()
    follower.answer = lambda _report: (503, {"error": {"code": "unavailable", "message": "not the leader"}})
    with sending(tmp_path, "http://127.0.0.1:1", follower.url, controller.url, items=(finding("79"),)) as (
        _sender,
        outbox,
    ):
        until(lambda: len(outbox) == 0)
    follower.close()
    assert codes(controller) == ["79"]


def test_a_fresh_fault_is_tried_at_once_even_during_a_long_backoff(
    tmp_path: Path, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "backoff_s", lambda _failures: 60.0)
    controller.answer = lambda _report: (503, {})
    with sending(tmp_path, controller.url, items=(finding("1"),)) as (sender, outbox):
        controller.wait(lambda: len(controller.reports) == 1)
        controller.answer = lambda _report: (200, {})
        outbox.put([finding("2")])
        sender.wake(urgent=True)
        until(lambda: len(outbox) == 0, 2.0)


def test_a_heartbeat_that_arrives_ends_the_backoff(
    tmp_path: Path, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "backoff_s", lambda _failures: 60.0)
    controller.answer = lambda _report: (503, {})
    with sending(tmp_path, controller.url, items=(finding("1"),)) as (sender, outbox):
        controller.wait(lambda: len(controller.reports) == 1)
        controller.answer = lambda _report: (200, {})
        sender.beat({"interval_s": 1})
        until(lambda: len(outbox) == 0, 2.0)


def test_what_waits_is_sent_before_the_end(tmp_path: Path, controller: FakeController) -> None:
    with sending(tmp_path, controller.url) as (_sender, outbox):
        outbox.put([finding("79")])
    assert codes(controller) == ["79"]


def test_between_tries_at_an_unreachable_controller_it_waits_once_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float | None]()

    class Counted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(sender_module, "backoff_s", lambda failures: 0.0 if failures < 4 else 60.0)
    with sending(tmp_path, "http://127.0.0.1:1", event=Counted(), items=(finding("79"),)) as (sender, outbox):
        until(lambda: (waits or [None])[-1] not in (None, 0.0))
        assert waits == [None, 0.0, 0.0, 0.0, 0.0, pytest.approx(60.0, abs=10.0)]
        assert sender._failures == 5
        assert len(outbox) == 1


@pytest.mark.parametrize(("failures", "most_s"), [(0, 0.5), (3, 4.0), (6, 30.0), (1000, 30.0)])
def test_backoff_is_exponential_with_full_jitter_and_a_cap(
    failures: int, most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert backoff_s(failures, lambda low, high: high) == most_s
    assert backoff_s(failures, lambda low, high: low) == 0


def test_a_report_in_any_script_is_as_long_on_the_wire_as_was_counted(
    tmp_path: Path, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    send = ControllerClient._request

    def measured(client: ControllerClient, method: str, path: str, data: bytes | None, *rest: Any) -> Any:
        sizes.append(len(data or b""))
        return send(client, method, path, data, *rest)

    monkeypatch.setattr(ControllerClient, "_request", measured)
    body = {"kind": "statement", "statement": "checkpoint.saved", "job_id": 7, "uid": 1000, "path": "/" + "é" * 3700}
    items = tuple(OutboxItem(body, time.monotonic()) for _ in range(150))
    with sending(tmp_path, controller.url, items=items) as (_sender, outbox):
        until(lambda: len(outbox) == 0)
    assert max(sizes) < 1_000_000
    assert len(controller.items()) == 150


def test_of_a_large_report_one_bad_item_costs_few_more(tmp_path: Path, controller: FakeController) -> None:
    controller.answer = refuse_code("bad", 413)
    with sending(tmp_path, controller.url) as (sender, outbox):
        sender.beat({"interval_s": 1})
        controller.wait(lambda: bool(controller.heartbeats))
        outbox.put([*(finding(str(n)) for n in range(100)), finding("bad")])
        sender.wake(urgent=True)
        until(lambda: len(outbox) == 0)
    assert codes(controller) == [str(n) for n in range(100)]
    assert len(controller.reports) < 20


def test_a_heartbeat_says_how_long_words_of_progress_wait(tmp_path: Path, controller: FakeController) -> None:
    controller.answer = lambda _report: (429, {})
    body = {"kind": "statement", "statement": "progress", "job_id": 7, "uid": 1000}
    with sending(tmp_path, controller.url, items=(OutboxItem(body, time.monotonic() - 60, "progress/7/0"),)) as (
        sender,
        _outbox,
    ):
        sender.beat({"interval_s": 1})
        controller.wait(lambda: bool(controller.heartbeats))
    assert controller.heartbeats[0]["words_wait_s"] == pytest.approx(60, abs=10)
