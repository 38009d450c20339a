"""``gpu.mix``: all GPUs of the node are alike. One of another kind, firmware or power limit slows every collective down."""

from __future__ import annotations

from collections import Counter

from holdfast_checks.details import GpuDetails
from holdfast_checks.per_gpu import GpuFacts, details_check
from holdfast_checks.result import Result, Severity

CHECK_ID = "gpu.mix"


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """A finding for the node for each thing that differs."""
    gpus = [gpu.details for gpu in facts.snapshot.gpus if gpu.at_work and gpu.details is not None]
    if not gpus:
        return (Result.unknown(CHECK_ID, summary="no GPU was read", sticky=True),)
    kinds = {"name": "GPU names", "vbios": "VBIOS versions", "power_limit": "power limits"}
    found = [_differs(code, text, values) for code, text in kinds.items() if len(values := _values(code, gpus)) > 1]
    return tuple(found) or (Result.ok(CHECK_ID, sticky=True),)


def _values(code: str, gpus: list[GpuDetails]) -> Counter[str]:
    """Each value and how many GPUs have it; what could not be read is left out."""
    if code == "power_limit":
        return Counter(f"{limit // 1000} W" for gpu in gpus if (limit := gpu.power_limit_mw.value) is not None)
    return Counter(value for gpu in gpus if (value := str(getattr(gpu, code))))


def _differs(code: str, text: str, values: Counter[str]) -> Result:
    words = ", ".join(f"{count} x {value}" for value, count in values.most_common())
    return Result.finding(
        CHECK_ID,
        Severity.WARNING,
        code=code,
        summary=f"different {text}: {words}"[:300],
        evidence={"values": len(values)},
        sticky=True,
    )


CHECK = details_check(CHECK_ID, "All GPUs of the node are alike", judge, severity=Severity.WARNING)
