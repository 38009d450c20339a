"""A check that is one active test: started as a child with a deadline, its figures held against the baseline."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast_checks.active import baseline as baselines
from holdfast_checks.active.report import ActiveReport, Figure
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.probes.child import CHILDREN, Hung
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Scalar, Severity

_DAY_S = 86400.0
DEADLINE_S = 1260.0
"""The longest that settings allow (600 s of test, 600 s to start), and a minute."""
_MOST_BYTES = 1024 * 1024
REHEARSALS = ("cpu", "plain")
"""Devices that stand in for a GPU: what is known of GPUs says nothing of them."""
_BOOTSTRAP = (
    "import sys,types;p=types.ModuleType('holdfast_checks');p.__path__=[sys.argv.pop(1)];sys.modules['holdfast_checks']=p;"
    "import importlib;m=importlib.import_module('holdfast_checks.active.'+sys.argv.pop(1));sys.exit(m.main(sys.argv[1:]))"
)
"""Another Python sees this package alone, and none of the packages installed next to it."""


@dataclass(frozen=True, slots=True)
class ActiveFacts:
    """One run, and what to hold it against."""

    report: ActiveReport
    references: Mapping[str, baselines.Reference]
    """By the figure's name in the baseline."""
    gpus: Mapping[str, GpuRef]
    """By UUID."""


@dataclass(frozen=True, slots=True)
class Calls:
    """What the findings of a test call for."""

    corrupt: tuple[Severity, Remedy]
    slow: tuple[Severity, Remedy]
    """Below 70 % of the reference; between that and 90 % an operator should check."""


GPU_CALLS = Calls((Severity.FATAL, Remedy.REPLACE), (Severity.DEGRADED, Remedy.REBOOT))
"""Silent corruption makes wrong results; only other hardware is known to help."""


def active_check(test: str, title: str, calls: Calls, needs: frozenset[Need] = frozenset()) -> Check:
    """``active.TEST``."""
    check_id = f"active.{test}"
    return Check(
        id=check_id,
        title=title,
        needs=needs,
        interval_s=_DAY_S,
        cost=Cost.ACTIVE,
        severity=calls.corrupt[0],
        remedy=calls.corrupt[1],
        gather=partial(gather, test),
        judge=partial(judge, check_id, calls),
        thresholds=(
            Threshold(
                "degraded below", baselines.DEGRADED_BELOW * 100, "% of the baseline", "superbench judges by deviation"
            ),
            Threshold("failed below", baselines.FAILED_BELOW * 100, "% of the baseline", "our choice"),
        ),
        deadline_s=DEADLINE_S,
    )


def gather(test: str, context: Context) -> ActiveFacts:
    """Run the test and read the baseline. Raises NotApplicable, NotGathered, OSError."""
    report = run_test(test, context)
    if report.skipped:
        raise NotApplicable(report.skipped)
    try:
        baseline = baselines.load(context.settings)
    except baselines.BadBaseline as error:
        raise NotGathered(f"the baseline cannot be read: {error}") from error
    real = report.device not in REHEARSALS
    found = {name: baseline.reference(name, floors=real) for name in baselines.by_name(report)}
    references = {name: reference for name, reference in found.items() if reference is not None}
    return ActiveFacts(report, references, {ref.uuid: ref for ref in context.inventory.gpus if ref.uuid})


def run_test(test: str, context: Context) -> ActiveReport:
    """The child's report. Raises NotGathered, OSError."""
    settings = context.settings.active
    deadline_s = settings.start_s + settings.seconds
    argv = [*child_argv(settings.python), test, "--device", settings.device, "--seconds", f"{settings.seconds:g}"]
    argv += ["--fraction", f"{settings.memory_fraction:g}", "--sysfs", str(context.settings.sysfs)]
    answer = CHILDREN.run(f"active.{test}", argv, deadline_s, max_bytes=_MOST_BYTES)
    if isinstance(answer, Hung):
        raise NotGathered(f"the test gave no answer within {deadline_s:g} s")
    if answer.status != 0:
        raise NotGathered(f"the test's process ended: {last_words(answer.err)} (exit status {answer.status})")
    try:
        return ActiveReport.load(answer.text)
    except ValueError as error:
        raise NotGathered(f"the test's process gave no report: {error}") from error


