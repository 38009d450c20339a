"""Parse and judge the output of ``dcgmi diag -j``. Two shapes are known; others are tolerated:

- 3.x: ``{"DCGM GPU Diagnostic": {"test_categories": […], "version": …}}``; results name ``gpu_id`` or ``gpu_ids`` (a number, a
  string, a list with commas, or nothing), warnings are strings or objects, tests may be null.
- 4.x: ``{"DCGM Diagnostic": …, "entity_groups": […], "metadata": …}``; results name ``entity_group`` and ``entity_id``.

A test of an unknown name is judged like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast_checks.dcgm.errors import NOT_APPLICABLE, SAYS_NOTHING, DcgmError, by_number, by_text
from holdfast_checks.dcgm.text import a_dict, line, loads
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.result import NODE_COMPONENT, Remedy, Result, Scalar, Severity

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_STATUSES = {"pass": "pass", "warn": "warn", "fail": "fail", "skip": "skip", "skipped": "skip", "not run": "skip"}
_WORST_FIRST = (Severity.FATAL, Severity.DEGRADED, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class DiagOutcome:
    """One test on one entity."""

    test: str
    status: str
    """``pass``, ``warn``, ``fail``, ``skip``; anything else is not understood."""
    group: str = "GPU"
    entity: int | None = None
    """DCGM's number of the GPU, switch or CPU; None: the node as a whole."""
    errors: tuple[tuple[int | None, int | None, str], ...] = ()
    """(error id, DCGM's severity, text) each."""


@dataclass(frozen=True, slots=True)
class Diag:
    """One run."""

    outcomes: tuple[DiagOutcome, ...]
    version: str = ""
    driver: str = ""
    runtime_error: str = ""
    serials: Mapping[int, str] = field(default_factory=dict)
    """DCGM's number of a GPU → its serial (4.x)."""


@dataclass(frozen=True, slots=True)
class DiagFacts:
    """A run, and which GPU is which."""

    diag: Diag
    gpus: Mapping[int, GpuRef]


def parse(text: str) -> Diag:
    """Raises ValueError for an answer without the diagnostic's JSON (lines before and after it are ignored)."""
    root = loads(text)
    body = next((root[name] for name in _ROOTS if isinstance(root.get(name), dict)), None)
    if body is None:
        raise ValueError("no DCGM diagnostic in the answer")
    metadata = a_dict(root.get("metadata"))
    return Diag(
        tuple(_outcomes(body)),
        version=str(metadata.get("version") or body.get("version") or ""),
        driver=str(metadata.get("Driver Version Detected") or body.get("Driver Version Detected") or ""),
        runtime_error=str(body.get("runtime_error") or ""),
        serials=dict(_serials(root)),
    )


def judge(check: str, facts: DiagFacts) -> tuple[Result, ...]:
    """One result for every error of every GPU; OK for a GPU of which a test passed and none failed. What is neither a GPU
    nor nameless (switches, CPUs) is reported for the node."""
    places: dict[str, list[DiagOutcome]] = {}
    refs: dict[str, GpuRef] = {}
    for outcome in facts.diag.outcomes:
        component = NODE_COMPONENT
        if outcome.group == "GPU" and outcome.entity is not None:
            ref = facts.gpus.get(outcome.entity)
            component = ref.component if ref else f"dcgm-gpu-{outcome.entity}"
            if ref:
                refs[component] = ref
        places.setdefault(component, []).append(outcome)
    return tuple(
        result for place in sorted(places) for result in _judge_place(check, place, refs.get(place), places[place])
    )


def _judge_place(check: str, place: str, ref: GpuRef | None, outcomes: list[DiagOutcome]) -> list[Result]:
    who: dict[str, Any] = {"component": place, "sticky": True}
    if ref is not None:
        who |= {"gpu_uuid": ref.uuid, "gpu_minor": ref.minor, "pci": ref.pci}
    findings: dict[str, tuple[DcgmError, DiagOutcome, str]] = {}
    for outcome in outcomes:
        for error, text in _faults(outcome):
            findings.setdefault(error.code, (error, outcome, text))
    if findings:
        ordered = sorted(findings.values(), key=lambda each: _WORST_FIRST.index(each[0].severity))
        return [_finding(check, who, *each) for each in ordered]
    silent = [outcome for outcome in outcomes if _says_nothing(outcome)]
    if silent:
        what = ", ".join(sorted({outcome.test for outcome in silent}))
        return [Result.unknown(check, summary=f"no result: {what}"[:200], **who)]
    passed = sum(outcome.status == "pass" for outcome in outcomes)
    if not passed:
        return [Result.skipped(check, summary=_why_skipped(outcomes), **who)]
    return [Result.ok(check, summary=f"{passed} tests passed", **who)]


