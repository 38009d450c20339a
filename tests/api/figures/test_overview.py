"""``/v1/overview``, ``/v1/night``, ``/v1/saved`` and ``/v1/names``: what they count, over which span, and how much they answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.api.figures import overview as module
from holdfast.model.book import Book, Change, World
from holdfast.model.errors import Unavailable
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import ClusterView, JobKey, Node
from support.store_nouns import incident

K = EventKind


def at(served: Any, hours: float) -> datetime:
    now: datetime = served.clock.now()
    return now + timedelta(hours=hours)


def healed(served: Any, name: str, hours: float, node: str = "n1") -> Change:
    """A fault that many hours from now whose job ran again after a minute, and whose node was back after ten."""
    begun, job = at(served, hours), JobKey("c", 7, at(served, -100)).text
    closed = begun + timedelta(minutes=10)
    about: Incident = replace(
        incident(name), node=node, state=IncidentState.CLOSED, fault_at=begun, opened_at=begun, closed_at=closed
    )
    spans: tuple[tuple[float, EventKind, str | None, dict[str, Any]], ...] = (
        (0, K.FAULT_OCCURRED, None, {}),
        (1, K.INCIDENT_OPENED, None, {}),
        (2, K.ACTION_DONE, None, {"kind": "Drain"}),
        (3, K.JOB_STOPPED, job, {"gpus": 8}),
        (60, K.JOB_RUNNING, job, {}),
        (600, K.NODE_RETURNED, None, {}),
        (600, K.INCIDENT_CLOSED, None, {}),
    )
    events = tuple(
        Event(begun + timedelta(seconds=s), kind, name, node, about_job, detail=d) for s, kind, about_job, d in spans
    )
    return Change(incidents=(about,), events=events)


def test_the_night_is_counted_over_its_span(served: Any) -> None:
    for name, hours, node in (("a1", -30, "n1"), ("a2", -3, "n2"), ("a3", -1, "n2")):
        served.commit(healed(served, name, hours, node))
    got = served.call("GET", "/v1/night").json()
    assert [line["incident_id"] for line in got["lines"]] == ["a2", "a3"]
    assert (got["incidents"], got["healed"], got["jobs"], got["jobs_back"], got["more"]) == (2, 2, 2, 2, False)
    assert got["lines"][0]["running_s"] == 60
    since = {"since": at(served, -31).isoformat(), "until": at(served, -20).isoformat()}
    assert [line["incident_id"] for line in served.call("GET", "/v1/night", params=since).json()["lines"]] == ["a1"]


def test_what_was_closed_in_the_span_counts_although_it_was_opened_before(served: Any) -> None:
    served.commit(healed(served, "a1", -12.1))
    (line,) = served.call("GET", "/v1/night").json()["lines"]
    assert (line["incident_id"], line["outcome"], line["running_s"]) == ("a1", "healed", 60)


def test_more_incidents_than_are_answered_are_named(served: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MOST_INCIDENTS", 2)
    for number in range(3):
        served.commit(healed(served, f"a{number}", -3 + number))
    got = served.call("GET", "/v1/night").json()
    assert (got["incidents"], got["more"]) == (2, True)


def test_what_it_spared_names_its_source(served: Any) -> None:
    served.commit(healed(served, "a1", -3))
    got = served.call("GET", "/v1/saved").json()
    assert (got["incidents"], got["jobs"], got["down_s"], got["saved_s"]) == (1, 1, 60, 279 * 60)
    assert "280 minutes" in got["source"]
    own = served.call("GET", "/v1/saved?manual_minutes=61").json()
    assert (own["saved_s"], own["source"]) == (3600, "the figure that was given")
    assert served.call("GET", "/v1/saved?manual_minutes=0").status_code == 422


def test_the_overview_has_the_status_and_a_night_only_where_it_is_asked_for(served: Any) -> None:
    now = served.clock.now()
    nodes = {"n1": Node("n1", "IDLE", frozenset({"DRAIN"})), "n2": Node("n2", "IDLE", frozenset())}
    opened = replace(incident("a1"), state=IncidentState.REPAIRING, opened_at=now)
    served.world = World(
        now, Policy(mode=Mode.ACT), Book(incidents={"a1": opened}), ClusterView("c", now, nodes, {}, {})
    )
    got = served.call("GET", "/v1/overview").json()
    assert set(served.call("GET", "/v1/status").json()) < set(got)
    assert (got["sentence"], got["night"]) == ("Healing n1: repairing. Nothing needs you.", None)
    assert got["nodes"] == {"in_service": 1, "in_repair": 1}
    assert [d["incident_id"] for d in got["doing"]] == ["a1"]
    served.commit(healed(served, "a2", -3))
    asked = served.call("GET", "/v1/overview", params={"since": at(served, -4).isoformat()}).json()
    assert [line["incident_id"] for line in asked["night"]["lines"]] == ["a2"]


def test_a_store_that_does_not_answer_leaves_the_rest_of_the_overview(served: Any, monkeypatch: Any) -> None:
    def away() -> None:
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(served.store, "ping", away)
    got = served.call("GET", "/v1/overview", params={"since": at(served, -4).isoformat()}).json()
    assert (got["night"], [w["subject"] for w in got["waiting"]]) == (None, ["store"])


def test_names_begin_as_asked_in_natural_order(served: Any) -> None:
    now = served.clock.now()
    nodes = {f"n{k}": Node(f"n{k}", "IDLE", frozenset()) for k in range(1, 301)}
    opened = {name: incident(name) for name in ("0aa", "0ab", "1b")}
    served.world = World(now, Policy(), Book(incidents=opened), ClusterView("c", now, nodes, {}, {}))
    got = served.call("GET", "/v1/names?prefix=n2").json()
    assert got["nodes"][:3] == ["n2", "n20", "n21"]
    got = served.call("GET", "/v1/names?prefix=0a").json()
    assert (got["nodes"], got["incidents"]) == ([], ["0aa", "0ab"])
    assert got["about"]["0aa"].startswith("n1 open: ")
    assert len(served.call("GET", "/v1/names").json()["nodes"]) == module.MOST_NAMES
