"""``ib.counters``: error counters of InfiniBand and RoCE ports. What a job alone can cause is a warning at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_checks import counter_rules
from holdfast_checks.counter_rules import CounterRule
from holdfast_checks.probes.fabric import fabric_ports
from holdfast_checks.probes.rdma import port_counters
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, SampleChange
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "ib.counters"
_NVSENTINEL = "NVSentinel NIC monitor"
_ANY = f"{_NVSENTINEL}: any is fatal; here the jobs may end first"
_COUNTERS = (
    CounterRule(
        "local_link_integrity_errors", 0, "the link's signal fails", _ANY, Severity.DEGRADED, Remedy.HUMAN, event=True
    ),
    CounterRule(
        "excessive_buffer_overrun_errors",
        0,
        "flow control fails over and over",
        _ANY,
        Severity.DEGRADED,
        Remedy.HUMAN,
        event=True,
    ),
    CounterRule(
        "symbol_error",
        120 / 3600,
        "bits arrive broken",
        f"{_NVSENTINEL}: 120 an hour is fatal; here over 5 min, and the jobs may end first",
        Severity.DEGRADED,
        Remedy.HUMAN,
        at_least=10,
    ),
    CounterRule("link_error_recovery", 5 / 60, "the link retrains", f"{_NVSENTINEL}: 5 a minute", at_least=5),
    CounterRule("port_rcv_errors", 10, "packets arrive broken", f"{_NVSENTINEL}: 10 a second", at_least=10),
    CounterRule(
        "link_downed", 0, "the link was lost", f"{_NVSENTINEL}: any is fatal; here ib.port and ib.flaps judge that"
    ),
    CounterRule("port_xmit_discards", 100, "packets to send are dropped", f"{_NVSENTINEL}: 100 a second", at_least=50),
)
_HW_COUNTERS = (
    CounterRule(
        "rnr_nak_retry_err", 0, "a receiver was never ready", f"{_NVSENTINEL}: any is fatal; a job can cause it"
    ),
    CounterRule("local_ack_timeout_err", 1, "acknowledgements do not come", f"{_NVSENTINEL}: 1 a second", at_least=10),
    CounterRule("roce_slow_restart", 10, "congestion slows RoCE", f"{_NVSENTINEL}: 10 a second", at_least=10),
)
RULES = (*_COUNTERS, *_HW_COUNTERS)
_WANTED = {
    "counters": tuple(rule.counter for rule in _COUNTERS),
    "hw_counters": tuple(rule.counter for rule in _HW_COUNTERS),
}


@dataclass(frozen=True, slots=True)
class IbCountersFacts:
    """Counters and PCI addresses by port."""

    counters: Mapping[str, Mapping[str, int]]
    pci: Mapping[str, str | None]


def gather(context: Context) -> IbCountersFacts:
    """Raises NotApplicable without such ports."""
    ports = fabric_ports(context)
    if not ports:
        raise NotApplicable("no InfiniBand or RoCE device carries jobs' traffic here")
    sysfs = context.settings.sysfs
    counters = {seen.name: port_counters(sysfs, seen.device.name, seen.port.number, _WANTED) for seen in ports}
    return IbCountersFacts(counters, {seen.name: seen.device.pci for seen in ports})


def judge(change: SampleChange) -> tuple[Result, ...]:
    """One result a port."""
    now: IbCountersFacts = change.now.facts
    before: Mapping[str, Mapping[str, int]] = change.before.facts.counters if change.before is not None else {}
    return tuple(
        counter_rules.judge(
            CHECK_ID, name, now.pci[name], RULES, counter_rules.growth(before.get(name), counters), change.seconds
        )
        if counters
        else Result.skipped(CHECK_ID, name, summary=f"{name}: its driver shows no counters", pci=now.pci[name])
        for name, counters in now.counters.items()
    )


CHECK = Check(
    id=CHECK_ID,
    title="InfiniBand and RoCE ports count no errors",
    needs=frozenset({Need.NETWORK}),
    interval_s=300,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.HUMAN,
    gather=gather,
    judge=judge,
    compares=True,
    thresholds=counter_rules.thresholds(RULES),
)
