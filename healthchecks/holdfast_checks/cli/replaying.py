"""``holdfast-checks replay``."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from holdfast_checks.cli.show import exit_code, line, say
from holdfast_checks.kernel.replay import replay
from holdfast_checks.result import Result


def run(args: argparse.Namespace) -> int:
    """Judge a log, print its findings with their counts, by class. Raises OSError."""
    if args.file == "-":
        sys.stdin.reconfigure(errors="replace") if hasattr(sys.stdin, "reconfigure") else None
        return _judge(sys.stdin, as_json=args.json)
    with Path(args.file).open(encoding="utf-8", errors="replace") as lines:
        return _judge(lines, as_json=args.json)


def _judge(lines: Iterable[str], *, as_json: bool) -> int:
    counts: Counter[tuple[str, str, str]] = Counter()
    worst: dict[int, Result] = {}
    for result in replay(lines):
        counts[(result.check, result.code, str(result.severity or ""))] += 1
        worst.setdefault(exit_code([result]), result)
        say(json.dumps(result.plain()) if as_json else line(result))
    if not as_json:
        say(f"{counts.total()} findings")
        for (check, code, severity), count in sorted(counts.items()):
            say(f"{count:>8}  {check} {code} ({severity})")
    return exit_code(worst.values())
