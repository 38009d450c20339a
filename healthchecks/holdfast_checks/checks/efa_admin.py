"""``efa.admin``: each EFA device answers its driver.

Commands without a completion mean that the firmware did not answer. Keep-alives alone are no proof of death: only when commands were
submitted and none completed meanwhile is the device taken for dead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_checks import counter_rules
from holdfast_checks.counter_rules import CounterRule
from holdfast_checks.probes.rdma import device_counters, efa_devices
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, SampleChange, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "efa.admin"
KEEP_ALIVE_S = 10.0
_NVSENTINEL = "NVSentinel PR #1750"
RULES = (
    CounterRule(
        "no_completion_cmds",
        0,
        "the device's firmware did not answer a command",
        f"{_NVSENTINEL}: any is fatal; linux-rdma/perftest#113 shows 0 on a sound device",
        Severity.FATAL,
        Remedy.REBOOT,
        event=True,
    ),
    CounterRule("cmds_err", 10 / 60, "the device refuses commands", f"{_NVSENTINEL}: 10 a minute", at_least=5),
)
_ALIVE = ("keep_alive_rcvd", "submitted_cmds", "completed_cmds")
_WANTED = (*(rule.counter for rule in RULES), *_ALIVE)


@dataclass(frozen=True, slots=True)
class EfaAdminFacts:
    """Counters and PCI addresses by device."""

    counters: Mapping[str, Mapping[str, int]]
    pci: Mapping[str, str | None]


def gather(context: Context) -> EfaAdminFacts:
    """Raises NotApplicable without EFA devices."""
    sysfs = context.settings.sysfs
    devices = efa_devices(sysfs)
    if not devices:
        raise NotApplicable("this node has no EFA device")
    counters = {device.name: device_counters(sysfs, device.name, _WANTED) for device in devices}
    return EfaAdminFacts(counters, {device.name: device.pci for device in devices})


def judge(change: SampleChange) -> tuple[Result, ...]:
    """One result a device; counters that could not be read are UNKNOWN."""
    now: EfaAdminFacts = change.now.facts
    before: Mapping[str, Mapping[str, int]] = change.before.facts.counters if change.before is not None else {}
    return tuple(
        _judge_one(name, now.pci[name], before.get(name), counters, change.seconds)
        for name, counters in now.counters.items()
    )


def _judge_one(
    name: str, pci: str | None, before: Mapping[str, int] | None, now: Mapping[str, int], seconds: float
) -> Result:
    if not now:
        return Result.unknown(CHECK_ID, name, summary=f"{name}: shows no counters", pci=pci)
    grown = counter_rules.growth(before, now)
    result = counter_rules.judge(CHECK_ID, name, pci, RULES, grown, seconds)
    if result.severity is Severity.FATAL or grown is None or before is None or seconds < KEEP_ALIVE_S:
        return result
    return _without_keep_alive(name, pci, before, grown, seconds) or result


def _without_keep_alive(
    name: str, pci: str | None, before: Mapping[str, int], grown: Mapping[str, int], seconds: float
) -> Result | None:
    """None: it is alive, or it never sent keep-alives, or no command was submitted meanwhile."""
    submitted = grown.get("submitted_cmds", 0)
    if before.get("keep_alive_rcvd", 0) == 0 or grown.get("keep_alive_rcvd") != 0 or submitted == 0:
        return None
    completed = grown.get("completed_cmds", 0)
    dead = completed == 0
    text = "none completed: it is dead" if dead else f"{completed} completed"
    return Result.finding(
        CHECK_ID,
        Severity.FATAL if dead else Severity.WARNING,
        Remedy.REBOOT if dead else Remedy.NONE,
        name,
        code="dead" if dead else "keep_alive",
        summary=f"{name}: no keep-alive for {seconds:.0f} s, {submitted} commands submitted, {text}",
        evidence={"submitted": submitted, "completed": completed, "seconds": round(seconds, 1)},
        pci=pci,
        sticky=True,
    )


CHECK = Check(
    id=CHECK_ID,
    title="EFA devices answer their driver",
    needs=frozenset({Need.NETWORK}),
    interval_s=30,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    compares=True,
    thresholds=(
        *counter_rules.thresholds(RULES),
        Threshold(
            "no keep-alive",
            KEEP_ALIVE_S,
            "s",
            "linux-rdma/perftest#113: 91 keep-alives with 42 commands; the time is our own choice",
        ),
    ),
)
