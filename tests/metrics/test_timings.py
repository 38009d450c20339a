"""Timings and losses from events: the definitions of docs/metrics.md as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.metrics.timings import Phase, measure, spread
from holdfast.model.event import EventKind
from holdfast.model.ids import UPKEEP
from support.whole_recovery import JOB, WHOLE, event

K = EventKind


def test_a_whole_recovery() -> None:
    (got,) = measure(WHOLE)
    assert {p: round(s, 6) for p, s in got.phases.items()} == {
        Phase.DETECT: 0.2,
        Phase.DECIDE: 0.1,
        Phase.DRAIN: 0.2,
        Phase.STOP_JOB: 1.0,
        Phase.RESTART: 2.0,
        Phase.RESUME: 10.0,
        Phase.REPLACE: 30.0,
        Phase.VALIDATE: 10.0,
        Phase.RETURN: 1.0,
    }
    assert got.time_to_running_s == pytest.approx(3.3)
    assert got.time_to_resumed_s == pytest.approx(13.3)
    assert got.time_to_return_s == pytest.approx(41.5)
    (job,) = got.jobs
    assert (job.gpus, job.lost_work_s, job.lost_steps) == (16, 60.0, 8)
    assert job.lost_gpu_hours == pytest.approx(16 * 72.0 / 3600)


def test_an_elastic_job_goes_on_smaller_and_is_whole_again() -> None:
    a, b = {"room": "job-1"}, {"room": "job-2"}
    rooms = (
        event(100.4, K.QUORUM_EVICTED, **a),
        event(100.5, K.QUORUM_EVICTED, **b),
        event(100.6, K.QUORUM_FORMED, **a, full=False),
        event(101.0, K.QUORUM_FORMED, **b, full=True),
    )
    (got,) = measure((*WHOLE, *rooms))
    assert {p: round(got.phases[p], 6) for p in (Phase.EVICT, Phase.GO_ON)} == {Phase.EVICT: 0.2, Phase.GO_ON: 0.5}
    assert Phase.REGROW not in got.phases, "one rendezvous is not complete yet"
    (got,) = measure((*WHOLE, *rooms, event(107.4, K.QUORUM_FORMED, **a, full=True)))
    assert got.phases[Phase.REGROW] == pytest.approx(7.0)
    before = event(100.4, K.QUORUM_EVICTED, **a, went_on=True)
    (got,) = measure((*WHOLE, before, event(105.4, K.QUORUM_FORMED, **a, full=True)))
    assert [got.phases[p] for p in (Phase.GO_ON, Phase.REGROW)] == [0.0, pytest.approx(5.0)]
    (alone,) = measure((*WHOLE, rooms[0]))
    assert Phase.EVICT in alone.phases
    assert Phase.GO_ON not in alone.phases


def test_what_belongs_to_no_incident_is_timed_as_none() -> None:
    upkeep = tuple(replace(event, incident_id=None if n % 2 else UPKEEP) for n, event in enumerate(WHOLE))
    assert measure((*upkeep, *WHOLE)) == measure(WHOLE)


def test_what_was_only_watched_at_first_counts_from_the_fault_that_called_for_action() -> None:
    raised = {"from": "watching", "to": "open"}
    before = (event(40.0, K.FAULT_OCCURRED), event(40.5, K.INCIDENT_OPENED))
    call = (event(100.0, K.FAULT_OCCURRED, **raised), event(100.2, K.INCIDENT_STATE, **raised))
    later = (event(101.0, K.INCIDENT_STATE, **{"from": "open", "to": "contained"}),)
    (got,) = measure((*before, *call, *later, *WHOLE[2:]))
    (plain,) = measure(WHOLE)
    assert got == plain


def test_the_jobs_way_adds_up_to_the_recovery() -> None:
    (got,) = measure(WHOLE)
    way = (Phase.DETECT, Phase.DECIDE, Phase.STOP_JOB, Phase.RESTART)
    assert sum(got.phases[p] for p in way) == pytest.approx(got.time_to_running_s)


def test_the_order_in_which_events_are_read_does_not_matter() -> None:
    assert measure(reversed(WHOLE)) == measure(WHOLE)


def test_what_is_not_on_record_is_absent_and_not_zero() -> None:
    (got,) = measure(WHOLE[:3])
    assert set(got.phases) == {Phase.DETECT, Phase.DECIDE}
    assert (got.time_to_running_s, got.time_to_resumed_s, got.jobs) == (None, None, ())


def test_one_job_still_down_means_not_recovered() -> None:
    (got,) = measure((*WHOLE, event(101.5, K.JOB_STOPPED, "c/8@1", gpus=8)))
    assert got.time_to_running_s is None
    assert Phase.RESTART not in got.phases
    assert got.lost_gpu_hours == pytest.approx(16 * 72.0 / 3600)


def test_the_last_job_counts() -> None:
    second = (event(101.5, K.JOB_STOPPED, "c/8@1", gpus=8), event(105.0, K.JOB_RUNNING, "c/8@1"))
    (got,) = measure((*WHOLE, *second))
    assert got.time_to_running_s == pytest.approx(5.0)
    assert got.time_to_resumed_s is None


def test_a_job_that_failed_before_the_decision_counts_zero_for_the_stop() -> None:
    early = [event(100.1, K.JOB_STOPPED, JOB, gpus=1), *(e for e in WHOLE if e.kind is not K.JOB_STOPPED)]
    (got,) = measure(early)
    assert got.phases[Phase.STOP_JOB] == 0.0


def test_without_a_checkpoint_gpu_hours_count_from_the_fault_and_steps_are_unknown() -> None:
    (got,) = measure((WHOLE[0], event(101.0, K.JOB_STOPPED, JOB, gpus=8), event(136.0, K.JOB_RUNNING, JOB)))
    assert (got.jobs[0].lost_work_s, got.jobs[0].lost_steps) == (None, None)
    assert (got.lost_work_s, got.lost_steps) == (None, None)
    assert got.lost_gpu_hours == pytest.approx(8 * 36 / 3600)


def test_running_before_the_stop_is_another_run() -> None:
    (got,) = measure((WHOLE[0], event(50.0, K.JOB_RUNNING, JOB), event(101.0, K.JOB_STOPPED, JOB)))
    assert got.jobs[0].running_at is None


@pytest.mark.parametrize("broken", ["soon", None, 12, ["x"], True])
def test_broken_details_are_as_good_as_absent(broken: Any) -> None:
    stop = event(101.0, K.JOB_STOPPED, JOB, gpus="8", checkpoint_at=broken)
    (got,) = measure((WHOLE[0], stop, event(102.0, K.JOB_RUNNING, JOB)))
    assert (got.jobs[0].gpus, got.jobs[0].lost_work_s) == (0, None)


class TestSpread:
    def test_few_samples_give_all_values_and_the_maximum(self) -> None:
        got = spread([3.0, 1.0, None, 2.0])
        assert got is not None
        assert (got.count, got.mean, got.p50, got.max, got.p90, got.values) == (3, 2.0, 2.0, 3.0, None, (1.0, 2.0, 3.0))

    def test_fifty_give_percentiles_that_were_measured(self) -> None:
        got = spread(float(i) for i in range(1, 101))
        assert got is not None
        assert (got.p50, got.p90, got.p99, got.max, got.values) == (50.0, 90.0, 99.0, 100.0, ())

    def test_none(self) -> None:
        assert spread([]) is None
        assert spread([None]) is None
