"""``dcgm.health``: what DCGM's health watches say, where its host engine runs and the watches are on."""

from __future__ import annotations

from functools import partial

from holdfast_checks.dcgm.command import ask, gpus
from holdfast_checks.dcgm.health import HealthFacts, judge, parse
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, Threshold
from holdfast_checks.result import Remedy, Severity

CHECK_ID = "dcgm.health"
DEADLINE_S = 30.0
_WATCHES_OFF = "Health watches not enabled"


def gather(context: Context) -> HealthFacts:
    """One answer of ``dcgmi health``."""
    deadline_s = context.settings.dcgm.health_deadline_s
    try:
        text = ask(context, "health", "-g", str(context.settings.dcgm.group), "-c", "-j", deadline_s=deadline_s)
    except NotGathered as error:
        if _WATCHES_OFF in str(error):
            raise NotApplicable("DCGM's health watches are off (dcgmi health -g 0 -s a turns them on)") from error
        raise
    try:
        overall, incidents = parse(text)
    except ValueError as error:
        raise NotGathered(f"dcgmi health: {error}") from error
    return HealthFacts(overall, incidents, gpus(context))


CHECK = Check(
    id=CHECK_ID,
    title="DCGM's health watches report no incident",
    needs=frozenset({Need.DCGM}),
    interval_s=300,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REPLACE,
    gather=gather,
    judge=partial(judge, CHECK_ID),
    thresholds=(Threshold("deadline", DEADLINE_S, "s", "DCGM#313: calls of more than 45 s on a driver in trouble"),),
    deadline_s=DEADLINE_S + 10,
)
