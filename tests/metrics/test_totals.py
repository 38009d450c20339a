"""Totals of the record of events: the same whether counted all along, after a restart or after pruning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast.metrics import tally as tallies
from holdfast.metrics.tally import BOUNDS_S, OTHER, Histogram, Tally
from holdfast.metrics.totals import (
    ACTIONS,
    DETECT,
    DOWNTIME,
    FAULTS,
    GPU_SECONDS,
    OUT,
    PHASES,
    RECOVERY,
    REQUEUED,
    XIDS,
    Totals,
    action_name,
)
from holdfast.model.event import Event, EventKind
from support.whole_recovery import JOB, WHOLE, event

K = EventKind


def numbered(events: Iterable[Event], first: int = 1) -> tuple[Event, ...]:
    return tuple(replace(e, id=number) for number, e in enumerate(events, first))


NAMED = {"check": "gpu.xid", "kind": "fault", "remedy": "replace", "code": "79"}
STORY = numbered(
    replace(e, detail={**e.detail, **(NAMED if e.kind in (K.FAULT_OCCURRED, K.INCIDENT_OPENED) else {})}) for e in WHOLE
)
CLOSED = replace(event(142.0, K.INCIDENT_CLOSED, **{"from": "validating", "to": "closed"}), id=len(STORY) + 1)


def counted(events: Sequence[Event], totals: Totals | None = None) -> Totals:
    totals = totals or Totals("ec2")
    for each in events:
        totals.add(each)
    return totals


def durations(totals: Totals, family: Any) -> dict[tuple[str, ...], float]:
    return {labels: round(h.sum_s, 3) for labels, h in totals.tally.histograms.get(family.name, {}).items()}


def counts(totals: Totals, family: Any) -> dict[tuple[str, ...], float]:
    return {labels: round(v, 3) for labels, v in totals.tally.counters.get(family.name, {}).items()}


def test_an_incident_is_counted_once_it_is_closed() -> None:
    assert durations(counted(STORY), PHASES) == {}
    totals = counted((*STORY, CLOSED))
    assert durations(totals, PHASES)[("detect", "gpu", "replace")] == 0.2
    assert durations(totals, PHASES)[("restart", "gpu", "replace")] == 2.0
    assert (durations(totals, DETECT), durations(totals, RECOVERY)) == ({(): 0.2}, {(): 3.3})
    assert durations(totals, OUT) == {("holdfast",): 41.0}
    assert counts(totals, FAULTS) == {("n1", "gpu.xid"): 1}
    assert counts(totals, XIDS) == {("n1", "79"): 1}
    assert counts(totals, ACTIONS) == {("drain", "", "done"): 1}
    assert counts(totals, REQUEUED) == {("fault",): 1}
    assert counts(totals, DOWNTIME) == {("automatic",): 2.0}
    assert totals.followed == ()


def test_losses_are_counted_as_they_happen() -> None:
    running = next(n for n, e in enumerate(STORY) if e.kind is K.JOB_RUNNING)
    assert counts(counted(STORY[: running + 1]), GPU_SECONDS) == {("gpu",): 16 * 62.0}
    assert counts(counted(STORY), GPU_SECONDS) == {("gpu",): 16 * 72.0}, "and more until it resumed"


def test_a_job_that_comes_back_after_the_incident_was_closed_is_counted_then() -> None:
    late = [e for e in STORY if e.kind in (K.JOB_RUNNING, K.JOB_RESUMED)]
    before = [e for e in STORY if e not in late]
    totals = counted(numbered((*before, CLOSED)))
    assert durations(totals, RECOVERY) == {}
    first = durations(totals, PHASES)
    counted(numbered(late, 100), totals)
    assert durations(totals, RECOVERY) == {(): 3.3}
    assert first.items() <= durations(totals, PHASES).items(), "nothing twice"
    assert totals.followed == ()


@pytest.mark.parametrize("cut", range(len(STORY) + 2))
def test_a_restart_changes_nothing(cut: int) -> None:
    """At any event: written, read, and reminded of the incidents that it follows."""
    events = (*STORY, CLOSED)
    before = counted(events[:cut])
    after = Totals.read(json.loads(json.dumps(before.dump())), "ec2")
    for number in after.followed:
        after.remind(number, [e for e in events if e.incident_id == number])
    assert counted(events, after).dump() == counted(events).dump()


def test_what_is_pruned_later_was_counted() -> None:
    kept = Totals.read(counted((*STORY, CLOSED)).dump())
    nothing_left = counted((), kept)
    assert durations(nothing_left, DETECT) == {(): 0.2}


@pytest.mark.parametrize("spoil", [{"version": 99}, {"tally": {"bounds_s": [1]}}, {"cursor": None}, {"followed": None}])
def test_totals_of_another_release_are_refused(spoil: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        Totals.read({**counted(STORY).dump(), **spoil})


@pytest.mark.parametrize(
    ("by", "shown"), [("ours", "holdfast"), ("foreign", "operator"), ("slurm", "slurm"), (None, "unknown")]
)
def test_who_took_the_node_out(by: str | None, shown: str) -> None:
    detail = {} if by is None else {"by": by}
    story = (
        event(0, K.INCIDENT_OPENED, **NAMED),
        event(1, K.NODE_OUT, **detail),
        event(61, K.NODE_RETURNED),
        event(61, K.INCIDENT_CLOSED),
    )
    assert durations(counted(numbered(story)), OUT) == {(shown,): 60.0}


def test_a_node_that_an_operator_returns_long_after_the_incident() -> None:
    story = (event(0, K.INCIDENT_OPENED), event(1, K.NODE_OUT, by="ours"), event(9, K.INCIDENT_CLOSED))
    totals = counted(numbered(story))
    assert (durations(totals, OUT), totals.followed) == ({}, ("a",))
    counted(numbered([event(86_401, K.NODE_RETURNED, by_others=True)], 9), totals)
    assert (durations(totals, OUT), totals.followed) == ({("holdfast",): 86_400.0}, ())


def test_an_incident_that_never_ends_well_is_forgotten() -> None:
    story = (event(0, K.INCIDENT_OPENED), event(1, K.NODE_OUT, by="ours"), event(9, K.INCIDENT_CLOSED))
    totals = counted(numbered(story))
    counted(numbered([event(31 * 86_400, K.OPERATOR)], 256), totals)
    assert totals.followed == ()


def test_a_step_that_ends_after_its_incident_is_counted_and_not_followed() -> None:
    totals = counted((*STORY, CLOSED))
    counted(numbered([event(143.0, K.ACTION_DONE, kind="Undrain")], 99), totals)
    assert totals.followed == ()
    assert counts(totals, ACTIONS)[("undrain", "", "done")] == 1


def test_a_held_job_is_down_until_it_is_released() -> None:
    held = {"check": "job.held", "kind": "held_job", "remedy": "none"}
    story = (event(0, K.INCIDENT_OPENED, JOB, **held), event(600, K.INCIDENT_CLOSED))
    assert counts(counted(numbered(story)), DOWNTIME) == {("manual",): 600.0}


@pytest.mark.parametrize(
    ("kind", "detail", "labels"),
    [
        (K.ACTION_FAILED, {"kind": "Launch"}, ("launch", "ec2", "failed")),
        (K.ACTION_DONE, {"kind": "SendOrder", "verb": "probe"}, ("send_order_probe", "", "done")),
        (K.ACTION_REFUSED, {"kind": "StopStart"}, ("stop_start", "ec2", "refused")),
        (K.ACTION_WITHHELD, {}, ("unknown", "", "withheld")),
    ],
)
def test_actions(kind: EventKind, detail: dict[str, Any], labels: tuple[str, ...]) -> None:
    assert counts(counted(numbered([event(0, kind, **detail)])), ACTIONS) == {labels: 1}
    assert action_name("CheckInstance") == "check_instance"


def test_an_event_is_counted_once() -> None:
    assert counted((*STORY, *STORY, CLOSED, CLOSED)).dump() == counted((*STORY, CLOSED)).dump()


class TestTally:
    def test_series_are_bounded_and_the_sum_is_right(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tallies, "MOST_SERIES", 3)
        totals = counted(numbered(replace(event(0, K.FAULT_OCCURRED, check="c.x"), node=f"n{k}") for k in range(8)))
        shown = counts(totals, FAULTS)
        assert shown == {("n0", "c.x"): 1, ("n1", "c.x"): 1, ("n2", "c.x"): 1, (OTHER, OTHER): 5}

    def test_a_label_is_bounded(self) -> None:
        tally = Tally()
        tally.add(FAULTS, ("n" * 1000, "c"))
        assert [len(labels[0]) for labels in tally.counters[FAULTS.name]] == [100]

    @pytest.mark.parametrize(("duration_s", "bucket"), [(0.0, 0), (0.1, 0), (0.11, 1), (86_400.0, 17), (1e9, 18)])
    def test_a_bound_is_in_its_own_bucket(self, duration_s: float, bucket: int) -> None:
        histogram = Histogram()
        histogram.observe(duration_s)
        assert histogram.counts.index(1) == bucket
        assert len(BOUNDS_S) == 18

    def test_a_copy_stays_as_it_is(self) -> None:
        totals = counted(STORY)
        shown = totals.tally.copy()
        before = json.dumps(shown.dump())
        counted([CLOSED], totals)
        assert json.dumps(shown.dump()) == before
