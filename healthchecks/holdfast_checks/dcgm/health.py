"""Parse and judge the output of ``dcgmi health -g 0 -c -j``.

A finding of DCGM counts; that it says Healthy proves little: it called a GPU healthy that needed a reset (DCGM#263), and from
4.5.0 on it drops recovery actions above 4. The checks of NVML's own state run in addition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_checks.dcgm.errors import DcgmError, by_text
from holdfast_checks.dcgm.text import a_dict, line, loads
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.result import NODE_COMPONENT, Remedy, Result, Severity

_GPU = "GPU"


@dataclass(frozen=True, slots=True)
class DcgmIncident:
    """One system of one entity that is not healthy."""

    group: str
    """``GPU``, ``Switch``, ``CPU``, …"""
    entity: str
    system: str
    """Such as ``Memory system``."""
    failed: bool
    """Failure; False: Warning, or a word that is not known."""
    text: str


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """One answer, and which GPU is which."""

    overall: str
    incidents: tuple[DcgmIncident, ...]
    gpus: Mapping[int, GpuRef]


def parse(text: str) -> tuple[str, tuple[DcgmIncident, ...]]:
    """(overall word, incidents). Raises ValueError for an answer without the report's JSON."""
    body = loads(text).get("body")
    overall = a_dict(a_dict(body).get("Overall Health")).get("value")
    if not isinstance(body, dict) or not isinstance(overall, str):
        raise ValueError("no health report in the answer")
    return overall, tuple(_incidents(body))


def judge(check: str, facts: HealthFacts) -> tuple[Result, ...]:
    """A result for every error of every GPU, OK for the other GPUs; switches and what else is not a GPU are reported for the
    node. An answer that is neither Healthy nor says why is UNKNOWN."""
    if not facts.incidents and facts.overall != "Healthy":
        return (Result.unknown(check, summary=f"DCGM says {facts.overall!r} and gives no incident"[:200]),)
    bad: list[Result] = []
    for incident in facts.incidents:
        bad += [_finding(check, facts, incident, error) for error in _errors(incident)]
    hurt = {result.component for result in bad}
    fine = [_ok(check, ref) for ref in facts.gpus.values() if ref.component not in hurt]
    if NODE_COMPONENT not in hurt:
        fine.append(Result.ok(check, summary=f"DCGM says {facts.overall}", sticky=True))
    return (*bad, *fine)


def _errors(incident: DcgmIncident) -> list[DcgmError]:
    """Messages of one system are joined by commas; each known one counts once, else the system names the error."""
    place = incident.system.lower()
    if incident.group != _GPU:
        place = f"{incident.group.lower()} {incident.entity} {place}"
    found: dict[str, DcgmError] = {}
    for text in incident.text.split(", ") or [""]:
        error = by_text(text, place)
        if error.name:
            found.setdefault(error.code, error)
    if found:
        return list(found.values())
    if incident.failed:
        return [DcgmError(place, "", Severity.DEGRADED, Remedy.HUMAN)]
    return [DcgmError(place, "", Severity.WARNING, Remedy.NONE)]


def _finding(check: str, facts: HealthFacts, incident: DcgmIncident, error: DcgmError) -> Result:
    ref = facts.gpus.get(int(incident.entity)) if incident.group == _GPU and incident.entity.isdecimal() else None
    component = NODE_COMPONENT
    code = error.code
    if incident.group == _GPU:
        component = ref.component if ref else f"dcgm-gpu-{incident.entity}"
    elif error.name:
        code = f"{error.code} {incident.group.lower()} {incident.entity}"
    word = "Failure" if incident.failed else "Warning"
    return Result.finding(
        check,
        error.severity,
        error.remedy,
        component,
        code=code,
        summary=line(f"DCGM {incident.system} {word}: {incident.text}"),
        evidence={"system": incident.system, "dcgm_error": error.name or "unknown", "dcgm_health": word},
        gpu_uuid=ref.uuid if ref else None,
        gpu_minor=ref.minor if ref else None,
        pci=ref.pci if ref else None,
        sticky=True,
    )


def _ok(check: str, ref: GpuRef) -> Result:
    return Result.ok(check, ref.component, gpu_uuid=ref.uuid, gpu_minor=ref.minor, pci=ref.pci, sticky=True)


def _incidents(body: Mapping[str, Any]) -> Iterator[DcgmIncident]:
    for group, entities in body.items():
        for entity, one in _children(entities).items():
            systems = _children(_children(one).get("Errors"))
            if not systems and a_dict(one).get("value") not in (None, "Healthy"):
                yield DcgmIncident(line(group, 40), line(entity, 40), "unknown system", one["value"] == "Failure", "")
            for system, told in systems.items():
                pieces = a_dict(told).get("overflow")
                text = " ".join(str(piece) for piece in pieces) if isinstance(pieces, list) else ""
                yield DcgmIncident(
                    line(group, 40),
                    line(entity, 40),
                    line(system, 40),
                    told.get("value") == "Failure",
                    line(text, 2000),
                )


def _children(raw: Any) -> dict[str, Any]:
    return {name: each for name, each in a_dict(a_dict(raw).get("children")).items() if isinstance(each, dict)}
