"""What agents of other releases send: accepted, partly accepted, or refused with one clear error; never a lost fault, never a 500."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import unknown
from holdfast.agent.sending.client import ControllerAnswer
from holdfast.agent.sending.memory import AgentMemory
from holdfast.agent.sending.outbox import Outbox, OutboxItem
from holdfast.agent.sending.sender import Sender, SenderIdentity
from holdfast.api.callers.quota import AgentQuota
from holdfast.store import SqlStore, open_store
from holdfast_checks.result import Remedy, Severity, Verdict
from recording.releases import document, releases
from support.served_site import AgentsClient, ServedSite
from support.simulated.site import Site

ME = SenderIdentity("n1", "i-0001", "i-0001-boot-1")
REPORTS = [body for release in releases() for body in document(release, "reports")]
FAULT = {
    "kind": "finding",
    "check": "gpu.xid",
    "component": "GPU-1",
    "code": "79",
    "verdict": "failed",
    "severity": "fatal",
    "remedy": "replace",
    "summary": "fell off the bus",
    "age_s": 1.0,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedSite]:
    """One controller for all: an accepted report changes nothing for the next."""
    with closing(open_store(f"sqlite:///{tmp_path_factory.mktemp('wire')}/holdfast.db")) as store:
        yield ServedSite(Site(2, store=store, warm=False), store)


_numbers = iter(range(1, 10**9))


def report(*items: Any, **changed: Any) -> dict[str, Any]:
    """A sequence that was not sent before."""
    envelope = {"version": 1, "outbox_id": "o", "sequence": next(_numbers), **ME.envelope()}
    return {**envelope, "items": list(items), **changed}


def sent(served: ServedSite, body: Any) -> tuple[int, Any]:
    got = served.call("POST", "/v1/reports", "agent", "n1", json=body)
    return got.status_code, got.json()


def newest(store: SqlStore, check: str) -> Any:
    return next(seen.finding for seen in store.findings(node="n1") if seen.finding.check == check)


@pytest.mark.parametrize(
    ("words", "severity", "remedy", "verdict"),
    [
        ({"severity": "catastrophic"}, Severity.DEGRADED, Remedy.REPLACE, Verdict.FAILED),
        ({"remedy": "pray"}, Severity.FATAL, Remedy.HUMAN, Verdict.FAILED),
        ({"verdict": "doomed"}, Severity.FATAL, Remedy.REPLACE, Verdict.DEGRADED),
        ({"verdict": "doomed", "severity": None}, Severity.WARNING, Remedy.REPLACE, Verdict.DEGRADED),
        (
            {"verdict": "doomed", "severity": "dire", "remedy": "pray"},
            Severity.DEGRADED,
            Remedy.HUMAN,
            Verdict.DEGRADED,
        ),
        ({"severity": "", "remedy": ""}, Severity.WARNING, Remedy.NONE, Verdict.FAILED),
    ],
)
def test_a_fault_in_words_of_another_release_is_stored(
    served: ServedSite, words: dict[str, Any], severity: Severity, remedy: Remedy, verdict: Verdict
) -> None:
    check = f"gpu.c{next(_numbers)}"
    assert sent(served, report({**FAULT, "check": check, **words})) == (
        200,
        {"accepted": True, "duplicate": False, "out_of_order": False},
    )
    kept = newest(served.store, check)
    assert (kept.severity, kept.remedy, kept.verdict) == (severity, remedy, verdict)


def test_an_unknown_word_is_logged_once(
    served: ServedSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown, "_SEEN", unknown._Seen())
    for _ in range(3):
        sent(served, report({**FAULT, "severity": "catastrophic"}))
    said = [r.getMessage() for r in caplog.records if "event=unknown_word" in r.getMessage()]
    assert said == ["event=unknown_word kind=Severity word='catastrophic' where=finding.severity read_as=degraded"]
    assert "holdfast_unknown_words 1.0" in served.call("GET", "/metrics").text


BAD = [7, "text", None, [], {}, {"kind": 5}, {"kind": "finding"}, {**FAULT, "gpu_minor": -1}, {**FAULT, "evidence": 3}]


@pytest.mark.parametrize("bad", BAD, ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_a_bad_item_keeps_no_fault_from_being_stored(served: ServedSite, bad: Any, *, first: bool) -> None:
    check = f"gpu.c{next(_numbers)}"
    good = {**FAULT, "check": check}
    status, answer = sent(served, report(*([bad, good] if first else [good, bad])))
    assert status == 200
    (named,) = answer["refused"]
    assert named["item"] == (0 if first else 1)
    assert named["message"].startswith(f"items.{named['item']}")
    assert newest(served.store, check).summary == "fell off the bus"


def test_items_and_statements_of_an_unknown_kind_are_left_out(served: ServedSite) -> None:
    said = {"kind": "statement", "statement": "checkpoint.moved", "job_id": 7, "uid": 1000}
    assert sent(served, report({"kind": "weather"}, said)) == (
        200,
        {"accepted": True, "duplicate": False, "out_of_order": False},
    )


def test_the_agent_keeps_what_was_refused(served: ServedSite, tmp_path: Path) -> None:
    with closing(AgentMemory(tmp_path / "agent")) as memory:
        outbox = Outbox(memory, ME.boot_id)
        outbox.put([OutboxItem({**FAULT, "check": "gpu.kept"}, 0.0), OutboxItem({**FAULT, "gpu_minor": -1}, 0.0)])
        client = AgentsClient(served, "n1")
        sender = Sender(client, outbox, ME, tmp_path)
        sender._send_reports()
        assert (len(outbox), len(client.answers)) == (0, 1)
    (line,) = (tmp_path / "dead-letters.jsonl").read_text().splitlines()
    assert [item["gpu_minor"] for item in json.loads(line)["items"]] == [-1]
    assert newest(served.store, "gpu.kept")


@pytest.mark.parametrize("refused", [7, [7], [{"item": 99}], [{"item": "0"}], {"item": 0}])
def test_an_answer_that_makes_no_sense_costs_the_agent_nothing(tmp_path: Path, refused: Any) -> None:
    with closing(AgentMemory(tmp_path / "agent")) as memory:
        outbox = Outbox(memory, ME.boot_id)
        outbox.put([OutboxItem(FAULT, 0.0)])
        client = AgentsClient.__new__(AgentsClient)
        client.post = lambda _path, _body: ControllerAnswer(200, {"accepted": True, "refused": refused})  # type: ignore[method-assign, assignment]
        Sender(client, outbox, ME, tmp_path)._send_reports()
        assert len(outbox) == 0
    assert not (tmp_path / "dead-letters.jsonl").exists()


VALUES: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1e300,
    0.5,
    "",
    "word",
    "\0\x1b\ud800",
    "x" * 5000,
    [],
    [1],
    {},
    {"a": {"b": [1]}},
]


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Ways to every value inside."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way, *(found for key, each in entries for found in places(each, (*way, key)))]


def mutated(body: Any, how: random.Random) -> Any:
    """The body with one value replaced, taken out, doubled or added."""
    body = copy.deepcopy(body)
    way = how.choice(places(body)[1:])
    *outer, last = way
    inside = body
    for key in outer:
        inside = inside[key]
    match how.choice(["replace", "take out", "word", "add"]):
        case "take out":
            del inside[last]
        case "word" if isinstance(inside[last], str):
            inside[last] = f"{inside[last]}-of-another-release"
        case "add" if isinstance(inside, list):
            inside.insert(0, copy.deepcopy(how.choice(VALUES)))
        case "add" if isinstance(inside, dict):
            inside["of-another-release"] = how.choice(VALUES)
        case _:
            inside[last] = copy.deepcopy(how.choice(VALUES))
    return body


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), times=st.integers(1, 3), which=st.integers(0, len(REPORTS) - 1))
def test_any_change_of_a_recorded_report_is_taken_in_parts_or_refused_clearly(
    served: ServedSite, seed: int, times: int, which: int
) -> None:
    served.app.state.api.quota = AgentQuota(served.site.clock.monotonic_s)
    how = random.Random(seed)
    check = f"gpu.c{next(_numbers)}"
    body = {**REPORTS[which], "sequence": next(_numbers), "items": copy.deepcopy(REPORTS[which]["items"])}
    for _ in range(times):
        body = mutated(body, how)
    whole = isinstance(body.get("items"), list)
    if whole:
        body["items"].append({**FAULT, "check": check})
    content = json.dumps(body).encode("utf-8", "replace")
    got = served.call("POST", "/v1/reports", "agent", "n1", content=content)
    answer = got.json()
    if got.status_code == 200:
        assert whole
        if not answer["duplicate"]:
            assert newest(served.store, check).severity is Severity.FATAL
        for named in answer.get("refused", ()):
            assert 0 <= named["item"] < len(body["items"]) - 1
            assert named["message"]
            assert "\n" not in named["message"]
    else:
        assert got.status_code in (400, 403, 413, 422), got.text
        assert answer["error"]["message"]
        assert "\n" not in answer["error"]["message"]
        assert not (answer["error"]["field"] or "").startswith("items."), (
            "an item never refuses the report that holds a fault"
        )


HEARTBEATS = [body for release in releases() for body in document(release, "heartbeats")]


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), which=st.integers(0, len(HEARTBEATS) - 1))
def test_any_change_of_a_recorded_heartbeat_is_taken_or_refused_clearly(
    served: ServedSite, seed: int, which: int
) -> None:
    body = mutated(HEARTBEATS[which], random.Random(seed))
    content = json.dumps(body).encode("utf-8", "replace")
    got = served.call("POST", "/v1/heartbeats", "agent", "n1", content=content)
    assert got.status_code in (200, 400, 403, 422), got.text
    if got.status_code != 200:
        assert got.json()["error"]["message"]
