"""What an observed finding would have called for: typed, and as the wire and the store carry it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.api.requests.convert import to_report
from holdfast.api.requests.wire import FindingItem, ReportBody
from holdfast.model.agents.report import Finding
from holdfast.model.incidents.observed import WouldBe, with_would_be, would_be
from holdfast.store.codec import decode, encode
from holdfast_checks.result import Grade, Remedy, Scalar, Severity, Verdict
from support.store_nouns import NOW, finding

FATAL = Grade.of(Severity.FATAL, Remedy.REPLACE)
OBSERVED: dict[str, Scalar] = {"n": 3, "observe": True, "would_severity": "fatal", "would_remedy": "replace"}
ODD: list[tuple[dict[str, Any], tuple[str, str] | None]] = [
    (OBSERVED, ("fatal", "replace")),
    ({"observe": True}, ("warning", "none")),
    ({"observe": True, "would_severity": "apocalyptic", "would_remedy": 3}, ("warning", "none")),
    ({"observe": "yes", "would_severity": "fatal"}, None),
    ({"would_severity": "fatal", "would_remedy": "replace"}, None),
    ({}, None),
]


def test_the_wires_evidence_says_it_and_is_read_back() -> None:
    assert with_would_be({"n": 3}, FATAL) == OBSERVED
    assert would_be(OBSERVED, Severity.WARNING, Remedy.NONE) == WouldBe(Severity.FATAL, Remedy.REPLACE)
    assert with_would_be(OBSERVED, None) == {"n": 3}


@pytest.mark.parametrize(("evidence", "would"), ODD)
def test_a_report_is_read_into_fields_and_its_evidence_is_kept(
    evidence: dict[str, Any], would: tuple[str, str] | None
) -> None:
    item = FindingItem.model_validate(
        {"check": "x", "verdict": "degraded", "severity": "warning", "evidence": evidence}
    )
    body = ReportBody(version=1, node="n1", boot_id="b", outbox_id="o", sequence=1)
    (read,) = to_report(body, [item], NOW)[0].findings
    assert (read.would_severity, read.would_remedy) == (would or (None, None))
    assert (read.observed, read.evidence) == (would is not None, evidence)


def test_evidence_is_bounded_and_loses_no_entry() -> None:
    fat = {f"k{n}": "x" * 1900 for n in range(250)} | OBSERVED
    item = FindingItem.model_validate({"check": "x", "verdict": "degraded", "severity": "warning", "evidence": fat})
    assert len(json.dumps(item.evidence)) < 24 * 1024
    assert list(item.evidence) == list(fat)
    assert would_be(item.evidence, Severity.WARNING, Remedy.NONE) == WouldBe(Severity.FATAL, Remedy.REPLACE)
    plain = {f"k{n}": "x" * 1900 for n in range(8)}
    item = FindingItem.model_validate({"check": "x", "verdict": "degraded", "severity": "warning", "evidence": plain})
    assert item.evidence == plain


@pytest.mark.parametrize(("evidence", "would"), ODD)
def test_a_row_of_the_release_before_is_read_into_fields(
    evidence: dict[str, Any], would: tuple[str, str] | None
) -> None:
    document = {"verdict": "degraded"} | encode(
        finding(severity=Severity.WARNING, remedy=Remedy.NONE, evidence=evidence)
    )
    del document["would_severity"], document["would_remedy"], document["failed"]
    read = decode(Finding, json.loads(json.dumps(document)))
    assert (read.would_severity, read.would_remedy) == (would or (None, None))
    assert (read.failed, read.verdict) == (False, Verdict.DEGRADED)


def test_a_row_of_this_release_is_read_as_it_is_whatever_its_evidence() -> None:
    for fields in ({}, {"would_severity": Severity.DEGRADED, "would_remedy": Remedy.REBOOT}):
        kept = finding(evidence=OBSERVED, **fields)
        assert decode(Finding, encode(kept)) == kept
