"""A check that is one level of ``dcgmi diag``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from holdfast_checks.dcgm.command import ask, gpus
from holdfast_checks.dcgm.diag import DiagFacts, judge, parse
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, Threshold
from holdfast_checks.result import Remedy, Severity

_DAY_S = 86400.0
_DISCOVERY_S = 2.0
_NOT_FOR_THIS_NODE = ("homogeneous", "mig", "unsupported gpu", "no gpus")
"""Words of DCGM's refusal to test what it cannot test."""


def diag_check(level: int, title: str, cost: Cost, deadline_s: float, source: str) -> Check:
    """``dcgm.diagN``. ``source``: where its time limit comes from."""
    check_id = f"dcgm.diag{level}"
    return Check(
        id=check_id,
        title=title,
        needs=frozenset({Need.DCGM}),
        interval_s=_DAY_S,
        cost=cost,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        gather=partial(_gather, level, deadline_s),
        judge=partial(judge, check_id),
        thresholds=(Threshold("time limit", deadline_s, "s", source),),
        deadline_s=deadline_s,
    )


def _gather(level: int, deadline_s: float, context: Context) -> DiagFacts:
    text = ask(context, "diag", "-r", str(level), "-j", deadline_s=deadline_s - _DISCOVERY_S)
    try:
        diag = parse(text)
    except ValueError as error:
        raise NotGathered(f"dcgmi diag: {error}") from error
    if diag.runtime_error and not diag.outcomes:
        refused = any(words in diag.runtime_error.lower() for words in _NOT_FOR_THIS_NODE)
        raise (NotApplicable if refused else NotGathered)(f"dcgmi diag: {diag.runtime_error}")
    if not diag.outcomes:
        raise NotGathered("dcgmi diag: no test in the answer")
    return DiagFacts(diag, _named(context, diag.serials))


def _named(context: Context, serials: Mapping[int, str]) -> dict[int, GpuRef]:
    """Which GPU is which: by DCGM's own list, else by serial (4.x says it in the diagnostic's answer)."""
    try:
        return gpus(context)
    except (NotApplicable, NotGathered):
        return by_serial(serials, context.inventory)


def by_serial(serials: Mapping[int, str], inventory: GpuInventory) -> dict[int, GpuRef]:
    """GPUs by DCGM's number; those whose serial the inventory does not know are left out."""
    known = {ref.serial: ref for ref in inventory.gpus if ref.serial}
    return {number: known[serial] for number, serial in serials.items() if serial in known}
