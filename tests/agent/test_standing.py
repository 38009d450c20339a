"""Which results are reported: changes, reminders, clears; hysteresis; repeated events."""

from __future__ import annotations

import json

import pytest

from holdfast.agent.findings.finding_state import OpenFindings
from holdfast.agent.findings.flaps import QUIET_S, STORM, Events
from holdfast.agent.findings.trust import Weighed
from holdfast.agent.timing.schedule import Hysteresis, Schedule
from holdfast_checks.result import Remedy, Result, ResultDetails, Severity

NOT_BAD = {"ok": Result.ok, "unknown": Result.unknown, "skipped": Result.skipped}


def result(verdict: str, code: str = "", component: str = "GPU-1", severity: Severity | None = None) -> Result:
    if verdict not in ("failed", "degraded"):
        return NOT_BAD[verdict]("gpu.ecc", component, code=code, sticky=True)
    failed, severity = verdict == "failed", severity or Severity.FATAL
    about: ResultDetails = {"code": code or "volatile", "sticky": True}
    return Result.finding("gpu.ecc", severity, Remedy.RESET_GPU, component, failed=failed, **about)


def say(standing: OpenFindings, now_s: float, *results: Result) -> tuple[list[str], list[str]]:
    news = standing.judge(map(Weighed, results), now_s)
    return [found.result.code for found in news.findings], [component for _check, component in news.clears]


def test_a_finding_is_said_once_then_as_a_reminder() -> None:
    standing = OpenFindings(reminder_s=600)
    assert say(standing, 0, result("failed")) == (["volatile"], [])
    assert say(standing, 599, result("failed")) == ([], [])
    assert say(standing, 600, result("failed")) == (["volatile"], [])
    assert standing.failing == ("gpu.ecc",)


def test_a_worse_severity_or_another_code_is_news() -> None:
    standing = OpenFindings()
    assert say(standing, 0, result("degraded", severity=Severity.DEGRADED)) == (["volatile"], [])
    assert say(standing, 1, result("failed")) == (["volatile"], [])
    assert say(standing, 2, result("failed", "other")) == (["other"], [])


@pytest.mark.parametrize("verdict", ["unknown", "skipped"])
def test_neither_unknown_nor_skipped_clears_or_faults(verdict: str) -> None:
    standing = OpenFindings()
    assert say(standing, 0, result(verdict)) == ([], [])
    say(standing, 1, result("failed"))
    assert say(standing, 2, result(verdict)) == ([], [])
    assert standing.failing == ("gpu.ecc",)


def test_ok_clears_once_and_only_its_own_component() -> None:
    standing = OpenFindings()
    assert say(standing, 0, result("ok")) == ([], [])
    say(standing, 1, result("failed"), result("failed", component="GPU-2"))
    assert say(standing, 2, result("ok"), result("failed", component="GPU-2")) == ([], ["GPU-1"])
    assert say(standing, 3, result("ok")) == ([], [])
    assert standing.failing == ("gpu.ecc",)


def test_ok_and_bad_of_one_component_in_one_run_is_not_a_clean_bill() -> None:
    standing = OpenFindings()
    assert say(standing, 0, result("failed"), result("ok")) == (["volatile"], [])
    assert say(standing, 1, result("ok"), result("failed")) == ([], [])


def test_what_stands_survives_a_restart_and_is_cleared_by_the_first_ok() -> None:
    before = OpenFindings()
    say(before, 0, result("failed"))
    after = OpenFindings()
    after.load(before.dump())
    assert after.failing == ("gpu.ecc",)
    assert say(after, 0, result("ok")) == ([], ["GPU-1"])
    again = OpenFindings()
    again.load(before.dump())
    assert say(again, 0, result("failed")) == (["volatile"], [])


def test_all_ok_needs_an_answer_of_every_expected_check() -> None:
    standing = OpenFindings(expected=frozenset({"gpu.ecc", "host.disk"}))
    say(standing, 0, result("ok"))
    assert not standing.all_ok
    say(standing, 1, Result.skipped("host.disk"))
    assert standing.all_ok
    say(standing, 2, result("unknown"))
    assert not standing.all_ok


