"""Metrics as objects of CloudWatch's Embedded Metric Format. Pure.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html

A JSON object for each set of dimensions, with the values at its root and what they are below ``_aws``. CloudWatch knows no counters, so a
counter is written as what it grew by; of a histogram, that of its sum and its number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

NAMESPACE = "Holdfast"
MOST_METRICS = 100
"""Of one object, by the specification."""
MOST_DIMENSIONS = 30
"""Of one metric, by the specification."""
NAMED = frozenset({"node", "le"})
"""Labels whose metrics are not written: each set of dimensions is a metric that CloudWatch charges for."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One value at the moment; ``grows``: a counter's, which only its growth is written of."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """Sorted, without empty values: CloudWatch refuses those."""
    value: float
    grows: bool = False


def measured(name: str, labels: Mapping[str, str], value: float, *, grows: bool = False) -> Measured | None:
    """None: it is not written."""
    if NAMED & labels.keys() or not math.isfinite(value):
        return None
    return Measured(name, tuple(sorted((k, v) for k, v in labels.items() if v)), value, grows)


@dataclass
class Growth:
    """Remembers counters, so that each line has what they grew by."""

    _before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)

    def since_last(self, values: Iterable[Measured]) -> list[Measured]:
        """Gauges as they are; counters that were known by what they grew. One that fell was started again."""
        found: list[Measured] = []
        for value in values:
            if not value.grows:
                found.append(value)
                continue
            key = (value.name, value.labels)
            before = self._before.get(key)
            self._before[key] = value.value
            if before is not None:
                grown = value.value - before if value.value >= before else value.value
                found.append(Measured(value.name, value.labels, grown, grows=True))
        return found


def emf_documents(values: Iterable[Measured], at: datetime) -> Iterator[dict[str, object]]:
    """One object, a line of its file, for each set of dimensions and at most :data:`MOST_METRICS` values."""
    ordered = sorted(values, key=lambda v: (v.labels, v.name))
    for labels, group in groupby(ordered, key=lambda v: v.labels):
        if not 1 <= len(labels) <= MOST_DIMENSIONS:
            continue  # none: before the cluster's name is known
        mine = list(group)
        for start in range(0, len(mine), MOST_METRICS):
            yield _document(dict(labels), mine[start : start + MOST_METRICS], at)


def _document(labels: Mapping[str, str], values: Sequence[Measured], at: datetime) -> dict[str, object]:
    metrics = [{"Name": value.name, "Unit": unit_of(value.name)} for value in values]
    directive = {"Namespace": NAMESPACE, "Dimensions": [sorted(labels)], "Metrics": metrics}
    meta = {"Timestamp": int(at.timestamp() * 1000), "CloudWatchMetrics": [directive]}
    return {"_aws": meta, **labels, **{value.name: value.value for value in values}}


def unit_of(name: str) -> str:
    """CloudWatch's unit by the suffix of the name."""
    plain = name.removesuffix("_total").removesuffix("_sum")
    if name.endswith("_count"):
        return "Count"
    if plain.endswith("_seconds") or "_seconds_" in plain:
        return "Seconds"
    return "Bytes" if plain.endswith("_bytes") else "Count"
