"""``holdfast-checks``: run and explain the checks of this node by hand, or from any monitoring (Nagios exit codes)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from holdfast_checks.catalog.explain import explain
from holdfast_checks.custom import custom_checks
from holdfast_checks.kernel.replay import replay
from holdfast_checks.probes.nvml import NvmlProbe
from holdfast_checks.registry import Check, Context, Cost, Need, all_checks
from holdfast_checks.result import Result, Severity, Verdict
from holdfast_checks.runner import run_with_deadline
from holdfast_checks.settings import Settings
from holdfast_checks.snapshot import NvmlFailure, Snapshot

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
"""Nagios exit codes."""
_WORST_LAST = (OK, UNKNOWN, WARNING, CRITICAL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"holdfast-checks: {error}\n")
        return UNKNOWN
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast-checks",
        description="Health checks of a GPU node.",
        epilog="Exit codes: 0 OK, 1 warning or degraded, 2 failed, 3 unknown.",
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    verb = verbs.add_parser("list", help="list the checks")
    verb.add_argument("--json", action="store_true")
    verb.set_defaults(run=_list)
    verb = verbs.add_parser("run", help="run checks once, here and now")
    verb.add_argument("ids", nargs="*", metavar="ID", help="checks to run (default: all but the active ones)")
    verb.add_argument("--json", action="store_true", help="one JSON object a result and line")
    verb.add_argument("-v", "--verbose", action="store_true", help="show what is OK too")
    verb.add_argument("--expected-gpus", type=int, metavar="N")
    verb.add_argument("--nvml-deadline-s", type=float, default=20.0, metavar="S")
    verb.add_argument("--slurmd-pid-file", type=Path, metavar="FILE")
    verb.add_argument("--node", default="", help="Slurm name of this node, where several run on one machine")
    verb.set_defaults(run=_run)
    verb = verbs.add_parser("explain", help="say what a code or a check means")
    verb.add_argument("what", choices=("xid", "sxid", "check"))
    verb.add_argument("name", metavar="NAME", help="a number, or a check's id")
    verb.set_defaults(run=_explain)
    verb = verbs.add_parser("replay", help="judge a kernel log (dmesg, journal, syslog or /dev/kmsg text)")
    verb.add_argument("file", help="- for standard input")
    verb.add_argument("--json", action="store_true")
    verb.set_defaults(run=_replay)
    return parser


def _list(args: argparse.Namespace) -> int:
    for check in all_checks().values():
        if args.json:
            _say(json.dumps(_described(check)))
        else:
            interval = f"{check.interval_s:g} s" if check.interval_s else "event"
            _say(f"{check.id:<20} {interval:>6}  {check.severity:<9} {check.remedy:<10} {check.title}")
    return OK


def _run(args: argparse.Namespace) -> int:
    checks = _chosen(args.ids)
    settings = Settings(expected_gpus=args.expected_gpus, slurmd_pid_file=args.slurmd_pid_file, slurmd_node=args.node)
    context = Context(settings, nvml=_ask_nvml(args.nvml_deadline_s)) if _need_nvml(checks) else Context(settings)
    results = [result for check in checks for result in run_with_deadline(check, context)]
    _show(results, as_json=args.json, verbose=args.verbose)
    return exit_code(results)


def _chosen(ids: Sequence[str]) -> list[Check]:
    known = {**all_checks(), **custom_checks(Settings())}
    unknown = sorted(set(ids) - known.keys())
    if unknown:
        raise ValueError(f"no check is called {', '.join(unknown)}; there are: {', '.join(known)}")
    if ids:
        return [known[id_] for id_ in ids]
    return [check for check in known.values() if check.cost is not Cost.ACTIVE]  # those want an idle node, and minutes


def _need_nvml(checks: Iterable[Check]) -> bool:
    return any(Need.NVML in check.needs for check in checks)


def _ask_nvml(deadline_s: float) -> Snapshot | NvmlFailure:
    probe = NvmlProbe(deadline_s)
    try:
        return probe.request()
    finally:
        probe.close()


def _explain(args: argparse.Namespace) -> int:
    if args.what == "check":
        check = _chosen([args.name])[0]
        for key, value in _described(check).items():
            _say(f"{key:<12} {value}")
        return OK
    for line in explain(args.what, args.name):
        _say(line)
    return OK


def _replay(args: argparse.Namespace) -> int:
    if args.file == "-":
        results = list(replay(sys.stdin))
    else:
        with Path(args.file).open(encoding="utf-8", errors="replace") as lines:
            results = list(replay(lines))
    _show(results, as_json=args.json, verbose=True)
    return exit_code(results)


def exit_code(results: Iterable[Result]) -> int:
    """The worst of the results as a Nagios exit code; UNKNOWN is worse than OK and milder than a finding."""
    return max((_code(result) for result in results), key=_WORST_LAST.index, default=OK)


def _code(result: Result) -> int:
    if result.bad:
        return CRITICAL if result.verdict is Verdict.FAILED or result.severity is Severity.FATAL else WARNING
    return UNKNOWN if result.verdict is Verdict.UNKNOWN else OK


def _show(results: Sequence[Result], *, as_json: bool, verbose: bool) -> None:
    for result in results:
        if as_json:
            _say(json.dumps(asdict(result)))
        elif verbose or result.bad or result.verdict is Verdict.UNKNOWN:
            remedy = f" [{result.severity}, {result.remedy}]" if result.bad else ""
            _say(f"{result.verdict.upper():<8} {result.check:<20} {result.component}: {result.summary}{remedy}")
    if not as_json:
        bad = sum(result.bad for result in results)
        unknown = sum(result.verdict is Verdict.UNKNOWN for result in results)
        _say(f"{len(results)} results, {bad} findings, {unknown} unknown")


def _described(check: Check) -> dict[str, object]:
    return {
        "id": check.id,
        "title": check.title,
        "needs": sorted(need.value for need in check.needs),
        "interval_s": check.interval_s,
        "cost": check.cost,
        "severity": check.severity,
        "remedy": check.remedy,
        "hysteresis": list(check.hysteresis),
        "thresholds": [asdict(threshold) for threshold in check.thresholds],
    }


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
