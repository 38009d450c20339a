"""Figures of a bench as text: percentiles by nearest rank, goals, and the machine that they were seen on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from holdfast.metrics.timings import MIN_SAMPLES_FOR_PERCENTILES, spread

TOLERANCE_SHARE = 0.01
TOLERANCE_S = 0.05
"""Accounting is right within max(1 %, 50 ms) of the truth (design, section 10)."""


def heading(text: str) -> None:
    """A title with the time, the machine and what else it was doing."""
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?")
    print(f"\n# {text}")
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores ({model}), load {load()}", flush=True)


def load() -> str:
    """The machine's load averages over 1, 5 and 15 minutes."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def durations(title: str, rows: Mapping[str, Sequence[float]], goals: Mapping[str, float] | None = None) -> None:
    """A table of durations in seconds, one row each. ``goals``: row → longest P90 that meets the goal."""
    print(f"\n{title}")
    print(f"  {'s':<44} {'n':>4} {'P50':>7} {'P90':>7} {'P99':>7} {'max':>7}")
    for name, values in rows.items():
        _duration_row(name, values, (goals or {}).get(name))


def _duration_row(name: str, values: Sequence[float], goal_s: float | None) -> None:
    seen = spread(values)
    if seen is None:
        print(f"  {name:<44}    0       –")
        return
    p90, p99 = (f"{value:7.3f}" if value is not None else "      –" for value in (seen.p90, seen.p99))
    print(f"  {name:<44} {seen.count:>4} {seen.p50:7.3f} {p90} {p99} {seen.max:7.3f}{_verdict(seen.p90, goal_s)}")
    if seen.p90 is None:
        print(f"      all: {' '.join(f'{value:.2f}' for value in seen.values)}")


def _verdict(p90: float | None, goal_s: float | None) -> str:
    if goal_s is None:
        return ""
    if p90 is None:
        return f"  goal P90 <= {goal_s:g}: needs {MIN_SAMPLES_FOR_PERCENTILES} samples"
    return f"  goal P90 <= {goal_s:g}: {'met' if p90 <= goal_s else 'MISSED'}"


def errors(title: str, rows: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Recorded against true durations (pairs, in seconds): signed error and the share within the tolerance."""
    print(f"\n{title}")
    print(f"  {'s':<44} {'n':>4} {'median':>8} {'worst':>8}   within max(1 %, 50 ms)")
    for name, pairs in rows.items():
        if not pairs:
            print(f"  {name:<44}    0        –")
            continue
        off = sorted(recorded - true for recorded, true in pairs)
        good = sum(abs(r - t) <= max(TOLERANCE_SHARE * t, TOLERANCE_S) for r, t in pairs)
        worst = max(off, key=abs)
        print(f"  {name:<44} {len(off):>4} {off[len(off) // 2]:+8.3f} {worst:+8.3f}   {100 * good / len(off):.0f} %")


def percentile(values: Iterable[float], share: float) -> float:
    """By nearest rank; 0 for no values."""
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * round(share * 1000) // 1000) - 1, 0)] if ordered else 0.0


def goal(text: str, *, met: bool) -> None:
    print(f"  goal {text}: {'met' if met else 'MISSED'}", flush=True)


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
