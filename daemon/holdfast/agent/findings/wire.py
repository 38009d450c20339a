"""Wire items of results (``docs/reference/wire.md``). Pure."""

from __future__ import annotations

from typing import Any

from holdfast.agent.findings.trust import Weighed
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.model.incidents.observed import with_would_be


def finding(weighed: Weighed, now_s: float, wall_time: str, *, history: bool = False) -> OutboxItem:
    """Item for a result that is not OK. ``now_s``: CLOCK_MONOTONIC, the time of the fault where the result names none."""
    result = weighed.result
    at_s = now_s if result.fault_monotonic_s is None else min(result.fault_monotonic_s, now_s)
    body: dict[str, Any] = {
        "kind": "finding",
        "check": result.check,
        "component": result.component,
        "code": result.code,
        "verdict": result.verdict.value,
        "severity": result.severity.value if result.severity else None,
        "remedy": result.remedy.value,
        "summary": result.summary,
        "monotonic_s": round(at_s, 6),
        "wall_time": wall_time,
        "evidence": with_would_be(result.evidence, weighed.would, recorded_only=weighed.recorded_only),
        "gpu_uuid": result.gpu_uuid,
        "gpu_minor": result.gpu_minor,
        "pci": result.pci,
        "consequence": result.consequence,
        "sticky": result.sticky,
    }
    if history:
        body["history"] = True
    return OutboxItem(body, at_s)


def clear(check: str, component: str, now_s: float) -> OutboxItem:
    """Item for an OK that clears an earlier finding."""
    return OutboxItem({"kind": "clear", "check": check, "component": component}, now_s)
