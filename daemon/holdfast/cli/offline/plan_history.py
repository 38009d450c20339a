"""Failure rate and times of this cluster, from the controller's record, for ``holdfast plan --from-history``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.model.errors import Usage
from holdfast.planning import failure_rate
from holdfast.planning.failure_rate import RateEstimate
from holdfast.planning.plan_table import Cell, PlanTable
from holdfast.planning.run_cost import Downtime

if TYPE_CHECKING:
    from holdfast.api.answers.shapes import TimingsShape

_SIGMAS = 1.96
_PHASE_OUT = "drain"


@dataclass(frozen=True, slots=True)
class OwnHistory:
    """What the record says."""

    nodes: int
    gpus_per_node: int
    rate: RateEstimate
    detect_s: tuple[float, ...]
    running_s: tuple[float, ...]
    """Fault → job RUNNING again."""
    resumed_s: tuple[float, ...]
    """Fault → training again, as the jobs report."""
    return_s: tuple[float, ...]
    """Node out → back in service."""

    def downtime(self, given: Downtime) -> Downtime:
        """Measured where there is a measurement, else what was given."""
        detect = fmean(self.detect_s) / 60 if self.detect_s else given.detect_min
        running = fmean(self.running_s) / 60 if self.running_s else detect + given.replace_min
        resumed = fmean(self.resumed_s) / 60 if self.resumed_s else running + given.resume_min
        return replace(
            given, detect_min=detect, replace_min=max(running - detect, 0.0), resume_min=max(resumed - running, 0.0)
        )

    def repair_h(self, given: float) -> float:
        return fmean(self.return_s) / 3600 if self.return_s else given

    def table(self) -> PlanTable:
        named = (
            ("fault to detected", self.detect_s),
            ("fault to running again", self.running_s),
            ("fault to training again", self.resumed_s),
            ("node out to back in service", self.return_s),
        )
        rows = tuple((name, *_mean_minutes(values)) for name, values in named)
        columns = ("WHAT", "N", "MEAN, MIN", "95 % FROM", "TO")
        notes = ("mean ± 1.96 standard errors; with few samples and long tails it is wider than that",)
        return PlanTable("own_times", "Times measured on this cluster", columns, rows, notes)


def _mean_minutes(values: Sequence[float]) -> tuple[Cell, ...]:
    if len(values) < 2:
        return (len(values), values[0] / 60 if values else None, None, None)
    mean, margin = fmean(values) / 60, _SIGMAS * stdev(values) / len(values) ** 0.5 / 60
    return (len(values), mean, max(mean - margin, 0.0), mean + margin)


def own_history(url: str | None, days: float) -> OwnHistory:
    """Of the last ``days``, or since the record starts where that is later. Raises Usage where there is no record to go by."""
    from holdfast.api.answers.node_shapes import ClusterShape  # noqa: PLC0415
    from holdfast.api.answers.shapes import MetricsShape  # noqa: PLC0415
    from holdfast.api.shown.history_shapes import NodeHistoryShape  # noqa: PLC0415

    client = ApiClient(url)
    nodes = read(ClusterShape, client.get("/v1/nodes")).nodes
    counted = [n for n in nodes if n.gpus] or nodes
    if not counted:
        raise Usage("the controller shows no node: give --rate, or --failures and --node-days")
    record = read(NodeHistoryShape, client.get(f"/v1/nodes/{quote(counted[0].name, safe='')}/history"))
    window = read(MetricsShape, client.get("/v1/metrics", window_s=days * 86_400, each="true"))
    since = max(window.since, record.recorded_since or window.since)
    hours = (window.until - since).total_seconds() / 3600
    if hours <= 0:
        raise Usage("the controller's record has only just begun: give --rate, or --failures and --node-days")
    counting = [each for each in window.each if _took_a_node(each)]
    return OwnHistory(
        nodes=len(counted),
        gpus_per_node=max(n.gpus or 0 for n in counted),
        rate=failure_rate.estimate(len(counting), len(counted) * hours),
        detect_s=_known(each.time_to_detect_s for each in counting),
        running_s=_known(each.time_to_running_s for each in counting),
        resumed_s=_known(each.time_to_resumed_s for each in counting),
        return_s=_known(each.time_to_return_s for each in counting),
    )


def _took_a_node(each: TimingsShape) -> bool:
    """Whether it would have stopped a job on all nodes: it stopped one, or took a node out."""
    return bool(each.jobs) or each.time_to_return_s is not None or _PHASE_OUT in each.phases


def _known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(v for v in values if v is not None)
