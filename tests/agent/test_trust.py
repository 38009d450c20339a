"""New checks observe, a guest steps back, and a check that hangs holds up no other."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.agent import courtesy
from holdfast.agent.checks import HostChecks
from holdfast.agent.trust import Trust
from holdfast_checks.registry import Check, Context, Cost, Need
from holdfast_checks.result import Remedy, Result, Severity, Verdict
from support.practice import eventually

CHECK = Check(
    id="net.new",
    title="",
    needs=frozenset({Need.HOST}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REPLACE,
    gather=lambda _context: None,
    judge=lambda _facts: (),
)
FATAL = Result("net.new", Verdict.FAILED, "efa0", "gone", Severity.FATAL, Remedy.REPLACE, evidence={"seen": 3})
UNKNOWN = Result("net.new", Verdict.UNKNOWN, summary="no answer")
KNOWN = {"net.new": CHECK, "gpu.old": replace(CHECK, id="gpu.old", observe=False)}


def test_a_new_check_observes_and_says_what_it_would_have_called_for() -> None:
    weighed = Trust(KNOWN).weigh(FATAL)
    assert (weighed.verdict, weighed.severity, weighed.remedy) == (Verdict.DEGRADED, Severity.WARNING, Remedy.NONE)
    assert weighed.evidence == {"seen": 3, "observe": True, "would_severity": "fatal", "would_remedy": "replace"}
    assert weighed.code == "gone"


@pytest.mark.parametrize("act_on", ["net.new", "*"])
def test_a_site_switches_it_on(act_on: str) -> None:
    assert Trust(KNOWN, act_on=frozenset({act_on})).weigh(FATAL) == FATAL


def test_a_proven_check_acts_unless_the_site_says_otherwise() -> None:
    proven = replace(FATAL, check="gpu.old")
    assert Trust(KNOWN).weigh(proven) == proven
    assert Trust(KNOWN, observe_only=frozenset({"gpu.old"})).weigh(proven).severity is Severity.WARNING
    assert Trust(KNOWN, frozenset({"*"}), frozenset({"gpu.old"})).acts("gpu.old") is False


def test_what_an_observing_check_cannot_ask_keeps_no_node_from_serving() -> None:
    assert Trust(KNOWN).for_service(UNKNOWN).verdict is Verdict.SKIPPED
    assert Trust(KNOWN, act_on=frozenset({"*"})).for_service(UNKNOWN) == UNKNOWN
    assert Trust(KNOWN).for_service(replace(UNKNOWN, check="gpu.old")).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("some avg10=76.52 avg60=66.37 avg300=41.80 total=4680954735\nfull avg10=0.00\n", courtesy.STRETCH),
        ("some avg10=3.10 avg60=66.37 avg300=41.80 total=4680954735\n", 1.0),
        ("some avg10=x", 1.0),
        ("", 1.0),
        (None, 1.0),
    ],
)
def test_host_checks_are_stretched_only_under_pressure(tmp_path: Path, text: str | None, factor: float) -> None:
    path = tmp_path / "cpu"
    if text is not None:
        path.write_text(text)
    assert courtesy.stretch(path) == factor


def test_a_check_that_hangs_holds_up_no_other() -> None:
    let_go = threading.Event()
    told: list[str] = []
    checks = HostChecks(lambda check, _results: told.append(check.id))
    hanging = replace(CHECK, id="host.hangs", gather=lambda _context: let_go.wait(30), deadline_s=0.05)
    fine = replace(CHECK, id="host.fine")
    try:
        assert checks.begin(hanging, Context()) == ()
        eventually(lambda: checks._worker.hung is not None)
        assert checks.begin(fine, Context()) == ()
        eventually(lambda: told == ["host.fine"])
        assert [result.verdict for result in checks.begin(hanging, Context())] == [Verdict.UNKNOWN]
        let_go.set()
        eventually(lambda: "host.hangs" in told)
        assert checks.begin(hanging, Context()) == ()
        eventually(lambda: told.count("host.hangs") == 2)
    finally:
        let_go.set()
        checks.close()


def test_what_a_site_only_observes_makes_no_planned_stop() -> None:
    planned = replace(CHECK, id="cloud.maintenance", observe=False)
    told = Result("cloud.maintenance", Verdict.DEGRADED, severity=Severity.WARNING, evidence={"notice": "stop"})
    assert Trust({planned.id: planned}).weigh(told) is told
    watched = Trust({planned.id: planned}, observe_only=frozenset({planned.id})).weigh(told)
    assert watched.evidence["observe"] is True
