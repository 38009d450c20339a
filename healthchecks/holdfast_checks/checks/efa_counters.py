"""``efa.counters``: error counters of EFA devices: drops, failures, losses.

Warnings only, as with EKS: the numbers were never validated on hardware, and an unresponsive *remote* is another node's fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_checks import counter_rules
from holdfast_checks.counter_rules import CounterRule
from holdfast_checks.probes.rdma import device_counters, efa_devices, port_counters
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, SampleChange
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "efa.counters"
_EKS = "EKS node monitoring agent: 100 a second"
_OURS = "any growth; our own choice, amzn-drivers#306 leaks completion queues to ENOMEM"
_FIRMWARE = (
    "alloc_pd_err",
    "create_qp_err",
    "create_cq_err",
    "reg_mr_err",
    "alloc_ucontext_err",
    "create_ah_err",
    "mmap_err",
)
PORT_RULES = (
    CounterRule("rx_drops", 100, "received packets are dropped", f"NVSentinel PR #1750 and {_EKS}", at_least=50),
    CounterRule(
        "unresponsive_remote_events",
        1,
        "remote devices do not answer",
        "NVSentinel PR #1750: 1 a second; EKS waits for 100",
        at_least=10,
    ),
    CounterRule(
        "impaired_remote_conn_events",
        1,
        "connections to remote devices are impaired",
        "NVSentinel PR #1750: 1 a second; EKS waits for 100",
        at_least=10,
    ),
    CounterRule("retrans_timeout_events", 100, "retransmissions time out", _EKS, at_least=50),
    CounterRule("rdma_read_wr_err", 100, "RDMA reads fail", _EKS, at_least=50),
    CounterRule("rdma_write_wr_err", 100, "RDMA writes fail", _EKS, at_least=50),
)
DEVICE_RULES = tuple(CounterRule(name, 0, f"the device refuses resources ({name})", _OURS) for name in _FIRMWARE)
RULES = (*PORT_RULES, *DEVICE_RULES)
_PORT = {"hw_counters": tuple(rule.counter for rule in PORT_RULES)}
_DEVICE = tuple(rule.counter for rule in DEVICE_RULES)


@dataclass(frozen=True, slots=True)
class EfaCountersFacts:
    """Counters and PCI addresses by device."""

    counters: Mapping[str, Mapping[str, int]]
    pci: Mapping[str, str | None]


def gather(context: Context) -> EfaCountersFacts:
    """Raises NotApplicable without EFA devices."""
    sysfs = context.settings.sysfs
    devices = efa_devices(sysfs)
    if not devices:
        raise NotApplicable("this node has no EFA device")
    counters = {
        device.name: {
            **port_counters(sysfs, device.name, 1, _PORT),
            **device_counters(sysfs, device.name, _DEVICE),
        }
        for device in devices
    }
    return EfaCountersFacts(counters, {device.name: device.pci for device in devices})


def judge(change: SampleChange) -> tuple[Result, ...]:
    """One result a device; counters that an older device or driver lacks are passed over."""
    now: EfaCountersFacts = change.now.facts
    before: Mapping[str, Mapping[str, int]] = change.before.facts.counters if change.before is not None else {}
    return tuple(
        counter_rules.judge(
            CHECK_ID, name, now.pci[name], RULES, counter_rules.growth(before.get(name), counters), change.seconds
        )
        if counters
        else Result.unknown(CHECK_ID, name, summary=f"{name}: shows no counters", pci=now.pci[name])
        for name, counters in now.counters.items()
    )


CHECK = Check(
    id=CHECK_ID,
    title="EFA devices carry their traffic",
    needs=frozenset({Need.NETWORK}),
    interval_s=30,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    gather=gather,
    judge=judge,
    compares=True,
    thresholds=counter_rules.thresholds(RULES),
)
