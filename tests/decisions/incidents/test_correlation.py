"""Findings become incidents: what joins, what opens, what widens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.decisions.incidents.correlate import NO_INCIDENT, correlate
from holdfast.metrics.timings import measure
from holdfast.model.agents.report import Finding
from holdfast.model.book import Book, Change, World
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.incidents.observed import would_be
from holdfast.model.policies.policy import Policy
from holdfast_checks.result import Remedy, Severity
from support.store_nouns import NOW, finding, incident, later

_S = IncidentState


def _correlated(*findings: Finding, known: tuple[Incident, ...] = (), at_s: float = 1.0) -> Change:
    numbered = {n: replace(f, id=n) for n, f in enumerate(findings, 1)}
    book = Book(incidents={i.id: i for i in known}, findings=numbered)
    return correlate(World(later(at_s), Policy(), book, None), lambda at: f"new{int(at.timestamp())}")


def _only(change: Change) -> Incident:
    assert len(change.incidents) == 1
    return change.incidents[0]


PCIE = {"check": "host.pcie", "code": "aer", "severity": Severity.DEGRADED, "remedy": Remedy.REBOOT}


def test_one_fault_seen_three_ways_is_one_incident() -> None:
    found = _only(_correlated(finding(**PCIE), finding(), finding(check="gpu.lost", code="lost")))
    assert (found.state, found.severity, found.remedy) == (_S.OPEN, Severity.FATAL, Remedy.REPLACE)
    assert found.headline.startswith("gpu.xid 79")


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, _S.OPEN),
        ({"severity": Severity.DEGRADED}, _S.OPEN),
        ({"severity": Severity.WARNING}, _S.WATCHING),
        ({"remedy": Remedy.NONE}, _S.WATCHING),
        ({"remedy": Remedy.RESTART_JOB}, _S.WATCHING),
    ],
)
def test_what_calls_for_action(changed: dict[str, Any], state: IncidentState) -> None:
    assert _only(_correlated(finding(**changed))).state is state


def test_a_consequence_opens_nothing_and_waits_for_its_cause() -> None:
    echo = finding(code="45", consequence=True)
    assert _correlated(echo).placed == {}
    late = _correlated(echo, at_s=400)
    assert (late.incidents, late.placed) == ((), {1: NO_INCIDENT})
    joined = _correlated(echo, finding())
    assert joined.placed[2] == _only(joined).id
    assert _correlated(echo, known=(incident(),)).placed == {1: "inc1"}


@pytest.mark.parametrize(
    ("changed", "minors"),
    [
        ({"gpu_minor": 5}, frozenset({1, 3, 5})),
        ({"gpu_minor": None}, None),
        ({"gpu_minor": 5, "severity": Severity.DEGRADED}, frozenset({1, 3})),
        ({"gpu_minor": 5, "consequence": True}, frozenset({1, 3})),
        ({"gpu_minor": 5, "instance_id": "i-2"}, frozenset({1, 3})),
    ],
)
@pytest.mark.parametrize("state", [_S.OPEN, _S.CONTAINED, _S.AWAITING_HUMAN])
def test_a_second_gpu_widens_the_incident(
    state: IncidentState, changed: dict[str, Any], minors: frozenset[int] | None
) -> None:
    change = _correlated(finding(**changed), known=(incident(state=state),))
    assert change.placed == {1: "inc1"}
    assert _only(change).gpu_minors == minors


@pytest.mark.parametrize("state", [_S.REPAIRING, _S.VALIDATING])
def test_what_shows_during_the_repair_is_evidence(state: IncidentState) -> None:
    known = incident(state=state, severity=Severity.DEGRADED)
    assert _only(_correlated(finding(gpu_minor=5), known=(known,))) == known


def test_a_fatal_finding_raises_what_was_watched() -> None:
    watched = incident(state=_S.WATCHING, severity=Severity.WARNING, remedy=Remedy.NONE, gpu_minors=frozenset({7}))
    raised = _only(_correlated(finding(), known=(watched,)))
    assert (raised.id, raised.state, raised.severity) == ("inc1", _S.OPEN, Severity.FATAL)
    assert raised.gpu_minors == frozenset({3})


def test_what_is_raised_is_on_record_with_the_fault_that_called_for_action() -> None:
    warned = finding(severity=Severity.WARNING, fault_at=NOW, received_at=later(0.5))
    fatal = finding(code="48", fault_at=later(100.0), received_at=later(100.25))
    opened = _correlated(warned)
    raised = _correlated(fatal, known=(_only(opened),), at_s=100.3)
    kinds = [e.kind for e in raised.events]
    assert kinds == [EventKind.FINDING_JOINED, EventKind.FAULT_OCCURRED, EventKind.INCIDENT_STATE]
    (got,) = measure((*opened.events, *raised.events))
    assert got.time_to_detect_s == pytest.approx(0.25)
    assert (got.fault_at, got.opened_at) == (later(100.0), later(100.25))
    again = _correlated(replace(fatal, code="79"), known=(_only(raised),), at_s=101)
    assert [e.kind for e in again.events] == [EventKind.FINDING_JOINED], "raised once"


def test_a_warning_that_grew_into_a_fault_has_the_faults_time() -> None:
    """The jobs that it ended are searched for around that time; a warning of hours ago would hide them."""
    warned = finding(severity=Severity.WARNING, remedy=Remedy.NONE, fault_at=NOW, received_at=later(0.5))
    fatal = finding(code="79", fault_at=later(7200.0), received_at=later(7200.25))
    raised = _only(_correlated(fatal, known=(_only(_correlated(warned)),), at_s=7200.3))
    assert (raised.state, raised.fault_at) == (_S.OPEN, later(7200.0))
    late = replace(warned, id=9, code="95", fault_at=later(10.0), received_at=later(7201.0))
    assert _only_or(_correlated(late, known=(raised,), at_s=7201), raised).fault_at == later(7200.0), (
        "an old warning came late"
    )


@pytest.mark.parametrize(("after_s", "fault_at_s"), [(7200.0, 7200.0), (2.0, 0.0)])
def test_a_degraded_nodes_fatal_fault_counts_from_itself_unless_it_is_the_same_one(
    after_s: float, fault_at_s: float
) -> None:
    degraded = finding(severity=Severity.DEGRADED, fault_at=NOW, received_at=later(0.5))
    fatal = finding(code="79", fault_at=later(after_s), received_at=later(after_s + 0.25))
    raised = _only(_correlated(fatal, known=(_only(_correlated(degraded)),), at_s=after_s + 0.3))
    assert (raised.severity, raised.fault_at) == (Severity.FATAL, later(fault_at_s))


def _only_or(change: Change, otherwise: Incident) -> Incident:
    return change.incidents[0] if change.incidents else otherwise


def test_what_an_operator_took_over_takes_in_what_is_no_worse() -> None:
    taken = incident(state=_S.WATCHING, severity=Severity.FATAL, acknowledged=True)
    change = _correlated(finding(gpu_minor=5), known=(taken,))
    assert (_only(change).id, _only(change).state) == ("inc1", _S.WATCHING)
    assert [e.kind for e in change.events] == [EventKind.FINDING_JOINED]


def test_what_is_worse_than_what_an_operator_took_over_is_news() -> None:
    """An operator who acknowledges a warning has not taken over the GPU that is lost a minute later."""
    taken = incident(state=_S.WATCHING, severity=Severity.WARNING, remedy=Remedy.NONE, acknowledged=True)
    lost, count = finding(), finding(check="gpu.count", code="lost")
    opened = _only(_correlated(lost, count, known=(taken,)))
    assert (opened.id != "inc1", opened.state, opened.severity) == (True, _S.OPEN, Severity.FATAL)


@pytest.mark.parametrize(("would", "leads"), [("fatal", True), ("warning", False), ("", False), ("nonsense", False)])
def test_a_watched_incident_shows_what_would_be_the_worst_of_it(would: str, leads: bool) -> None:
    mild = finding(check="kernel.oom", code="oom", severity=Severity.WARNING, remedy=Remedy.NONE)
    said = would_be({"observe": True, "would_severity": would}, mild.severity, mild.remedy)
    observed = replace(mild, check="kernel.machine_check", code="mce", would_severity=said and said.severity)
    both = _only(_correlated(mild, observed))
    assert (both.state, both.severity) == (_S.WATCHING, Severity.WARNING)
    assert both.headline.startswith("kernel.machine_check" if leads else "kernel.oom")


def test_what_was_watched_long_ago_on_another_gpu_is_another_fault() -> None:
    watched = incident(state=_S.WATCHING, severity=Severity.WARNING, gpu_minors=frozenset({7}))
    change = _correlated(finding(fault_at=NOW + timedelta(seconds=900)), known=(watched,), at_s=900)
    assert _only(change).id != "inc1"


def test_the_incident_at_work_is_preferred_to_an_older_watched_one() -> None:
    watched = incident("inc0", state=_S.WATCHING, severity=Severity.WARNING)
    assert _correlated(finding(), known=(watched, incident(state=_S.VALIDATING))).placed == {1: "inc1"}


def test_silence_and_other_nodes_take_nothing_in() -> None:
    silent = incident("inc0", state=_S.SUSPECTED)
    change = _correlated(finding(), known=(silent, incident("inc2", node="n2")))
    assert _only(change).id.startswith("new")
