"""Totals of the record of events, as Prometheus reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from holdfast.api.deps import ApiDeps
from holdfast.metrics.tally import BOUNDS_S, Family, Histogram, Tally
from holdfast.metrics.totals import FAMILIES


class RecordTotals(Collector):
    """Nothing as long as the record is not read: a counter that is missing is not one that fell to zero."""

    def __init__(self, deps: ApiDeps) -> None:
        self._deps = deps

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        tally = self._deps.totals()
        if tally is not None:
            yield from (_histogram(f, tally) if f.histogram else _counter(f, tally) for f in FAMILIES)


def _counter(family: Family, tally: Tally) -> Metric:
    shown = CounterMetricFamily(family.name, family.text, labels=family.labels)
    for labels, value in sorted(tally.counters.get(family.name, {}).items()):
        shown.add_metric(labels, value)
    return shown


def _histogram(family: Family, tally: Tally) -> Metric:
    shown = HistogramMetricFamily(family.name, family.text, labels=family.labels)
    found = tally.histograms.get(family.name, {})
    for labels, histogram in sorted(found.items(), key=lambda one: one[0]):
        shown.add_metric(labels, _buckets(histogram), histogram.sum_s)
    return shown


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Upper bound → how many are at most that."""
    bounds = map(floatToGoString, (*BOUNDS_S, math.inf))
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
