"""Parse and judge the answer of an operator's own check. Pure.

The contract (docs/custom-checks.md): an exit status of 0, 1, 2 or 3 (Nagios: OK, warning, critical, unknown) with a line on stdout; or
one JSON object on stdout, which is a result or has a list ``results`` of them. Whatever else it does is a misbehaviour: UNKNOWN, never a
fault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.probes.child import Finished, Hung
from holdfast_checks.result import NODE_COMPONENT, Remedy, Result, ResultDetails, Scalar, Severity, Verdict

MOST_BYTES = 64 * 1024
_MOST_RESULTS = 256
_MOST_EVIDENCE = 32
_BIGGEST = 2**63
MOST_LINE = 240
MOST_NAME = 128
_KEYS = frozenset({"verdict", "severity", "remedy", "summary", "component", "code", "evidence"})
_STATUS = {0: Verdict.OK, 1: Verdict.DEGRADED, 2: Verdict.FAILED, 3: Verdict.UNKNOWN}
_WORDS = {**{verdict.value: verdict for verdict in Verdict}, "warning": Verdict.DEGRADED, "critical": Verdict.FAILED}
_NOT_BAD = {Verdict.OK: Result.ok, Verdict.UNKNOWN: Result.unknown, Verdict.SKIPPED: Result.skipped}
_SEVERITIES = (Severity.WARNING, Severity.DEGRADED, Severity.FATAL)
_REMEDIES = (
    Remedy.NONE,
    Remedy.HUMAN,
    Remedy.RESTART_JOB,
    Remedy.RESET_GPU,
    Remedy.REBOOT,
    Remedy.STOP_START,
    Remedy.REPLACE,
)
"""Remedies ordered by what they do to the node without an operator."""


class Misbehaved(Exception):
    """The answer breaks the contract; the text says how."""


@dataclass(frozen=True, slots=True)
class CustomCheckLimits:
    """The most that the site lets the check call for."""

    check: str
    severity: Severity
    remedy: Remedy


def results(answer: Finished | Hung, limits: CustomCheckLimits, gpus: Mapping[str, GpuRef]) -> tuple[Result, ...]:
    """What it said. Raises Misbehaved."""
    if isinstance(answer, Hung):
        raise Misbehaved(f"no answer within {answer.seconds:.3g} s")
    if answer.status < 0:
        raise Misbehaved(f"it was ended by signal {-answer.status}")
    if answer.status not in _STATUS:
        raise Misbehaved(f"exit status {answer.status} is none of 0 to 3: {answer.complaint}"[:MOST_LINE])
    if answer.truncated:
        raise Misbehaved(f"it printed more than {MOST_BYTES // 1024} KiB")
    said = answer.out.strip()
    found = _from_json(said, limits, gpus) if _is_json(said) else (_from_status(answer, limits),)
    if all(result.component != NODE_COMPONENT for result in found):
        found = (*found, Result.ok(limits.check, summary="it answered", sticky=True))
    return found


def _is_json(said: bytes) -> bool:
    """Whether it means to answer in JSON. An object behind other lines counts: read as plain text a fault in it would pass as OK."""
    return any(line.lstrip().startswith((b"{", b"[{")) for line in said.splitlines())


def _from_status(answer: Finished, limits: CustomCheckLimits) -> Result:
    first = answer.out.splitlines()[0] if answer.out.splitlines() else b""
    summary = text(first, "the first line of its output")[:MOST_LINE]
    if answer.status == 0:
        return Result.ok(limits.check, summary=summary, sticky=True)
    if answer.status == 3:
        return Result.unknown(limits.check, summary=summary or "it says that it does not know", sticky=True)
    bad = {"verdict": "critical" if answer.status == 2 else "warning", "summary": summary or answer.complaint}
    return _result(bad, limits, {})


def _from_json(said: bytes, limits: CustomCheckLimits, gpus: Mapping[str, GpuRef]) -> tuple[Result, ...]:
    try:
        root = json.loads(text(said, "its output"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Misbehaved(f"its JSON cannot be read, or is not all that it printed: {error}"[:MOST_LINE]) from error
    if not isinstance(root, dict):
        raise Misbehaved('its JSON is no object: several results are {"results": [...]}')
    raw = root["results"] if set(root) == {"results"} else [root]
    if not isinstance(raw, list) or not raw or len(raw) > _MOST_RESULTS:
        raise Misbehaved(f"results is no list of 1 to {_MOST_RESULTS}")
    found = tuple(_result(one, limits, gpus) for one in raw)
    keys = [(result.component, result.code) for result in found]
    if len(set(keys)) != len(keys):
        raise Misbehaved("two results have the same component and code")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises Misbehaved for an object that says one key twice."""
    if len({key for key, _value in pairs}) != len(pairs):
        raise Misbehaved("its JSON says a key twice")
    return dict(pairs)


