"""The reference page of all checks and Xids, written from the code: ``python -m holdfast_checks.reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from holdfast_checks.catalog.xids import CLASS_TEXT, XidClass, recovery_action, table
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Check

_HEAD = """\
# Checks

<!-- Written by docs/generate.py from the code; do not edit. -->

This page is written from the code (`./dev docs`); change the code, not the page. The reasons for the checks' verdicts: [Checks by
domain](../checks.md). To run them by hand: [holdfast-checks](../holdfast-checks.md). Compared with other tools: [coverage](coverage.md).

A check gathers facts, then judges them. Severity says how soon to act: *fatal* now, *degraded* when the node's jobs
end, *warning* never. The remedy is what the evidence calls for. What cannot be asked is *unknown*: neither health nor a
fault. A check that *observes* reports its findings as warnings until the site lists it under `act_on`. *Passive* checks read what is there,
*light* ones do a little work, *active* ones need an idle node. The times are defaults
(`[intervals]` changes them); *event*: judged as lines come.
"""


def render() -> str:
    """The page as Markdown."""
    return "\n".join([_HEAD, *_checks(), *_recovery_actions(), *_xids()]) + "\n"


def _checks() -> Iterator[str]:
    yield "| check | what | needs | every | deadline | cost | worst severity | its remedy | counts when | mode |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    yield from (_check_row(check) for check in all_checks().values())
    yield "\n## Thresholds\n\n| check | what | value | source |\n|---|---|---|---|"
    for check in all_checks().values():
        for limit in check.thresholds:
            yield _row(f"`{check.id}`", limit.name, f"{limit.value:g} {limit.unit}", limit.source)


def _check_row(check: Check) -> str:
    every = f"{check.interval_s:g} s" if check.interval_s else "event"
    k, n = check.hysteresis
    return _row(
        f"`{check.id}`",
        check.title,
        ", ".join(sorted(check.needs)),
        every,
        f"{check.deadline_s:g} s",
        check.cost,
        check.severity,
        f"`{check.remedy}`",
        "at once" if n == 1 else f"{k} of {n} runs",
        "observes" if check.observe else "acts",
    )


def _recovery_actions() -> Iterator[str]:
    yield "\n## Recovery actions (NVML field 230, Xid 154)\n\nThe number decides, never its text.\n"
    yield "| number | the driver asks to | severity | remedy |\n|---|---|---|---|"
    for number in range(8):
        action = recovery_action(number)
        yield _row(f"{number:#x}", action.meaning, action.severity or "-", f"`{action.remedy}`")


def _xids() -> Iterator[str]:
    yield "\n## Xids\n\nA code that is not here is a warning and is never acted upon. Classes:\n"
    yield from (f"- *{kind}*: {CLASS_TEXT[kind]}" for kind in XidClass)
    yield "\n| Xid | meaning | class | severity | remedy | note |\n|---|---|---|---|---|---|"
    for xid in table().values():
        yield _row(str(xid.code), xid.meaning, xid.kind, xid.severity, f"`{xid.remedy}`", xid.note)


def _row(*cells: str) -> str:
    return f"| {' | '.join(_escaped(cells))} |"


def _escaped(cells: Iterable[str]) -> Iterator[str]:
    return (cell.replace("|", "\\|") for cell in cells)


if __name__ == "__main__":
    sys.stdout.write(render())
