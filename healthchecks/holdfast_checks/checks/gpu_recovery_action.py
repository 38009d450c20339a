"""``gpu.recovery_action``: the driver's own verdict on each GPU (NVML field 230). It outranks every table."""

from __future__ import annotations

from holdfast_checks.catalog.xids import recovery_action
from holdfast_checks.per_gpu import absent, each, finding, ok
from holdfast_checks.registry import Check, Cost, Need, snapshot_of
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import GpuSnapshot, Snapshot

CHECK_ID = "gpu.recovery_action"


def judge(snapshot: Snapshot) -> tuple[Result, ...]:
    """By the number, never by a text."""
    return each(CHECK_ID, snapshot, _judge_one)


def _judge_one(gpu: GpuSnapshot) -> Result:
    number = gpu.recovery_action.value
    if number is None:
        return absent(CHECK_ID, gpu.ref, gpu.recovery_action, "the recovery action")
    action = recovery_action(number)
    if action.severity is None:
        return ok(CHECK_ID, gpu.ref)
    summary = f"the driver asks to {action.meaning}" if number <= 7 else f"unknown recovery action {number}"
    return finding(CHECK_ID, gpu.ref, str(number), action.severity, action.remedy, summary, recovery_action=number)


CHECK = Check(
    id=CHECK_ID,
    title="The driver asks for no recovery action",
    needs=frozenset({Need.NVML}),
    interval_s=15,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REBOOT,
    gather=snapshot_of,
    judge=judge,
    observe=False,
)