def _faults(outcome: DiagOutcome) -> Iterator[tuple[DcgmError, str]]:
    """What a test that did not pass says is wrong."""
    if outcome.status not in ("fail", "warn"):
        return
    place = " ".join(outcome.test.lower().split()) + (
        f" {outcome.group.lower()} {outcome.entity}" if outcome.group != "GPU" else ""
    )
    told = False
    for number, severity, text in outcome.errors:
        error = by_number(number, severity) if number is not None else by_text(text, place)
        told = True
        if error.name not in SAYS_NOTHING and error.name not in NOT_APPLICABLE:
            yield _known_badly(error, outcome), text
    if not told:
        severity_, remedy = (
            (Severity.DEGRADED, Remedy.HUMAN) if outcome.status == "fail" else (Severity.WARNING, Remedy.NONE)
        )
        yield DcgmError(place, "", severity_, remedy), "DCGM gives no reason"


def _known_badly(error: DcgmError, outcome: DiagOutcome) -> DcgmError:
    """A failed test with an error that is in no table and of no known severity still failed: an operator should check."""
    if error.name or outcome.status != "fail" or error.severity is not Severity.WARNING:
        return error
    return DcgmError(error.code, "", Severity.DEGRADED, Remedy.HUMAN)


def _says_nothing(outcome: DiagOutcome) -> bool:
    if outcome.status not in _STATUSES.values():
        return True
    names = {by_number(number).name for number, _severity, _text in outcome.errors if number is not None}
    return outcome.status in ("fail", "warn") and bool(names & SAYS_NOTHING)


def _why_skipped(outcomes: list[DiagOutcome]) -> str:
    texts = [text for outcome in outcomes for _number, _severity, text in outcome.errors if text]
    return line(f"DCGM skipped every test{': ' + texts[0] if texts else ''}")


def _finding(check: str, who: Mapping[str, Any], error: DcgmError, outcome: DiagOutcome, text: str) -> Result:
    evidence: dict[str, Scalar] = {"test": outcome.test, "dcgm_error": error.name or error.code, "text": line(text)}
    return Result.finding(
        check,
        error.severity,
        error.remedy,
        code=error.code,
        summary=line(f"DCGM {outcome.test}: {text}"),
        evidence=evidence,
        **who,
    )


def _outcomes(body: Mapping[str, Any]) -> Iterator[DiagOutcome]:
    for category in _dicts(body.get("test_categories")):
        for test in _dicts(category.get("tests")):
            name = line(str(test.get("name") or "unnamed test"))[:60]
            results = _dicts(test.get("results"))
            told = False
            for result in results:
                for outcome in _of_result(name, result):
                    told = True
                    yield outcome
            if not told and test.get("test_summary"):
                yield from _of_result(name, a_dict(test["test_summary"]))


def _of_result(test: str, result: Mapping[str, Any]) -> Iterator[DiagOutcome]:
    raw = str(result.get("status", ""))
    status = _STATUSES.get(raw.split(" - ", maxsplit=1)[0].strip().lower(), raw or "none")
    errors = tuple(_error(each) for each in _list(result.get("warnings")) if each is not None)
    if status == "skip" and not errors:
        errors = tuple((None, None, str(each)) for each in _list(result.get("info")))
    group = str(result.get("entity_group") or "GPU")
    if "entity_id" in result:
        yield DiagOutcome(test, status, group, _number(result["entity_id"]), errors)
        return
    for gpu in _gpu_ids(result.get("gpu_id", result.get("gpu_ids"))):
        yield DiagOutcome(test, status, "GPU", gpu, errors)


def _error(raw: Any) -> tuple[int | None, int | None, str]:
    if not isinstance(raw, dict):
        return None, None, str(raw)
    text = raw.get("warning", raw.get("warnings", ""))
    return _number(raw.get("error_id")), _number(raw.get("error_severity")), str(text)


def _gpu_ids(raw: Any) -> list[int | None]:
    """One GPU, several in one string, or none: then the node."""
    parts = [_number(part) for part in str(raw).split(",")] if raw is not None else []
    return [part for part in parts if part is not None and part >= 0] or [None]


def _serials(root: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for group in _dicts(root.get("entity_groups")):
        if group.get("entity_group") == "GPU":
            for entity in _dicts(group.get("entities")):
                number = _number(entity.get("entity_id"))
                if number is not None and entity.get("serial_num"):
                    yield number, str(entity["serial_num"])


def _number(raw: Any) -> int | None:
    if isinstance(raw, bool) or raw is None:
        return None
    try:
        return int(str(raw).strip())
    except ValueError:
        return None


def _list(raw: Any) -> list[Any]:
    return raw if isinstance(raw, list) else [] if raw is None else [raw]


def _dicts(raw: Any) -> list[dict[str, Any]]:
    return [each for each in _list(raw) if isinstance(each, dict)]