def child_argv(other: str, module: str = "run") -> list[str]:
    """How a module of this package is started as a child; ``other``: the Python that has PyTorch, empty: our own."""
    if other:
        return [other, "-c", _BOOTSTRAP, str(Path(__file__).resolve().parent.parent), module]
    return [sys.executable, "-m", f"holdfast_checks.active.{module}"]


def last_words(said: bytes) -> str:
    """A traceback says what is wrong in its last line."""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return " ".join(lines[-1].split())[:200] if lines else "no message"


def judge(check: str, calls: Calls, facts: ActiveFacts) -> tuple[Result, ...]:
    """One result a component and fault; OK, with the figures, for a component that was tested and has none."""
    report = facts.report
    results: list[Result] = []
    for corruption in report.corruptions:
        severity, remedy = calls.corrupt
        results.append(
            Result.finding(
                check,
                severity,
                remedy,
                failed=True,
                code=corruption.code,
                summary=corruption.text[:240],
                evidence={"device": report.device},
                **_who(facts, corruption.component),
            )
        )
    for name, figures in baselines.by_name(report).items():
        reference = facts.references.get(name)
        if reference is not None:
            found = (_slow(check, calls, facts, figure, reference) for figure in figures)
            results += [result for result in found if result is not None]
    bad = {result.component for result in results}
    troubled = {trouble.component: trouble.text for trouble in report.troubles}
    results += [
        Result.unknown(check, summary=text, **_who(facts, component))
        for component, text in troubled.items()
        if component not in bad
    ]
    tested = dict.fromkeys((*report.places, *(figure.component for figure in report.figures)))
    results += [_ok(check, facts, component) for component in tested if component not in bad | troubled.keys()]
    return tuple(results)


def _slow(
    check: str, calls: Calls, facts: ActiveFacts, figure: Figure, reference: baselines.Reference
) -> Result | None:
    share = baselines.share(figure.value, reference)
    if share >= baselines.DEGRADED_BELOW:
        return None
    severity, remedy = calls.slow
    failed = share < baselines.FAILED_BELOW
    if not failed:
        remedy = Remedy.HUMAN if severity is not Severity.WARNING else Remedy.NONE
    text = (
        f"{figure.name} {figure.value:.4g} {figure.unit} is {share:.0%} of {reference.value:.4g} ({reference.source})"
    )
    evidence: dict[str, Scalar] = {
        "figure": round(figure.value, 4),
        "unit": figure.unit,
        "reference": round(reference.value, 4),
        "share": round(share, 3),
        "source": reference.source,
    }
    return Result.finding(
        check,
        severity,
        remedy,
        failed=failed,
        code=f"slow_{figure.name}",
        summary=text[:240],
        evidence=evidence,
        **_who(facts, figure.component),
    )


def _ok(check: str, facts: ActiveFacts, component: str) -> Result:
    own = {
        f"{figure.name} ({figure.unit})": round(figure.value, 4)
        for figure in facts.report.figures
        if figure.component == component
    }
    summary = ", ".join(f"{name} {value:g}" for name, value in own.items())
    return Result.ok(check, summary=summary, evidence=own, **_who(facts, component))


def _who(facts: ActiveFacts, component: str) -> dict[str, Any]:
    ref = facts.gpus.get(component)
    who: dict[str, Any] = {"component": component, "sticky": True}
    if ref is not None:
        who |= {"gpu_uuid": ref.uuid, "gpu_minor": ref.minor, "pci": ref.pci}
    return who