def _result(raw: Any, limits: CustomCheckLimits, gpus: Mapping[str, GpuRef]) -> Result:
    if not isinstance(raw, dict):
        raise Misbehaved("a result is no object")
    unknown = sorted(set(raw) - _KEYS)
    if unknown:
        raise Misbehaved(f"unknown key {unknown[0]!r}; there are: {', '.join(sorted(_KEYS))}"[:MOST_LINE])
    verdict = _WORDS.get(str(raw.get("verdict", "")).lower())
    if verdict is None:
        raise Misbehaved(f"verdict {raw.get('verdict')!r} is none of {', '.join(_WORDS)}"[:MOST_LINE])
    component = text(raw.get("component", NODE_COMPONENT), "component")[:MOST_NAME] or NODE_COMPONENT
    about = _about(raw, gpus.get(component))
    not_bad = _NOT_BAD.get(verdict)
    if not_bad is not None:
        return not_bad(limits.check, component, **about)
    about["code"] = text(raw.get("code", ""), "code")[:MOST_NAME] or verdict.value
    severity, remedy = _severity(raw.get("severity"), verdict, limits), _remedy(raw.get("remedy"), verdict, limits)
    failed = verdict is Verdict.FAILED  # in its own word: what it calls for is said, or follows from the site's limits
    return Result.finding(limits.check, severity, remedy, component, failed=failed, **about)


def _about(raw: Mapping[str, Any], gpu: GpuRef | None) -> ResultDetails:
    about: ResultDetails = {
        "summary": text(raw.get("summary", ""), "summary")[:MOST_LINE],
        "evidence": evidence(raw.get("evidence", {})),
        "sticky": True,
    }
    if gpu is not None:
        about |= {"gpu_uuid": gpu.uuid, "gpu_minor": gpu.minor, "pci": gpu.pci}
    return about


def _severity(raw: Any, verdict: Verdict, limits: CustomCheckLimits) -> Severity:
    """What it says, and never more than the site allows; what it leaves out: a warning warns, what failed counts in full."""
    if raw is None:
        return limits.severity if verdict is Verdict.FAILED else Severity.WARNING
    if raw not in tuple(Severity):
        raise Misbehaved(f"severity {raw!r} is none of {', '.join(Severity)}"[:MOST_LINE])
    return min(Severity(raw), limits.severity, key=_SEVERITIES.index)


def _remedy(raw: Any, verdict: Verdict, limits: CustomCheckLimits) -> Remedy:
    if raw is None:
        return limits.remedy if verdict is Verdict.FAILED else Remedy.NONE
    if raw not in tuple(Remedy):
        raise Misbehaved(f"remedy {raw!r} is none of {', '.join(Remedy)}"[:MOST_LINE])
    return min(Remedy(raw), limits.remedy, key=_REMEDIES.index)


def evidence(raw: Any) -> dict[str, Scalar]:
    """At most 32 texts, numbers and truths by name. Raises Misbehaved."""
    if not isinstance(raw, dict) or len(raw) > _MOST_EVIDENCE:
        raise Misbehaved(f"evidence is no object of at most {_MOST_EVIDENCE} values")
    kept: dict[str, Scalar] = {}
    for key, value in raw.items():
        if not isinstance(value, str | int | float):
            raise Misbehaved(f"evidence {key!r} is neither text nor number nor true or false"[:MOST_LINE])
        if not isinstance(value, str) and not abs(value) < _BIGGEST:
            raise Misbehaved(f"evidence {key!r} is no finite number of 64 bits"[:MOST_LINE])
        kept[text(key, "evidence")[:MOST_NAME]] = (
            text(value, "evidence")[:MOST_LINE] if isinstance(value, str) else value
        )
    return kept


def text(raw: Any, what: str) -> str:
    """One printable line. Raises Misbehaved for bytes that are none."""
    if isinstance(raw, bytes):
        try:
            raw = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Misbehaved(f"{what} is not text in UTF-8") from error
    if not isinstance(raw, str):
        raise Misbehaved(f"{what} is not text")
    line = " ".join(raw.split())
    if not line.isprintable():
        raise Misbehaved(f"{what} has control characters")
    return line
