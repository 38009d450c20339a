"""The text that Prometheus scrapes, of this process and, where it leads, of the cluster.

Two head nodes are both scraped. What only the leader knows is left out elsewhere, so that no series of the cluster exists twice, and a
standby is ``up`` with ``holdfast_leader 0``. slurmctld's standby answers 303 or 503 for what it does not know: ``/metrics/cluster`` does
so (503), for a scrape through one address that is to follow the leader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from holdfast.api.counters import ApiCounters
from holdfast.api.deps import ApiDeps
from holdfast.api.figures.gauges import ClusterGauges, ProcessGauges
from holdfast.api.figures.record_totals import RecordTotals

CLUSTER = "cluster"
"""Label of every sample: one Prometheus may scrape several clusters."""


@dataclass(frozen=True, slots=True)
class Families(Collector):
    """Families of several collectors, each sample with the label of the cluster."""

    of: Sequence[Collector]
    cluster: str
    """Empty: not known yet; no label then, which Prometheus takes for the same."""

    def collect(self) -> Iterator[Metric]:
        for collector in self.of:
            for family in collector.collect():
                yield _labelled(family, self.cluster) if self.cluster else family


def _labelled(family: Metric, cluster: str) -> Metric:
    after = Metric(family.name, family.documentation, family.type, family.unit)
    after.samples = [s._replace(labels={CLUSTER: cluster, **s.labels}) for s in family.samples]
    return after


class Exposition:
    """Both texts, made at each scrape from memory; neither asks the store."""

    def __init__(self, deps: ApiDeps, counters: ApiCounters) -> None:
        own = CollectorRegistry()
        ProcessCollector(registry=own)
        self._deps = deps
        self._process: tuple[Collector, ...] = (counters.registry, ProcessGauges(deps), own)
        self._cluster: tuple[Collector, ...] = (ClusterGauges(deps), RecordTotals(deps))

    def everything(self) -> bytes:
        """Of this process; of the cluster, too, where it leads."""
        return self._text((*self._process, *(self._cluster if self._deps.leader() else ())))

    def families_of_cluster(self) -> Iterator[Metric]:
        """What only the leader knows, before it is text."""
        return Families(self._cluster, cluster_of(self._deps)).collect()

    def of_cluster(self) -> bytes:
        """What only the leader knows. To be asked of the leader alone."""
        return self._text(self._cluster)

    def _text(self, of: Iterable[Collector]) -> bytes:
        return generate_latest(Families(tuple(of), cluster_of(self._deps)))


def cluster_of(deps: ApiDeps) -> str:
    """Name of the cluster: the configured one, else Slurm's; empty: not known yet."""
    world = deps.world()
    return deps.cluster_name() or (world.view.cluster if world is not None and world.view is not None else "")
