"""``holdfast-checks list``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys

from holdfast_checks.cli import choice, config
from holdfast_checks.cli.show import OK, described, say

_HEAD = ("ID", "NEEDS", "COST", "EVERY", "SEVERITY", "REMEDY", "MODE", "TITLE")
_WIDE = 110
"""On a narrower terminal some columns are left out; titles end at its edge."""


def run(args: argparse.Namespace) -> int:
    """Print the checks."""
    site = config.read(args.config)
    checks, lists = choice.known(site.settings), site.acting
    shown = choice.matching(checks, args.ids) if args.ids else list(checks.values())
    if args.json:
        for check in shown:
            say(json.dumps(described(check)))
        return OK
    rows: list[tuple[str, ...]] = [_HEAD]
    for check in shown:
        every = f"{check.interval_s:g} s" if check.interval_s else "event"
        mode = "acts" if check.acts(lists.act_on, lists.observe_only) else "observes"
        needs = ",".join(sorted(check.needs))
        rows.append((check.id, needs, check.cost, every, check.severity, check.remedy, mode, check.title))
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if room is not None and room < _WIDE:
        rows = [row[:1] + row[3:5] + row[6:] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()[:room])
    return OK
