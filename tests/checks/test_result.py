"""A result carries its verdict, severity and remedy together: none contradicts another."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from holdfast_checks.result import Grade, Remedy, Result, Severity, Verdict

ID = "custom.widget"


@pytest.mark.parametrize(
    ("severity", "failed", "verdict"),
    [
        (Severity.FATAL, None, Verdict.FAILED),
        (Severity.DEGRADED, None, Verdict.DEGRADED),
        (Severity.WARNING, None, Verdict.DEGRADED),
        (Severity.DEGRADED, True, Verdict.FAILED),
        (Severity.FATAL, False, Verdict.DEGRADED),
    ],
)
def test_the_verdict_of_a_finding_follows_from_its_severity_unless_the_check_says_otherwise(
    severity: Severity, failed: bool | None, verdict: Verdict
) -> None:
    found = Result.finding("host.x", severity, Remedy.REBOOT, "/scratch", failed=failed, code="full")
    assert (found.verdict, found.severity, found.remedy, found.bad) == (verdict, severity, Remedy.REBOOT, True)
    assert found.grade == Grade(severity, Remedy.REBOOT, verdict is Verdict.FAILED)


@pytest.mark.parametrize(
    ("made", "verdict"),
    [(Result.ok, Verdict.OK), (Result.unknown, Verdict.UNKNOWN), (Result.skipped, Verdict.SKIPPED)],
)
def test_what_is_no_finding_has_neither_severity_nor_remedy(made: Callable[..., Result], verdict: Verdict) -> None:
    result = made("host.x", "/scratch", summary="why")
    assert (result.verdict, result.severity, result.remedy, result.grade, result.bad) == (
        verdict,
        None,
        Remedy.NONE,
        None,
        False,
    )
    with pytest.raises(TypeError):
        made("host.x", severity=Severity.FATAL)


@pytest.mark.parametrize("outcome", [Verdict.FAILED, Verdict.DEGRADED, "failed", None])
def test_a_finding_without_a_severity_cannot_be_made(outcome: Any) -> None:
    """A package's check, which nothing type-checks, must not lose its fault silently."""
    with pytest.raises(TypeError, match=r"host\.x: a result is made by"):
        Result("host.x", outcome)


def test_as_json_it_says_both_words() -> None:
    plain = Result.finding("host.x", Severity.FATAL, Remedy.REPLACE, code="c", evidence={"n": 1}).plain()
    assert json.loads(json.dumps(plain)) == {
        "check": "host.x",
        "verdict": "failed",
        "component": "node",
        "code": "c",
        "severity": "fatal",
        "remedy": "replace",
        "summary": "",
        "evidence": {"n": 1},
        "gpu_uuid": None,
        "gpu_minor": None,
        "pci": None,
        "fault_monotonic_s": None,
        "consequence": False,
        "sticky": False,
    }
    assert (Result.ok("host.x").plain()["severity"], Result.ok("host.x").plain()["remedy"]) == (None, "none")


@pytest.mark.parametrize(
    ("said", "verdict", "severity", "remedy"),
    [
        (("failed", "fatal", "reboot"), "failed", "fatal", "reboot"),
        (("failed", "degraded", "human"), "failed", "degraded", "human"),
        (("degraded", "fatal", "none"), "degraded", "fatal", "none"),
        (("failed", None, None), "failed", "warning", "none"),
        (("degraded", "apocalyptic", "melt"), "degraded", "degraded", "human"),
        (("doomed", "fatal", "replace"), "degraded", "fatal", "replace"),  # as from a report
        (("doomed", "degraded", "reboot"), "degraded", "degraded", "reboot"),
        (("ok", "fatal", "replace"), "ok", None, "none"),
        (("skipped", None, None), "skipped", None, "none"),
        (("doomed", None, "replace"), "unknown", None, "none"),
        ((None, None, None), "unknown", None, "none"),
        ((["x"], {}, 3), "unknown", None, "none"),
    ],
)
def test_words_of_another_release_are_read_as_the_safe_ones(
    said: tuple[Any, Any, Any], verdict: str, severity: str | None, remedy: str
) -> None:
    read = Result.read({"check": "host.x", **dict(zip(("verdict", "severity", "remedy"), said, strict=True))})
    assert read is not None
    assert (read.verdict, read.severity, read.remedy) == (verdict, severity, remedy)


def test_what_it_says_as_json_is_read_back() -> None:
    told = Result.finding("host.x", Severity.DEGRADED, Remedy.REBOOT, "/scratch", failed=True, code="c", summary="s")
    assert Result.read(json.loads(json.dumps(told.plain()))) == told
    assert Result.read({"check": "host.x", "verdict": "ok"}) == Result.ok("host.x")


@pytest.mark.parametrize("said", [{}, {"check": ""}, {"check": 3, "verdict": "failed"}])
def test_what_names_no_check_is_no_result(said: dict[str, Any]) -> None:
    assert Result.read(said) is None


@pytest.mark.parametrize(
    ("call", "now"),
    [
        (
            lambda old: old(ID, Verdict.FAILED, severity=Severity.FATAL, remedy=Remedy.REPLACE, summary="s"),
            Result.finding(ID, Severity.FATAL, Remedy.REPLACE, summary="s"),
        ),
        (
            lambda old: old(ID, Verdict.FAILED, "/scratch", "full", Severity.WARNING, Remedy.NONE, "s", {"n": 1}),
            Result.finding(
                ID, Severity.WARNING, component="/scratch", code="full", summary="s", evidence={"n": 1}, failed=True
            ),
        ),
        (
            lambda old: old(check=ID, verdict=Verdict.DEGRADED, severity=Severity.FATAL),
            Result.finding(ID, Severity.FATAL, failed=False),
        ),
        (lambda old: old(ID, Verdict.OK, severity=None, remedy=Remedy.NONE), Result.ok(ID)),
        (lambda old: old(ID, Verdict.OK, "node", "", None, Remedy.NONE, "s"), Result.ok(ID, summary="s")),
    ],
)
def test_the_call_of_the_release_before_makes_the_same_result(call: Callable[[Any], Result], now: Result) -> None:
    """A package's check that was written for it continues to find faults."""
    with pytest.warns(DeprecationWarning, match=r"Result\.finding"):
        assert call(Result) == now


def test_the_own_fields_are_no_old_call(recwarn: pytest.WarningsRecorder) -> None:
    made = Result.finding(ID, Severity.FATAL, summary="s")
    assert replace(made, summary="t").summary == "t"
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301
    assert not recwarn.list
    with pytest.raises(TypeError, match="unexpected"):
        cast(Any, Result)(ID, Verdict.OK, nonsense=1)
