"""Sums and histograms with labels, bounded in number, that can be written and read again. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Labels = tuple[str, ...]
"""Values of a family's labels, in its order."""

BOUNDS_S = (
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
    *(1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0, 86_400.0),
)
"""Upper bounds of the buckets in seconds: from the detection of a fault (tenths of a second) to a machine that is a day away."""
MOST_SERIES = 2_000
"""Label sets of a family: reports of a fleet of 4,096 nodes fill fewer in a year (docs/metrics.md)."""
MOST_CHARACTERS = 100
"""Of a label's value: some come from agents."""
OTHER = "other"
"""In place of the values of a family that has :data:`MOST_SERIES` label sets already."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, help text and labels. ``histogram``: of durations in seconds; else a counter."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    histogram: bool = False


@dataclass(slots=True)
class Histogram:
    """Durations by bucket."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    """Not cumulative; the last one is that above all bounds."""
    sum_s: float = 0.0

    def observe(self, duration_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s


@dataclass(slots=True)
class Tally:
    """Values of many families by name."""

    counters: dict[str, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, Histogram]] = field(default_factory=dict)

    def add(self, family: Family, labels: Sequence[str], amount: float = 1.0) -> None:
        """Count up. A negative amount, which no counter may take, is nothing."""
        values = self.counters.setdefault(family.name, {})
        key = _bounded(values, labels)
        values[key] = values.get(key, 0.0) + max(amount, 0.0)

    def observe(self, family: Family, labels: Sequence[str], duration_s: float) -> None:
        found = self.histograms.setdefault(family.name, {})
        found.setdefault(_bounded(found, labels), Histogram()).observe(duration_s)

    def copy(self) -> Tally:
        """To be shown while this one counts on."""
        histograms = {
            name: {labels: Histogram(list(h.counts), h.sum_s) for labels, h in found.items()}
            for name, found in self.histograms.items()
        }
        return Tally({name: dict(values) for name, values in self.counters.items()}, histograms)

    def dump(self) -> dict[str, Any]:
        """As JSON's own types."""
        return {
            "bounds_s": list(BOUNDS_S),
            "counters": {
                name: [[*key, value] for key, value in found.items()] for name, found in self.counters.items()
            },
            "histograms": {
                name: [[*key, h.sum_s, h.counts] for key, h in found.items()] for name, found in self.histograms.items()
            },
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Tally:
        """What :meth:`dump` wrote. Raises ValueError, KeyError or TypeError for anything else, also of a release with other buckets."""
        if document["bounds_s"] != list(BOUNDS_S):
            raise ValueError("written with other buckets")
        counters = {
            name: {_labels(row[:-1]): float(row[-1]) for row in rows} for name, rows in document["counters"].items()
        }
        histograms = {
            name: {_labels(row[:-2]): Histogram(_counts(row[-1]), float(row[-2])) for row in rows}
            for name, rows in document["histograms"].items()
        }
        return cls(counters, histograms)


def _bounded(known: Mapping[Labels, object], labels: Sequence[str]) -> Labels:
    key = tuple(value[:MOST_CHARACTERS] for value in labels)
    return key if key in known or len(known) < MOST_SERIES else (OTHER,) * len(key)


def _labels(row: Sequence[Any]) -> Labels:
    return tuple(str(value) for value in row)


def _counts(row: Sequence[Any]) -> list[int]:
    if len(row) != len(BOUNDS_S) + 1:
        raise ValueError("written with other buckets")
    return [int(count) for count in row]