def test_k_of_n_before_it_counts_and_k_good_in_a_row_before_it_clears() -> None:
    standing = OpenFindings()
    said = []
    for at_s, verdict in enumerate(["failed", "ok", "failed", "failed", "ok", "ok", "failed", "ok", "ok", "ok"]):
        news = standing.judge([Weighed(result(verdict))], at_s, (3, 5))
        said.append("f" if news.findings else "c" if news.clears else ".")
    assert "".join(said) == "...f.....c"


@pytest.mark.parametrize(
    ("readings", "outcome"),
    [("b", None), ("bb", True), ("bgb", True), ("bggb", None), ("bbg", None), ("bbgg", False), ("bgbgb", True)],
)
def test_hysteresis_two_of_three(readings: str, outcome: bool | None) -> None:
    hysteresis = Hysteresis(2, 3)
    assert [hysteresis.add(each == "b") for each in readings][-1] is outcome


def test_hysteresis_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="k of n"):
        Hysteresis(3, 2)


def test_one_event_told_by_two_sources_is_one_and_a_later_one_is_another() -> None:
    events = Events()
    assert events.admit(result("failed", "79"), 100.0)
    assert not events.admit(result("failed", "79"), 100.4)
    assert not events.admit(result("failed", "79"), 98.0)
    assert events.admit(result("failed", "48"), 100.4)
    assert events.admit(result("failed", "79", component="GPU-2"), 100.4)
    assert events.admit(result("failed", "79"), 105.1)


@pytest.mark.slow
def test_a_storm_of_one_event_is_told_a_few_times_and_then_rarely_with_its_number() -> None:
    """One card that logs 38,000 corrected-error events in a day."""
    events = Events()
    said = [found for number in range(38_000) if (found := events.admit(result("failed", "92"), number * 2.27))]
    assert STORM < len(said) < STORM + 86_400 / 600
    assert sum(int(found.evidence.get("left_out", 0)) for found in said) + len(said) == pytest.approx(38_000, abs=300)
    assert events.admit(result("failed", "79"), 1.0), "another event of the same card is reported at once"


def test_what_flaps_stays_bad_until_it_has_been_quiet() -> None:
    standing = OpenFindings()
    said = ""
    for at_s in range(0, 3000, 15):
        bad = at_s < 600 and at_s // 60 % 2 == 0
        findings, clears = say(standing, at_s, result("failed" if bad else "ok"))
        said += "f" if findings else f"c{at_s}" if clears else ""
    assert said.startswith("fc60fc180f"), "the first two turns are believed at once"
    assert said.count("c") == 3
    assert int(said.rpartition("c")[2]) == 540 + QUIET_S


def test_a_second_turn_after_an_hour_is_no_flapping() -> None:
    standing = OpenFindings()
    for at_s in range(0, 5 * 3600, 3600):
        assert say(standing, at_s, result("failed")) == (["volatile"], [])
        assert say(standing, at_s + 60, result("ok")) == ([], ["GPU-1"])


def test_a_flood_of_different_events_does_not_grow_memory() -> None:
    events = Events()
    for number in range(3000):
        events.admit(result("failed", str(number)), float(number))
    assert len(events._seen) <= 1001


def test_everything_is_due_at_the_start_then_after_its_interval_less_its_jitter() -> None:
    schedule = Schedule({"a": 10.0, "b": 60.0}, 100.0, phase=0.5)
    assert schedule.due(100.0) == ("a", "b")
    assert schedule.due(109.4) == ()
    assert schedule.next_s() == pytest.approx(109.5)
    assert schedule.due(109.5) == ("a",)


