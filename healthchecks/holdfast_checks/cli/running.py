"""``holdfast-checks run``."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast_checks.cli import choice, config, keep
from holdfast_checks.cli.config import SiteChecks
from holdfast_checks.cli.show import OK, UNKNOWN, line, say, worst
from holdfast_checks.cli.weighing import Counted, Scales, weigh
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.probes.nvml import NvmlProbe
from holdfast_checks.registry import Check, Context, Cost, Need
from holdfast_checks.result import Result
from holdfast_checks.runner import Samples, run_with_deadline
from holdfast_checks.seen_right import SeenRight, places_of
from holdfast_checks.settings import CheckSettings
from holdfast_checks.snapshot import NvmlFailure, Snapshot

DEADLINE_S = 25.0
"""Of a whole run without active checks: slurmd ends a HealthCheckProgram after 60 s, and NHC gives itself 30."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LONGEST_REASON = 200
_LEAST_S = 0.01


def run(args: argparse.Namespace) -> int:
    """Run the checks, print what they found; a Nagios exit code. Raises OSError, ValueError."""
    site = _site(args)
    checks = choice.chosen(choice.known(site.settings), args.ids, active=args.active, disabled=site.off)
    active = [check.id for check in checks if check.cost is Cost.ACTIVE]
    if active and not args.json and not args.reason:
        say(f"these need an idle node, and disturb every job on it: {', '.join(active)}")
    run_s = args.deadline if args.deadline is not None else (0.0 if active else DEADLINE_S)
    boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
    kept = keep.load(args.samples, boot_id) if args.samples else keep.KeptRuns()
    seen_right = SeenRight(places_of({check.id: check for check in checks}, site.settings))
    seen_right.load(kept.seen_right)
    scales = Scales(site.acting.act_on, site.acting.observe_only, seen_right)
    found: list[Counted] = []
    for check, results in _results(checks, site, kept.samples, run_s):
        found += weigh(check, results, scales, kept)
    if args.samples:
        keep.save(args.samples, boot_id, kept, [check.id for check in checks])
    _show(found, as_json=args.json, as_reason=args.reason, verbose=args.verbose)
    return worst(weighed.code for weighed in found)


def _site(args: argparse.Namespace) -> SiteChecks:
    site = config.read(args.config)
    given = {
        "expected_gpus": args.expected_gpus,
        "slurmd_pid_file": args.slurmd_pid_file,
        "slurmd_node": args.node,
    }
    settings = replace(site.settings, **{name: value for name, value in given.items() if value is not None})
    deadline_s = site.nvml_deadline_s if args.nvml_deadline_s is None else args.nvml_deadline_s
    return replace(site, settings=settings, nvml_deadline_s=deadline_s)


def _results(
    checks: Sequence[Check], site: SiteChecks, samples: Samples, run_s: float
) -> Iterator[tuple[Check, tuple[Result, ...]]]:
    """NVML is asked first and judged last: its driver may take a while. Active checks come after all others."""
    ends_s = time.monotonic() + run_s if run_s > 0 else None
    asked = _Nvml(site, ends_s) if any(Need.NVML in check.needs for check in checks) else None
    others = Context(site.settings)
    once = _Once()
    for check in sorted(checks, key=lambda check: (check.cost is Cost.ACTIVE, Need.NVML in check.needs)):
        with_nvml = asked is not None and (Need.NVML in check.needs or check.cost is Cost.ACTIVE)
        context = asked.context(site.settings) if asked is not None and with_nvml else others
        yield check, _run(once.shared(check), context, samples, ends_s)


def _run(check: Check, context: Context, samples: Samples, ends_s: float | None) -> tuple[Result, ...]:
    if ends_s is None:
        return run_with_deadline(check, context, samples=samples)
    left_s = ends_s - time.monotonic()
    if left_s < _LEAST_S:
        return (Result.unknown(check.id, summary="the time for this run was over"),)
    return run_with_deadline(check, context, min(check.deadline_s, round(left_s, 2)), samples)


class _Once:
    """Reads the kernel log once for all checks that judge it alike."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Any] = {}

    def shared(self, check: Check) -> Check:
        """The check, given what another one has gathered in the same way."""
        return replace(check, gather=partial(self._gather, check)) if Need.KMSG in check.needs else check

    def _gather(self, check: Check, context: Context) -> Any:
        key = (id(check.gather), id(context))
        if key not in self._known:
            self._known[key] = check.gather(context)
        return self._known[key]


class _Nvml:
    """One query of NVML, in parallel to the other checks."""

    def __init__(self, site: SiteChecks, ends_s: float | None) -> None:
        left_s = site.nvml_deadline_s if ends_s is None else min(site.nvml_deadline_s, ends_s - time.monotonic())
        library = Path(site.nvml_library) if site.nvml_library else None
        self._probe = NvmlProbe(max(round(left_s, 2), _LEAST_S), library, site.nvml_env, details_age_s=0.0)
        self._answer: Snapshot | NvmlFailure = NvmlFailure("NVML was not asked in time")
        self._context: Context | None = None
        self._thread = threading.Thread(target=self._ask, name="nvml", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self._answer = self._probe.request()
        finally:
            self._probe.close()

    def context(self, settings: CheckSettings) -> Context:
        """With the answer, waited for: the probe's deadline ends it."""
        self._thread.join()
        if self._context is None:
            inventory = GpuInventory()
            if isinstance(self._answer, Snapshot):
                inventory = inventory.learn(self._answer)
            self._context = Context(settings, self._answer, inventory)
        return self._context


def _show(found: Sequence[Counted], *, as_json: bool, as_reason: bool, verbose: bool) -> None:
    if as_json:
        for each in found:
            say(json.dumps({**each.result.plain(), "counts": each.code, "note": each.note}))
    elif as_reason:
        _show_reason(found)
    else:
        _show_lines(found, verbose=verbose)


def _show_reason(found: Sequence[Counted]) -> None:
    calling = [each.result for each in found if each.calls_for_service]
    if calling:
        first = min(calling, key=lambda result: str(result.severity) != "fatal")
        more = f" (and {len(calling) - 1} more)" if len(calling) > 1 else ""
        text = f"{first.check} {first.code} {first.component}: {first.summary}"
        plain = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
        say(plain.replace('"', "'")[:_LONGEST_REASON] + more)


def _show_lines(found: Sequence[Counted], *, verbose: bool) -> None:
    bad = [each for each in found if each.result.bad]
    unknown = [each for each in found if each.code == UNKNOWN]
    say(f"{len(found)} results, {len(bad)} findings, {len(unknown)} unknown")
    worst_first = sorted(found, key=lambda each: -(each.code if each.code != UNKNOWN else 0.5))
    for each in worst_first:
        if verbose or each.result.bad or each.code != OK:
            say(line(each.result, each.note))
