"""New checks observe, a guest agent steps back, and a check that hangs delays no other."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from holdfast.agent.findings import wire
from holdfast.agent.findings.trust import ResultTrust, Weighed
from holdfast.agent.jobs import priority
from holdfast.agent.sources.checks import HostChecks
from holdfast_checks.acting import Lists
from holdfast_checks.registry import Check, Context, Cost, Need
from holdfast_checks.result import Grade, Remedy, Result, Severity, Verdict
from holdfast_checks.seen_right import SeenRight
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
FATAL = Result.finding("net.new", Severity.FATAL, Remedy.REPLACE, "efa0", code="gone", evidence={"seen": 3})
UNKNOWN = Result.unknown("net.new", summary="no answer")
KNOWN = {"net.new": CHECK, "gpu.old": replace(CHECK, id="gpu.old", observe=False)}


def test_a_new_check_observes_and_says_what_it_would_have_called_for() -> None:
    weighed = ResultTrust(KNOWN).weigh(FATAL)
    counts = weighed.result
    assert (counts.verdict, counts.severity, counts.remedy) == (Verdict.DEGRADED, Severity.WARNING, Remedy.NONE)
    evidence = wire.finding(weighed, 0.0, "").body["evidence"]
    assert evidence == {"seen": 3, "observe": True, "would_severity": "fatal", "would_remedy": "replace"}
    assert weighed.would == Grade(Severity.FATAL, Remedy.REPLACE, failed=True)
    assert counts.code == "gone"


def test_what_a_notice_would_have_called_for_is_kept_and_none_is_weighed_twice() -> None:
    """Judged again, a spot notice that only observes reported that it would have been a warning without a remedy."""
    trust = ResultTrust({CHECK.id: CHECK})
    weighed = trust.weigh(replace(FATAL, evidence={"notice": "interruption"}))
    assert weighed.would == Grade(Severity.FATAL, Remedy.REPLACE, failed=True)
    with pytest.raises(AttributeError):
        trust.weigh(weighed)  # type: ignore[arg-type]  # the point: it does not type-check


def test_the_words_of_an_observing_check_are_never_a_checks_own() -> None:
    told = replace(FATAL, check="gpu.old", evidence={"seen": 3, "observe": True, "would_severity": "fatal"})
    assert wire.finding(ResultTrust(KNOWN).weigh(told), 0.0, "").body["evidence"] == {"seen": 3}


@pytest.mark.parametrize("act_on", ["net.new", "*"])
def test_a_site_switches_it_on(act_on: str) -> None:
    assert ResultTrust(KNOWN, Lists((act_on,))).weigh(FATAL) == Weighed(FATAL)


def test_a_proven_check_acts_unless_the_site_says_otherwise() -> None:
    proven = replace(FATAL, check="gpu.old")
    assert ResultTrust(KNOWN).weigh(proven) == Weighed(proven)
    assert ResultTrust(KNOWN, Lists(observe_only=("gpu.old",))).weigh(proven).result.severity is Severity.WARNING
    assert ResultTrust(KNOWN, Lists(("*",), ("gpu.old",))).acts("gpu.old") is False


def test_what_an_observing_check_cannot_ask_keeps_no_node_from_serving() -> None:
    assert ResultTrust(KNOWN).for_service(UNKNOWN).result.verdict is Verdict.SKIPPED
    assert ResultTrust(KNOWN, Lists(("*",))).for_service(UNKNOWN) == Weighed(UNKNOWN)
    assert ResultTrust(KNOWN).for_service(replace(UNKNOWN, check="gpu.old")).result.verdict is Verdict.UNKNOWN


ABSENT = Result.finding("gpu.old", Severity.DEGRADED, Remedy.REBOOT, code="down", summary="it is not there")


def test_what_was_never_seen_in_its_place_is_only_recorded_and_says_so() -> None:
    seen = SeenRight({"gpu.old": "/run/x.sock"})
    trust = ResultTrust(KNOWN, Lists(("*",)), seen_right=seen)
    weighed = trust.weigh(ABSENT)
    assert (weighed.result.outcome, weighed.would) == (Grade.of(Severity.WARNING), ABSENT.grade)
    assert weighed.result.summary == "it is not there; only recorded: never yet seen right on this node (/run/x.sock)"
    unknown = replace(UNKNOWN, check="gpu.old")
    assert trust.for_service(unknown).result.verdict is Verdict.SKIPPED
    seen.learn([Result.ok("gpu.old")])
    assert (trust.weigh(ABSENT), trust.for_service(unknown)) == (Weighed(ABSENT), Weighed(unknown))


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("some avg10=76.52 avg60=66.37 avg300=41.80 total=4680954735\nfull avg10=0.00\n", priority.STRETCH),
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
    assert priority.stretch(path) == factor


def test_the_pressure_is_read_once_for_all_checks_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter((priority.STRETCH, 1.0))
    monkeypatch.setattr(priority, "stretch", lambda: next(said))
    stretch = priority.Stretch()
    assert [stretch.now(at_s) for at_s in (5.0, 5.0, 5.9, 6.1)] == [2.0, 2.0, 2.0, 1.0]


def test_good_results_wait_for_the_next_turn_while_more_are_on_their_way() -> None:
    let_go = threading.Event()
    told: list[tuple[str, bool]] = []
    checks = HostChecks(lambda check, _results, soon: told.append((check.id, soon)))
    first = replace(
        CHECK, id="first", gather=lambda _context: let_go.wait(30), judge=lambda _facts: (Result.ok("first"),)
    )
    fine = replace(first, id="fine", judge=lambda _facts: (Result.ok("fine"),))
    bad = replace(first, id="bad", judge=lambda _facts: (Result.finding("bad", Severity.FATAL, Remedy.NONE),))
    try:
        for check in (first, fine, bad, fine):
            checks.begin(replace(check, id=f"{check.id}{len(checks._busy)}"), Context())
        let_go.set()
        eventually(lambda: len(told) == 4)
        assert told == [("first0", False), ("fine1", False), ("bad2", True), ("fine3", True)]
    finally:
        let_go.set()
        checks.close()


def _same(result: Result, _facts: object) -> tuple[Result, ...]:
    return (result,)


@pytest.mark.slow
def test_results_wake_the_agent_for_a_fault_and_for_its_end_and_not_for_each_look() -> None:
    told: list[bool] = []
    checks = HostChecks(lambda _check, _results, soon: told.append(soon))
    bad, fine = Result.finding("net.new", Severity.FATAL, Remedy.NONE), Result.ok("net.new")
    looks = [fine, fine, fine, bad, bad, fine, fine, fine, Result.unknown("net.new", summary="?"), fine, fine, fine]
    try:
        for result in looks:
            before = len(told)
            checks.begin(replace(CHECK, judge=partial(_same, result), hysteresis=(2, 3)), Context())
            eventually(partial(lambda before: len(told) > before and not checks._busy, before))
        assert told == [True, True, False, True, True, True, True, False, True, True, True, False]
    finally:
        checks.close()


def test_a_check_that_hangs_holds_up_no_other() -> None:
    let_go = threading.Event()
    told: list[str] = []
    checks = HostChecks(lambda check, _results, _soon: told.append(check.id))
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
