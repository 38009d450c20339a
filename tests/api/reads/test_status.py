"""``/v1/status``, ``/readyz`` and ``/metrics`` show one picture of the parts, and `holdfast status` prints it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.api.client import ApiClient
from holdfast.api.transport.connections import Bounds, Connections
from holdfast.cli.app import run
from holdfast.model.actions.budgets import BudgetExtension, BudgetKind
from holdfast.model.book import Book, Brake, BrakeKind, World
from holdfast.model.parts import DiskRoom, NotifierState, PartName, ProcessSeen, ProcessState
from holdfast.model.policies.policy import Mode, Policy


@pytest.fixture
def broken(served: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No space, no actor, a notifier that fails."""
    actor = ProcessSeen(95.0, ProcessState(1.0, "0.1", notifier=NotifierState(1, "SMTP 550")))
    monkeypatch.setattr(served.deps, "actor", lambda: actor)
    monkeypatch.setattr(served.deps, "disk", lambda: DiskRoom(2**20, 2**40, 2**25))
    committed_s = served.clock.monotonic_s() - 3.0
    monkeypatch.setattr(served.deps, "committed_at", lambda: committed_s)
    return served


def test_each_part_is_shown(served: Any) -> None:
    shown = served.call("GET", "/v1/status").json()
    assert (shown["ready"], shown["why"]) == (True, None)
    assert [p["name"] for p in shown["parts"]] == [name.value for name in PartName]
    assert served.call("GET", "/v1/status", None).status_code == 401


def test_what_has_failed(broken: Any) -> None:
    shown = broken.call("GET", "/v1/status").json()
    parts = {p["name"]: p for p in shown["parts"]}
    assert [name for name, p in parts.items() if p["condition"] == "failed"] == ["disk", "actor", "notifier"]
    assert "no sign of life for 95 s" in shown["why"]
    assert "SMTP 550" in parts["notifier"]["text"]
    assert (shown["last_write_age_s"], shown["actor_silent_s"]) == (3.0, 95.0)
    assert (shown["disk_free_bytes"], shown["store_bytes"]) == (2**20, 2**25)
    answer = broken.call("GET", "/readyz", None)
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, shown["why"])


def test_connections_that_are_turned_away_are_shown(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Connections(Bounds(1), served.clock.monotonic_s)
    connections.admit("10.0.0.1", lambda: None)
    monkeypatch.setattr(served.deps, "connections", connections)
    (part,) = [p for p in served.call("GET", "/v1/status").json()["parts"] if p["name"] == "connections"]
    assert (part["condition"], part["text"]) == ("good", "1 open of 1 at most, 0 of them of agents and operators")
    connections.admit("10.0.0.2", lambda: None)
    (part,) = [p for p in served.call("GET", "/v1/status").json()["parts"] if p["name"] == "connections"]
    assert part["condition"] == "warning"
    text = served.call("GET", "/metrics").text
    assert 'holdfast_connections{of="unknown"} 1.0' in text
    assert 'holdfast_connections_ended_total{reason="full"} 1.0' in text
    assert 'holdfast_connections_ended_total{reason="head_late"} 0.0' in text


def test_slurm_that_answers_is_not_blamed_for_a_store_that_does_not(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.deps, "slurm_seen_at", served.clock.now)
    monkeypatch.setattr(served.deps, "trouble", lambda: "the last 9 cycles failed, nothing is decided: disk full")
    assert served.call("GET", "/v1/nodes").json()["slurm_read_at"] is not None
    assert "holdfast_slurm_answers 1.0" in served.call("GET", "/metrics").text
    parts = {p["name"]: p["condition"] for p in served.call("GET", "/v1/status").json()["parts"]}
    assert (parts["slurm"], parts["loop"]) == ("good", "failed")


def test_prometheus_sees_the_same(broken: Any) -> None:
    text = broken.call("GET", "/metrics").text
    for line in (
        'holdfast_part_condition{part="actor"} 2.0',
        'holdfast_part_condition{part="store"} 0.0',
        "holdfast_disk_free_bytes 1.048576e+06",
        "holdfast_store_bytes 3.3554432e+07",
        "holdfast_actor_silent_seconds 95.0",
        "holdfast_store_write_age_seconds 3.0",
    ):
        assert line in text


def test_mode_pause_brakes_and_extensions_are_shown(
    served: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = served.clock.now()
    book = Book(
        paused="ann: storage",
        paused_at=now,
        brakes={"drains": Brake(BrakeKind.DRAINS, now, "9 drains in 10 minutes")},
        extensions={BudgetKind.ENDED: BudgetExtension(BudgetKind.ENDED, 10, now + timedelta(hours=1), "bob")},
    )
    served.world = World(now, Policy(mode=Mode.OBSERVE), book, None)
    shown = served.call("GET", "/v1/status").json()
    assert (shown["mode"], shown["paused"], shown["paused_at"]) == (
        "observe",
        "ann: storage",
        now.isoformat().replace("+00:00", "Z"),
    )
    assert [b["kind"] for b in shown["brakes"]] == ["drains"]
    assert [(e["kind"], e["plus"]) for e in shown["extensions"]] == [("ended", 10)]
    monkeypatch.setenv("HOLDFAST_TOKEN", "t")
    monkeypatch.setattr(ApiClient, "get", lambda _self, _path, **_: shown)
    assert run(["status", "--parts"]) == 0, "what an operator ordered is no failure"
    out = " ".join(capsys.readouterr().out.split())
    for words in (
        "mode observe: faults are recorded, and nothing is done about them",
        "UTC by ann: storage; nothing is done until `holdfast resume`",
        "brake drains holds: 9 drains in 10 minutes",
        "then release it with `holdfast release drains`",
        "budget ended is extended by 10 machines (of no more different nodes a day) until",
    ):
        assert words in out
    monkeypatch.setattr(
        ApiClient, "get", lambda _self, _path, **_: {**shown, "paused": None, "brakes": [], "extensions": []}
    )
    run(["status", "--parts"])
    assert "nothing holds it back: no pause, no brake" in capsys.readouterr().out


@pytest.mark.parametrize(("fixture", "status"), [("served", 0), ("broken", 1)])
def test_the_verb(
    request: pytest.FixtureRequest,
    fixture: str,
    status: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = request.getfixturevalue(fixture)
    monkeypatch.setenv("HOLDFAST_TOKEN", "t")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(ApiClient, "get", lambda _self, path, **query: site.call("GET", path, params=query).json())
    assert run(["status", "--parts"]) == status
    out = capsys.readouterr().out
    assert out.startswith("release ")
    assert ("not ready: the actor" in out) == bool(status)
    assert all(name.value in out for name in PartName)
    assert run(["status"]) == status
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("3 things need you" if status else "Nothing needs you")
    assert ("no sign of life for 95 s" in " ".join(out.split())) == bool(status)


def test_of_a_newer_controller_a_part_that_is_not_known_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"name": "oracle", "condition": "odd", "text": "x"}
    monkeypatch.setenv("HOLDFAST_TOKEN", "t")
    monkeypatch.setattr(ApiClient, "get", lambda _self, _path, **_: {"parts": [part]})
    assert run(["status"]) == 0
    assert "oracle" in capsys.readouterr().out
