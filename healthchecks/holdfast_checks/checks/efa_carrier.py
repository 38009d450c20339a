"""``efa.carrier``: the network device of each EFA adapter has carrier. The EFA port's own state is a constant in the driver."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.probes.netdev import NetworkDevice, link
from holdfast_checks.probes.rdma import Device, efa_devices, netdevs
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "efa.carrier"
POLLS = 3


@dataclass(frozen=True, slots=True)
class EfaCarrierFacts:
    """Each EFA device with its network devices; EFA-only adapters have none."""

    adapters: tuple[tuple[Device, tuple[NetworkDevice, ...]], ...]


def gather(context: Context) -> EfaCarrierFacts:
    """Raises NotApplicable without EFA devices."""
    sysfs = context.settings.sysfs
    devices = efa_devices(sysfs)
    if not devices:
        raise NotApplicable("this node has no EFA device")
    found = ((device, (link(sysfs, name) for name in netdevs(sysfs, device.name))) for device in devices)
    return EfaCarrierFacts(tuple((device, tuple(one for one in links if one is not None)) for device, links in found))


def judge(facts: EfaCarrierFacts) -> tuple[Result, ...]:
    """One result an adapter."""
    return tuple(_judge_one(device, links) for device, links in facts.adapters)


def _judge_one(device: Device, links: tuple[NetworkDevice, ...]) -> Result:
    wanted = [one for one in links if one.wanted]
    if not wanted:
        why = "its network device was not brought up" if links else "an EFA-only adapter has no network device"
        return Result.skipped(CHECK_ID, device.name, summary=f"{device.name}: {why}", pci=device.pci)
    lost = [one.name for one in wanted if one.carrier is False]
    if lost:
        return Result.finding(
            CHECK_ID,
            Severity.DEGRADED,
            Remedy.REBOOT,
            device.name,
            code="no_carrier",
            summary=f"{device.name}: {', '.join(lost)} has no carrier",
            evidence={"netdev": ",".join(lost)},
            pci=device.pci,
            sticky=True,
        )
    if any(one.carrier is None for one in wanted):
        return Result.unknown(CHECK_ID, device.name, summary=f"{device.name}: carrier not read", pci=device.pci)
    return Result.ok(CHECK_ID, device.name, pci=device.pci, sticky=True)


CHECK = Check(
    id=CHECK_ID,
    title="Network devices of EFA adapters have their carrier",
    needs=frozenset({Need.NETWORK}),
    interval_s=30,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    hysteresis=(POLLS, POLLS),
    thresholds=(Threshold("runs in a row", POLLS, "runs", "NVSentinel PR #1750 reads carrier; the number is ours"),),
)
