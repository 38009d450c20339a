"""`holdfast.client` and the example, against a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import client as holdfast_client
from holdfast.client import Holdfast, NotFound, Rejected, Unavailable, Usage

ID = "0h3k5d2m8x1q"
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "follow_incidents.py"


@pytest.fixture
def here(site: dict[str, str]) -> Holdfast:
    return Holdfast(site["HOLDFAST_URL"], site["HOLDFAST_TOKEN"])


def test_ten_calls(here: Holdfast) -> None:
    assert here.status().parts
    assert [n.name for n in here.nodes()] == ["n1", "n2"]
    assert [n.name for n in here.nodes(state=["drain"])] == ["n1"]
    assert here.node("n1").node.name == "n1"
    assert [i.id for i in here.incidents(only_open=True, check=["gpu.xid"])] == [ID]
    assert list(here.incidents(check=["gpu.ecc"])) == []
    assert here.incident(ID).incident.node == "n1"
    assert [j.job_id for j in here.jobs()] == [7]
    assert here.why(7).job_id == 7
    assert here.events().__next__().id == 1
    here.pause("a test")
    here.resume()
    assert [e.text for e in here.events(kind=["paused", "resumed"])][-2:] == ["pause by op: a test", "resume by op"]
    window = here.maintain("n2", 1, "a test")
    assert window.nodes == ["n2"]
    here.end_maintenance("n2")


def test_pages_are_read_to_the_end(here: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdfast_client, "_PAGE", 1)
    assert [n.name for n in here.nodes()] == ["n1", "n2"]
    ids = [e.id for e in here.events()]
    assert ids == sorted(set(ids))
    assert len(ids) >= 5


def test_errors(site: dict[str, str], here: Holdfast) -> None:
    with pytest.raises((Rejected, NotFound)):
        here.incident("nope")
    with pytest.raises((Rejected, NotFound)):
        here.node("../incidents")
    with pytest.raises(Usage):
        Holdfast(site["HOLDFAST_URL"], "wrong").status()
    with pytest.raises(Unavailable):
        Holdfast("http://127.0.0.1:1", "x").status()


def test_an_order_whose_answer_is_lost_is_carried_out_once(here: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(list(here.events(kind=["paused"])))
    once, lost = here._client._once, [True]

    def loses(request: Any) -> bytes:
        answer = once(request)
        if request.get_method() == "POST" and lost.pop() if lost else False:
            raise Unavailable("the connection broke")
        return answer

    monkeypatch.setattr(here._client, "_once", loses)
    here._sleep = lambda _s: None
    here.pause("lost")
    here.resume()
    assert lost == []
    assert len(list(here.events(kind=["paused"]))) == before + 1


def test_a_stream_that_was_cut_off_continues_after_its_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    def lines(_self: Any, _path: str, headers: dict[str, str], _timeout_s: float, **_query: Any) -> Iterator[bytes]:
        asked.append(dict(headers))
        for number in (1, 2) if len(asked) == 1 else (3,):
            yield b"id: %d" % number
            event: dict[str, Any] = {"id": number, "at": "2026-03-01T12:00:00Z", "kind": "paused", "detail": {}}
            yield b"data: " + json.dumps(event).encode()
            yield b""
        if len(asked) == 1:
            raise Unavailable("cut off")

    monkeypatch.setattr("holdfast.api.client.ApiClient.lines", lines)
    here = Holdfast("http://127.0.0.1:1", "x", sleep=lambda _s: None)
    stream = here.stream(after_id=0)
    assert [next(stream).id for _ in range(3)] == [1, 2, 3]
    assert asked == [{}, {"Last-Event-ID": "2"}]


@pytest.mark.slow
def test_the_example(site: dict[str, str], here: Holdfast) -> None:
    environment = {**os.environ, **site}
    with subprocess.Popen(
        [sys.executable, str(EXAMPLE), "0"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"open: {ID} n1 gpu.xid 79")
        assert f"incident.opened {ID} n1" in process.stdout.readline()
        process.terminate()
    wrong = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={**environment, "HOLDFAST_TOKEN": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("follow_incidents.py: ")
    assert wrong.stderr.count("\n") == 1
