"""The figures of incidents, and a window of them: the same as from the timings that they are made of."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.metrics.figures import IncidentFigures, figures_of, summarize
from holdfast.metrics.timings import measure
from holdfast.model.event import Event, EventKind
from support.whole_recovery import JOB, WHOLE, event

K = EventKind


def figures(*events: Event) -> list[IncidentFigures]:
    names = dict.fromkeys(str(e.incident_id) for e in events)
    return [figures_of(name, [e for e in events if e.incident_id == name])[0] for name in names]


def test_they_are_what_the_timings_say() -> None:
    (timed,) = measure(WHOLE)
    got, timings = figures_of(timed.incident_id, WHOLE)
    assert timings == timed
    assert got.phases == timed.phases
    assert (got.opened_at, got.last_at) == (timed.opened_at, max(e.at for e in WHOLE))
    assert (got.lost_work_s, got.lost_steps, got.lost_gpu_hours) == (60.0, 8, timed.lost_gpu_hours)
    assert (got.jobs, got.jobs_back, got.gpus) == (1, 1, 16)
    assert got.gpu_down_s == pytest.approx(16 * 3.3)
    assert summarize([got]) == summarize([timed])
    assert (got.returned, got.by_others) == (True, False)


def test_of_an_incident_without_events_nothing_is_known() -> None:
    assert figures_of("a", ()) == (IncidentFigures("a"), None)
    assert IncidentFigures("a").lost_gpu_hours is None


def test_the_order_of_the_events_changes_nothing() -> None:
    assert figures_of("a", WHOLE[::-1]) == figures_of("a", WHOLE)


def test_steps_that_are_not_known_of_one_job_are_left_out_of_the_sum() -> None:
    unknown = [WHOLE[0], event(101.0, K.JOB_STOPPED, JOB, gpus=8), event(136.0, K.JOB_RUNNING, JOB)]
    assert summarize(figures(*unknown)).lost_steps is None
    assert summarize([*figures(*unknown), *figures(*WHOLE)]).lost_steps == 8


def test_a_window_adds_up() -> None:
    second = tuple(Event(e.at + timedelta(seconds=1000), e.kind, "b", e.node, e.job, detail=e.detail) for e in WHOLE)
    got = summarize(figures(*WHOLE, *second, event(5000.0, K.INCIDENT_OPENED, None, "c")))
    assert (got.incidents, got.lost_steps) == (3, 16)
    assert got.mttd is not None
    assert got.mttd.count == 2
    assert got.mttr is not None
    assert got.mttr.mean == pytest.approx(3.3)
    assert got.lost_work_s == pytest.approx(60 + 1060)
