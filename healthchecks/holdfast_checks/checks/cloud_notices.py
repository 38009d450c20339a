"""What EC2's instance metadata announces: an interruption of a spot machine, maintenance, a raised risk of an interruption.

The controller acts upon them in time (``[planned]``). EC2 announces an interruption two minutes ahead, and recommends polling every 5 s."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast_checks.cloud import judge_interruption, judge_maintenance, judge_rebalance
from holdfast_checks.probes.imds import ImdsDocument, look
from holdfast_checks.registry import Check, Context, Cost, Need, SampleChange
from holdfast_checks.result import Remedy, Result, Severity


def _announced(
    name: str,
    title: str,
    path: str,
    judge: Callable[[str, SampleChange], tuple[Result, ...]],
    interval_s: float,
    severity: Severity,
    remedy: Remedy,
) -> Check:
    """A check of one path of the instance metadata; not applicable where there is none."""

    def gather(context: Context) -> ImdsDocument:
        return look(context, path)

    return Check(
        id=f"cloud.{name}",
        title=title,
        needs=frozenset({Need.HOST}),
        interval_s=interval_s,
        cost=Cost.PASSIVE,
        severity=severity,
        remedy=remedy,
        gather=gather,
        judge=partial(judge, f"cloud.{name}"),
        compares=True,
        deadline_s=5.0,
        observe=False,
    )


CHECKS = (
    _announced(
        "interruption",
        "EC2 does not take this spot machine back",
        "spot/instance-action",
        judge_interruption,
        5,
        Severity.FATAL,
        Remedy.REPLACE,
    ),
    _announced(
        "maintenance",
        "EC2 has scheduled no maintenance of this machine",
        "events/maintenance/scheduled",
        judge_maintenance,
        60,
        Severity.WARNING,
        Remedy.NONE,
    ),
    _announced(
        "rebalance",
        "EC2 sees no raised risk of an interruption",
        "events/recommendations/rebalance",
        judge_rebalance,
        60,
        Severity.WARNING,
        Remedy.NONE,
    ),
)
