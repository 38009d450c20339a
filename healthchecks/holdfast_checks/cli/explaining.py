"""``holdfast-checks explain``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from holdfast_checks.catalog.explain import explain
from holdfast_checks.cli.choice import meant
from holdfast_checks.cli.show import OK, say
from holdfast_checks.dcgm.errors import by_number
from holdfast_checks.kernel.rule import KernelRule, LineMeaning
from holdfast_checks.kernel.table import rules
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Check

CODES = {"xid": "79", "sxid": "20034", "dcgm": "38"}
"""With an example of each."""
_PLACE = re.compile(r"\{[^{}]*\}")


def run(args: argparse.Namespace) -> int:
    """Print what is known. Raises ValueError for an unknown name."""
    for line in words(args.what, args.name):
        say(line)
    return OK


def words(what: str, name: str) -> Iterator[str]:
    """Lines on a check, a group of checks, or a code."""
    what = what.lower()
    if what in CODES:
        if not name:
            raise ValueError(f"which {what}? Such as: holdfast-checks explain {what} {CODES[what]}")
        yield from _dcgm(name) if what == "dcgm" else explain(what, name)
        return
    wanted = name if what == "check" else what
    checks = all_checks()
    if wanted in checks:
        yield from _check(checks[wanted])
        return
    group = [check for check in checks.values() if wanted and wanted in check.id.split(".")]
    if not group:
        raise ValueError(f"no check is called {wanted}{meant(wanted, checks)}")
    for number, check in enumerate(group):
        yield from [""] * bool(number)
        yield from _check(check)


def _check(check: Check) -> Iterator[str]:
    k, n = check.hysteresis
    yield f"{check.id}: {check.title}"
    yield f"  asks       {', '.join(sorted(check.needs))}; {check.cost}; {_often(check)}; at most {check.deadline_s:g} s"
    yield f"  worst      {check.severity}, remedy {check.remedy}"
    yield f"  counts     {'at once' if n == 1 else f'when {k} of {n} runs are bad'}"
    yield f"  mode       {'observes until act_on lists it' if check.observe else 'acts'}"
    for limit in check.thresholds:
        yield f"  threshold  {limit.name}: {limit.value:g} {limit.unit} ({limit.source})"
    for code in dict.fromkeys(_codes(check.id)):
        yield f"  code       {code}"


def _often(check: Check) -> str:
    return f"every {check.interval_s:g} s" if check.interval_s else "as lines come"


def _codes(check_id: str) -> Iterator[str]:
    """What the check's kernel lines are called."""
    for rule in rules():
        if rule.check == check_id:
            yield _code(rule)


def _code(rule: KernelRule) -> str:
    found = rule.finding
    if isinstance(found, LineMeaning):
        return f"{found.code}: {_PLACE.sub('…', found.summary)} ({found.severity}, {found.remedy})"
    return "others, judged by what their line says"


def _dcgm(number: str) -> Iterator[str]:
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"an error of DCGM is a number, not {number!r}")
    error = by_number(int(number))
    yield f"DCGM error {error.code}: {f'DCGM_FR_{error.name}' if error.name else 'not in the table'}"
    yield f"severity {error.severity}"
    yield f"remedy   {error.remedy}"
    yield "source   dcgm_errors.c of DCGM 4.6.0; awslabs' reading of its severities"
