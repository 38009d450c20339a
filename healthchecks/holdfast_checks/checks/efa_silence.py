"""``efa.silence``: was a job busy on the network and then silent? A sign of a hang (MegaScale, ByteRobust); recorded, never acted on.

One node cannot tell a hang from a long evaluation: what a job's nodes say together is for the controller to judge."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast_checks.probes.rdma import EFA_DRIVER, devices, port_counters, ports
from holdfast_checks.probes.steps import jobs_here
from holdfast_checks.registry import Change, Check, Context, Cost, Need, NotApplicable, Threshold
from holdfast_checks.result import Remedy, Result, Scalar, Severity, Verdict

CHECK_ID = "efa.silence"
BUSY_BYTES_PER_S = 100e6
BUSY_AFTER_MIN = 5.0
SILENT_BYTES_PER_S = 100e3
SILENT_AFTER_MIN = 10.0
_EFA = {"hw_counters": ("tx_bytes", "rx_bytes")}
_MLX5 = {"counters": ("port_xmit_data", "port_rcv_data")}
_WORD_BYTES = 4
"""InfiniBand counts data in words of four bytes."""


@dataclass(frozen=True, slots=True)
class Look:
    """Traffic of all RDMA devices of the node together, and what led to it."""

    total_bytes: int
    at_s: float
    """CLOCK_MONOTONIC."""
    devices: int
    jobs: frozenset[int] | None
    """None: it is not known which jobs are here."""
    busy_after_s: float
    silent_after_s: float
    rate: float | None = None
    """Bytes per second since the look before; None: the first one."""
    busy_s: float = 0.0
    """For how long the same jobs were busy before they fell silent, if they did."""
    silent_since_s: float | None = None


def gather(context: Context) -> Look:
    """Raises NotApplicable without RDMA devices that count their traffic."""
    settings = context.settings
    counts = _traffic(settings.sysfs)
    if not counts:
        raise NotApplicable("no RDMA device here counts its traffic")
    look = Look(
        sum(counts),
        time.monotonic(),
        len(counts),
        jobs_here(Path(settings.network.slurmd_spool), settings.sysfs),
        settings.network.busy_after_min * 60,
        settings.network.silent_after_min * 60,
    )
    return look if context.before is None else follow(context.before.facts, look)


def _traffic(sysfs: Path) -> list[int]:
    """Bytes sent and received by each device that tells."""
    found: list[int] = []
    for device in devices(sysfs):
        if device.driver == EFA_DRIVER:
            values = port_counters(sysfs, device.name, 1, _EFA)
            found += [sum(values.values())] if values else []
            continue
        for port in ports(sysfs, device.name):
            values = port_counters(sysfs, device.name, port.number, _MLX5)
            found += [_WORD_BYTES * sum(values.values())] if values else []
    return found


def follow(before: Look, now: Look) -> Look:
    """The look with its rate and what the looks before it said. Other jobs, other devices or a counter set back begin anew."""
    seconds = now.at_s - before.at_s
    if now.devices != before.devices or now.total_bytes < before.total_bytes or seconds <= 0:
        return now
    rate = (now.total_bytes - before.total_bytes) / seconds
    busy_s = before.busy_s if now.jobs == before.jobs else 0.0
    silent_since_s = before.silent_since_s if now.jobs == before.jobs else None
    if rate >= BUSY_BYTES_PER_S:
        busy_s, silent_since_s = busy_s + seconds if before.silent_since_s is None else seconds, None
    elif rate >= SILENT_BYTES_PER_S:
        silent_since_s = None
    elif busy_s >= now.busy_after_s:
        silent_since_s = silent_since_s if silent_since_s is not None else before.at_s
    else:
        busy_s = 0.0
    return replace(now, rate=rate, busy_s=busy_s, silent_since_s=silent_since_s)


def judge(change: Change) -> tuple[Result, ...]:
    """One result for the node, with the rate as evidence."""
    look: Look = change.now.facts
    if look.rate is None:
        return (Result(CHECK_ID, Verdict.OK, summary="first look", sticky=True),)
    evidence: dict[str, Scalar] = {"bytes_per_s": round(look.rate), "devices": look.devices}
    silent_s = 0.0 if look.silent_since_s is None else look.at_s - look.silent_since_s
    if not look.jobs or silent_s < look.silent_after_s:
        return (Result(CHECK_ID, Verdict.OK, summary=f"{look.rate / 1e6:.1f} MB/s", evidence=evidence, sticky=True),)
    jobs = ",".join(str(job) for job in sorted(look.jobs)[:8])
    return (
        Result(
            CHECK_ID,
            Verdict.DEGRADED,
            code="silent",
            severity=Severity.WARNING,
            summary=f"job {jobs}: no RDMA traffic for {silent_s / 60:.0f} min after {look.busy_s / 60:.0f} busy ones",
            evidence={**evidence, "silent_s": round(silent_s), "busy_s": round(look.busy_s), "jobs": jobs},
            sticky=True,
        ),
    )


_HANG = "MegaScale and ByteRobust watch RDMA traffic for hangs; the numbers are our own choice"
CHECK = Check(
    id=CHECK_ID,
    title="RDMA traffic of the node's jobs (recorded)",
    needs=frozenset({Need.NETWORK}),
    interval_s=30,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    gather=gather,
    judge=judge,
    compares=True,
    thresholds=(
        Threshold("busy from", BUSY_BYTES_PER_S, "bytes per s", _HANG),
        Threshold("busy for", BUSY_AFTER_MIN, "min", f"{_HANG}; network.busy_after_min"),
        Threshold("silent below", SILENT_BYTES_PER_S, "bytes per s", _HANG),
        Threshold("silent for", SILENT_AFTER_MIN, "min", f"{_HANG}; network.silent_after_min"),
    ),
)
