"""Runs one check: whatever goes wrong in it is UNKNOWN with the reason, never health and never a fault."""

from __future__ import annotations

import logging
import threading

from holdfast_checks.registry import Check, Context, NotApplicable, NotGathered
from holdfast_checks.result import Result, Verdict

log = logging.getLogger(__name__)


def run(check: Check, context: Context) -> tuple[Result, ...]:
    """Gather and judge, here and now. For checks that cannot hang; see :func:`run_with_deadline`."""
    try:
        return check.judge(check.gather(context))
    except NotApplicable as reason:
        return (Result(check.id, Verdict.SKIPPED, summary=str(reason)),)
    except (NotGathered, OSError) as reason:
        return (Result(check.id, Verdict.UNKNOWN, summary=_one_line(reason)),)
    except Exception as fault:  # the bug of one check must not end the others; logged and shown
        log.exception("check_broken check=%s", check.id)
        return (Result(check.id, Verdict.UNKNOWN, summary=f"the check itself failed: {_one_line(fault)}"),)


def run_with_deadline(check: Check, context: Context, deadline_s: float | None = None) -> tuple[Result, ...]:
    """The same in a thread of its own; UNKNOWN when it is not done in time (the thread is left behind)."""
    limit_s = check.deadline_s if deadline_s is None else deadline_s
    box: list[tuple[Result, ...]] = []
    thread = threading.Thread(target=lambda: box.append(run(check, context)), daemon=True, name=f"check-{check.id}")
    thread.start()
    thread.join(limit_s)
    if box:
        return box[0]
    return (Result(check.id, Verdict.UNKNOWN, summary=f"no answer within {limit_s:g} s"),)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return text or type(error).__name__
