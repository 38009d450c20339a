"""An incident as a trace: back-dated spans under one root, and the protocol's encoding of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.metrics import traces
from holdfast.metrics.otlp import traces_request
from holdfast.metrics.timings import Phase, measure, phase_intervals
from holdfast.metrics.traces import SpanStatus, TraceSpan, trace_of
from holdfast.model.event import Event, EventKind
from support.whole_recovery import JOB, WHOLE, at, event

K = EventKind
FAULT = {"check": "gpu.xid", "kind": "fault", "severity": "fatal", "remedy": "replace", "code": "79"}
STEP = {"key": "a/Drain/n1/1", "kind": "Drain", "target": "n1"}


def detailed(given: Event) -> Event:
    more = {K.FAULT_OCCURRED: FAULT, K.INCIDENT_OPENED: FAULT, K.ACTION_DONE: STEP}.get(given.kind, {})
    more = STEP if given.kind is K.ACTION_PLANNED and given.detail.get("kind") == "Drain" else more
    return replace(given, detail={**given.detail, **more}, text=f"{given.kind.value}\nsaid")


STORY = (*map(detailed, WHOLE), event(142.0, K.INCIDENT_CLOSED))
SPANS = trace_of("a", STORY)
ROOT, CHILDREN = SPANS[0], SPANS[1:]


def named(name: str) -> TraceSpan:
    (found,) = [span for span in CHILDREN if span.name == name]
    return found


def test_an_open_incident_is_no_trace() -> None:
    assert trace_of("a", STORY[:-1]) == ()
    assert trace_of("a", ()) == ()


def test_the_root_is_the_incident_from_the_fault_on() -> None:
    assert (ROOT.name, ROOT.start, ROOT.end, ROOT.parent_id) == ("incident gpu.xid", at(100), at(142), None)
    shown = {"host.name": "n1", "holdfast.incident.id": "a", "holdfast.check": "gpu.xid", "holdfast.remedy": "replace"}
    assert shown.items() <= ROOT.attributes.items()
    assert ROOT.attributes["holdfast.time_to_recovery_s"] == pytest.approx(3.3)
    assert len(ROOT.events) == len(STORY)


def test_each_phase_is_a_span_as_long_as_it_is_measured() -> None:
    (measured,) = measure(STORY)
    spans = {s.name.removeprefix("phase "): s for s in CHILDREN if s.name.startswith("phase ")}
    assert {name: (s.end - s.start).total_seconds() for name, s in spans.items()} == pytest.approx(
        {phase.value: duration_s for phase, duration_s in measured.phases.items()}
    )
    assert spans["restart"].start == at(101.3)


def test_phases_of_elastic_jobs_follow_the_opening() -> None:
    story = (
        event(0, K.INCIDENT_OPENED),
        event(1, K.QUORUM_EVICTED, room="r"),
        event(3, K.QUORUM_FORMED, room="r"),
        event(9, K.QUORUM_FORMED, room="r", full=True),
    )
    found = phase_intervals(story)
    assert found[Phase.EVICT] == (at(0), at(1))
    assert (found[Phase.GO_ON], found[Phase.REGROW]) == ((at(1), at(3)), (at(1), at(9)))


def test_jobs_and_steps_are_spans() -> None:
    down = named("job down")
    assert (down.start, down.end, down.attributes["slurm.job"]) == (at(101.3), at(103.3), JOB)
    drain = named("drain")
    assert (drain.start, drain.end, drain.status) == (at(100.3), at(100.5), SpanStatus.OK)
    assert drain.attributes["holdfast.outcome"] == "done"


@pytest.mark.parametrize(
    ("kind", "status", "text"),
    [(K.ACTION_FAILED, SpanStatus.ERROR, "no capacity"), (K.ACTION_REFUSED, SpanStatus.UNSET, "")],
)
def test_a_step_that_was_not_done(kind: EventKind, status: SpanStatus, text: str) -> None:
    failed = replace(event(5, kind, **STEP), text="no capacity")
    (step,) = [
        s
        for s in trace_of("a", (event(0, K.INCIDENT_OPENED), failed, event(9, K.INCIDENT_CLOSED)))
        if s.name == "drain"
    ]
    assert (step.status, step.status_text) == (status, text)


def test_all_spans_are_of_one_trace_and_the_same_each_time() -> None:
    again = trace_of("a", tuple(reversed(STORY)))
    assert [(s.trace_id, s.span_id) for s in again] == [(s.trace_id, s.span_id) for s in SPANS]
    assert len({s.span_id for s in SPANS}) == len(SPANS)
    assert {s.trace_id for s in SPANS} == {ROOT.trace_id}
    assert {s.parent_id for s in CHILDREN} == {ROOT.span_id}
    assert trace_of("b", STORY)[0].trace_id != ROOT.trace_id


def test_a_trace_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_EVENTS", 3)
    monkeypatch.setattr(traces, "MOST_SPANS", 2)
    root, *children = trace_of("a", STORY)
    assert [e.name for e in root.events] == ["fault.occurred", "incident.opened", "action.planned", "holdfast.left_out"]
    assert root.events[-1].attributes == {"holdfast.left_out": len(STORY) - 3}
    assert len(children) == 1


def test_the_encoding() -> None:
    body = traces_request(SPANS[:1], {"service.name": "holdfast", "n": 3, "yes": True, "half": 0.5}, "1.0")
    (resource,) = body["resourceSpans"]
    assert [a["value"] for a in resource["resource"]["attributes"]] == [
        {"stringValue": "holdfast"},
        {"intValue": "3"},
        {"boolValue": True},
        {"doubleValue": 0.5},
    ]
    (span,) = resource["scopeSpans"][0]["spans"]
    assert (len(span["traceId"]), len(span["spanId"]), span["kind"]) == (32, 16, 1)
    assert span["startTimeUnixNano"] == str(int(at(100).timestamp()) * 10**9)
    assert "parentSpanId" not in span
