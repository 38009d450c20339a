"""``efa.silence``: a job that was busy on the network and then silent. A sign of a hang (MegaScale, ByteRobust); recorded, never acted on.

One node cannot distinguish a hang from a long evaluation: the controller judges what all nodes of a job report. For it each result has
how long the fabric has been silent, whichever job's bytes they were."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast_checks.probes.rdma import EFA_DRIVER, devices, port_counters, port_numbers
from holdfast_checks.probes.steps import jobs_here
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, SampleChange, Threshold
from holdfast_checks.result import Remedy, Result, Scalar, Severity

CHECK_ID = "efa.silence"
BUSY_BYTES_PER_S = 100e6
BUSY_AFTER_MIN = 5.0
SILENT_BYTES_PER_S = 100e3
"""Of the whole node. What a fabric carries at rest (subnet management, keep-alives of storage) is less, a step of a job far more."""
SILENT_AFTER_MIN = 10.0
FABRIC_SILENT_S = "fabric_silent_s"
"""Evidence of every result that knows it: seconds from the last sample that saw bytes carried to this one."""
_EFA = {"hw_counters": ("tx_bytes", "rx_bytes", "rdma_read_bytes", "rdma_write_bytes")}
"""It is not documented whether the first two include the last two: a byte counted twice is still a sign of life."""
_MLX5 = {"counters": ("port_xmit_data", "port_rcv_data")}
_WORD_BYTES = 4
"""InfiniBand counts data in words of four bytes."""


@dataclass(frozen=True, slots=True)
class RdmaTraffic:
    """Traffic of all RDMA devices of the node together, and what led to it."""

    counts: Mapping[str, int]
    """Device, port and counter → bytes."""
    at_s: float
    """CLOCK_MONOTONIC."""
    jobs: frozenset[int] | None
    """None: it is not known which jobs are here."""
    busy_after_s: float
    silent_after_s: float
    rate: float | None = None
    """Bytes per second since the previous sample; None: this is the first."""
    busy_s: float = 0.0
    """For how long the same jobs were busy before they fell silent, if they did."""
    silent_since_s: float | None = None
    moved_at_s: float | None = None
    """When a sample last saw bytes carried; None: none has since these counters were first read."""


def gather(context: Context) -> RdmaTraffic:
    """Raises NotApplicable without RDMA devices that count their traffic."""
    settings = context.settings
    counts = _traffic(settings.sysfs)
    if not counts:
        raise NotApplicable("no RDMA device here counts its traffic")
    look = RdmaTraffic(
        counts,
        time.monotonic(),
        jobs_here(Path(settings.network.slurmd_spool), settings.sysfs),
        settings.network.busy_after_min * 60,
        settings.network.silent_after_min * 60,
    )
    return look if context.before is None else follow(context.before.facts, look)


def _traffic(sysfs: Path) -> dict[str, int]:
    """Bytes sent and received, by each counter that answers."""
    found: dict[str, int] = {}
    for device in devices(sysfs):
        efa = device.driver == EFA_DRIVER
        for port in (1,) if efa else port_numbers(sysfs, device.name):
            values = port_counters(sysfs, device.name, port, _EFA if efa else _MLX5)
            unit_bytes = 1 if efa else _WORD_BYTES
            found |= {f"{device.name}/{port}/{name}": unit_bytes * value for name, value in values.items()}
    return found


def follow(before: RdmaTraffic, now: RdmaTraffic) -> RdmaTraffic:
    """The sample with its rate and the history before it. Other jobs start again at zero; so does everything where a counter was set back,
    came or went: a driver that was loaded again looks like silence, or like traffic."""
    seconds = now.at_s - before.at_s
    grown = [now.counts[name] - value for name, value in before.counts.items() if name in now.counts]
    if now.counts.keys() != before.counts.keys() or min(grown) < 0 or seconds <= 0:
        return now
    rate = sum(grown) / seconds
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
    moved_at_s = now.at_s if rate >= SILENT_BYTES_PER_S else before.moved_at_s
    return replace(now, rate=rate, busy_s=busy_s, silent_since_s=silent_since_s, moved_at_s=moved_at_s)


def fabric_silent_s(results: Iterable[Result]) -> float | None:
    """How long the node's fabric had been silent when the check ran; None: not known, or nothing was carried since its first sample."""
    said = next((result.evidence.get(FABRIC_SILENT_S) for result in results), None)
    return said if isinstance(said, float) else None


def judge(change: SampleChange) -> tuple[Result, ...]:
    """One result for the node, with the rate as evidence."""
    look: RdmaTraffic = change.now.facts
    if look.rate is None:
        return (Result.ok(CHECK_ID, summary="first sample", sticky=True),)
    evidence: dict[str, Scalar] = {"bytes_per_s": round(look.rate), "counters": len(look.counts)}
    if look.moved_at_s is not None:
        evidence[FABRIC_SILENT_S] = round(look.at_s - look.moved_at_s, 1)
    silent_s = 0.0 if look.silent_since_s is None else look.at_s - look.silent_since_s
    if not look.jobs or silent_s < look.silent_after_s:
        return (Result.ok(CHECK_ID, summary=f"{look.rate / 1e6:.1f} MB/s", evidence=evidence, sticky=True),)
    jobs = ",".join(str(job) for job in sorted(look.jobs)[:8])
    return (
        Result.finding(
            CHECK_ID,
            Severity.WARNING,
            code="silent",
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
