"""Learning what is normal, on a node that is known to be good."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.active import baseline as baselines
from holdfast_checks.active.check import run_test
from holdfast_checks.active.report import ActiveReport
from holdfast_checks.active.run import TESTS
from holdfast_checks.registry import Context, NotGathered

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Learned:
    """One run of learning."""

    path: Path
    baseline: baselines.Baseline
    """With this run."""
    not_learned: dict[str, str]
    """Test → why it taught nothing: skipped, trouble, corruption, no answer."""


def learn_baseline(context: Context, tests: Sequence[str] = TESTS) -> Learned:
    """Run the active tests once and add their figures to the baseline of this node's instance type. Call it on an idle, good node,
    :data:`~holdfast_checks.active.baseline.FEWEST_RUNS` times or more, on one node or (with one file) on several.

    Raises BadBaseline where the file is none or there is no place for it, OSError when it cannot be written."""
    known = baselines.load(context.settings)
    if baselines.path_of(context.settings) is None:
        raise baselines.BadBaseline("no folder for the baseline: set state_dir or active.baseline")
    reports: list[ActiveReport] = []
    not_learned: dict[str, str] = {}
    for test in tests:
        try:
            report = run_test(test, context)
        except (NotGathered, OSError) as error:
            not_learned[test] = str(error)
            continue
        problem = _problem(report)
        if problem:
            not_learned[test] = problem
        else:
            reports.append(report)
    learned = known.with_run(reports)
    path = baselines.save(context.settings, learned)
    log.info("event=baseline_learned type=%s figures=%d path=%s", learned.instance_type, len(learned.values), path)
    return Learned(path, learned, not_learned)


def _problem(report: ActiveReport) -> str:
    if report.skipped:
        return report.skipped
    if report.corruptions:
        return f"this node is not good: {report.corruptions[0].component}: {report.corruptions[0].text}"
    if report.troubles:
        return f"{report.troubles[0].component}: {report.troubles[0].text}"
    return ""
