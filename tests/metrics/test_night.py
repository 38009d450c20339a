"""What happened in a span of time, and the estimate of what it spared."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.metrics.figures import IncidentFigures, figures_of
from holdfast.metrics.night import MANUAL_MINUTES, night, saved
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import IncidentState
from support.store_nouns import incident, later

K = EventKind


def event(at_s: float, what: EventKind, name: str = "inc1", job: str | None = None, **detail: Any) -> Event:
    return Event(later(at_s), what, name, "n1", job, detail=detail)


def figures(events: list[Event]) -> list[IncidentFigures]:
    names = dict.fromkeys(str(e.incident_id) for e in events)
    return [figures_of(name, [e for e in events if e.incident_id == name])[0] for name in names]


def recovered(name: str = "inc1", back_s: float = 60.0, gpus: int = 8) -> list[Event]:
    return [
        event(0, K.FAULT_OCCURRED, name),
        event(1, K.INCIDENT_OPENED, name),
        event(2, K.ACTION_DONE, name, kind="Drain"),
        event(3, K.JOB_STOPPED, name, "c/1@1", gpus=gpus),
        event(back_s, K.JOB_RUNNING, name, "c/1@1"),
    ]


REPLACED = [event(100, K.ACTION_DONE, kind="Launch"), event(200, K.NODE_VALIDATED), event(300, K.NODE_RETURNED)]
CLOSED = {"state": IncidentState.CLOSED}
OUTCOMES = [
    (CLOSED, [*recovered(), *REPLACED], "healed", True),
    (CLOSED, recovered(), "healed", False),
    (CLOSED, [event(0, K.FAULT_OCCURRED), event(300, K.NODE_RETURNED, by_others=True)], "by_operator", False),
    (CLOSED, [event(0, K.FAULT_OCCURRED)], "over", False),
    ({"state": IncidentState.AWAITING_HUMAN}, recovered(), "needs_you", False),
    ({"state": IncidentState.REPAIRING}, [*recovered(), *REPLACED[:1]], "under_way", False),
    ({"state": IncidentState.WATCHING}, [], "watched", False),
    ({"state": IncidentState.OPEN, "acknowledged": True}, [], "watched", False),
]


@pytest.mark.parametrize(("changed", "events", "outcome", "replaced"), OUTCOMES)
def test_what_became_of_an_incident(changed: dict[str, Any], events: list[Event], outcome: str, replaced: bool) -> None:
    (line,) = night([incident(**changed)], figures(events)).lines
    assert (line.outcome, line.replaced) == (outcome, replaced)


def test_what_is_held_back_is_not_under_way_and_says_why() -> None:
    incidents = [incident(), incident("inc2", state=IncidentState.AWAITING_HUMAN)]
    lines = night(incidents, [], {"inc1": "n1 is in maintenance", "inc2": "paused"}).lines
    assert {line.incident_id: (line.outcome, line.held) for line in lines} == {
        incidents[0].id: ("held_back", "n1 is in maintenance"),
        "inc2": ("needs_you", ""),
    }


def test_the_totals() -> None:
    events = [*recovered(), *REPLACED, *recovered("inc2")[:-1]]
    told = night([incident(**CLOSED), incident("inc2", state=IncidentState.AWAITING_HUMAN)], figures(events))
    assert (told.incidents, told.healed, told.needs_you, told.jobs, told.jobs_back) == (2, 1, 1, 2, 1)
    assert told.nodes_replaced == 1
    assert told.lost_gpu_hours == pytest.approx(8 * 60 / 3600)
    assert night([], []).lost_gpu_hours == 0


def test_a_loss_that_is_not_known_is_not_zero() -> None:
    events = recovered()[:-1]
    assert night([incident()], figures(events)).lost_gpu_hours is None


SAVED = [
    ("one", recovered(), 280.0, 1, 1, 60.0, 279 * 60.0, 8 * 279 / 60),
    ("slower than the figure counts against it", recovered(back_s=600.0), 5.0, 1, 1, 600.0, -300.0, -8 * 5 / 60),
    ("two", [*recovered(), *recovered("inc2", 120.0, 0)], 280.0, 2, 2, 180.0, (279 + 278) * 60.0, 8 * 279 / 60),
    ("still down", recovered()[:-1], 280.0, 0, 0, 0.0, 0.0, 0.0),
    ("not by Holdfast", [e for e in recovered() if e.kind is not K.ACTION_DONE], 280.0, 0, 0, 0.0, 0.0, 0.0),
    ("no job", [event(0, K.FAULT_OCCURRED), event(2, K.ACTION_DONE, kind="Drain")], 280.0, 0, 0, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize(
    ("events", "minutes", "incidents", "jobs", "down_s", "saved_s", "gpu_hours"),
    [s[1:] for s in SAVED],
    ids=[s[0] for s in SAVED],
)
def test_what_it_spared(
    events: list[Event], minutes: float, incidents: int, jobs: int, down_s: float, saved_s: float, gpu_hours: float
) -> None:
    got = saved(figures(events), minutes * 60)
    assert (got.incidents, got.jobs, got.down_s) == (incidents, jobs, down_s)
    assert got.saved_s == pytest.approx(saved_s)
    assert got.saved_gpu_hours == pytest.approx(gpu_hours)
    assert got.manual_s == minutes * 60 * incidents


def test_the_published_figure() -> None:
    assert MANUAL_MINUTES == 280