def test_a_late_loop_or_a_jump_ahead_never_bunches_runs() -> None:
    schedule = Schedule({"a": 10.0}, 0.0)
    schedule.due(0.0)
    assert schedule.due(1000.0) == ("a",)
    assert schedule.due(1000.0) == ()
    assert schedule.next_s() == 1010.0


def test_what_falls_on_one_moment_goes_on_doing_so() -> None:
    """However late each turn is: one wake-up, not three."""
    schedule = Schedule({"a": 15.0, "b": 30.0, "c": 60.0, "d": 4.0}, 100.0, phase=0.3)
    moments = []
    now_s = 100.0
    while now_s < 1000.0:
        moments.append(frozenset(schedule.due(now_s)))
        now_s = schedule.next_s() + 0.004
    assert moments.count(frozenset("a")) + moments.count(frozenset("ad")) == sum(
        "a" in m and "b" not in m for m in moments
    )
    assert all(m >= {"a"} for m in moments if "b" in m)
    assert all(m >= {"a", "b", "d"} for m in moments if "c" in m)
    assert sum("a" in m for m in moments) == pytest.approx(900 / (15 * 0.97), abs=1)


@pytest.mark.parametrize(("late_s", "next_s"), [(0.0, 110.0), (4.9, 110.0), (5.1, 120.0), (9.0, 120.0)])
def test_after_a_late_turn_a_task_is_back_in_the_bar_and_not_right_away(late_s: float, next_s: float) -> None:
    schedule = Schedule({"a": 10.0}, 90.0)
    schedule.due(90.0)
    assert schedule.due(100.0 + late_s) == ("a",)
    assert schedule.next_s() == next_s


def test_a_task_may_come_ahead_of_the_others_and_one_may_be_put_off() -> None:
    schedule = Schedule({"a": 15.0, "b": 30.0, "short": 1.0}, 0.0, ahead_s={"a": 1.0, "short": 1.0})
    assert schedule.due(0.0) == ("a", "b", "short")
    assert schedule.next_s() == 0.5
    schedule.set("short", float("inf"))
    assert [schedule.due(at_s) for at_s in (14.0, 15.0, 29.0, 30.0)] == [("a",), (), ("a",), ("b",)]
    schedule.put_off("b", 1.0)
    assert schedule.due(60.0) == ("a",)
    assert schedule.due(90.0) == ("a", "b")
    schedule.put_off("b", 0.0)
    assert schedule.due(119.9) == ("a",)
    assert schedule.due(120.0) == ("b",)


def test_a_due_time_can_be_set_and_an_unknown_name_is_left_alone() -> None:
    schedule = Schedule({"a": float("inf")}, 0.0)
    schedule.due(0.0)
    assert schedule.next_s() == float("inf")
    schedule.set("a", 5.0)
    schedule.set("b", 1.0)
    assert schedule.due(5.0) == ("a",)


def test_what_was_said_is_kept_in_the_words_of_earlier_releases() -> None:
    kept = '[["gpu.ecc", "GPU-1", "volatile", "failed/fatal/reset_gpu"]]'
    standing = OpenFindings()
    standing.load(kept)
    assert standing.dump() == kept
    assert standing.fatal == ("gpu.ecc GPU-1 volatile",)


@pytest.mark.parametrize(
    ("words", "safe", "fatal"),
    [
        ("failed/None/none", "failed/warning/none", False),
        ("degraded/catastrophic/melt", "degraded/degraded/human", False),
        ("broken/fatal/reboot", "degraded/fatal/reboot", True),
        ("", "degraded/warning/none", False),
    ],
)
def test_words_of_another_release_are_read_safely_and_the_fault_can_still_clear(
    words: str, safe: str, fatal: bool
) -> None:
    standing = OpenFindings()
    standing.load(json.dumps([["gpu.ecc", "GPU-1", "volatile", words]]))
    assert json.loads(standing.dump()) == [["gpu.ecc", "GPU-1", "volatile", safe]]
    assert bool(standing.fatal) is fatal
    assert say(standing, 0, result("ok")) == ([], ["GPU-1"])
