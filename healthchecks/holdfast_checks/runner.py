"""Runs one check: whatever goes wrong in it is UNKNOWN with the reason, never health and never a fault."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from holdfast_checks.registry import Check, Context, NotApplicable, NotGathered, Sample, SampleChange
from holdfast_checks.result import Result

log = logging.getLogger(__name__)


class Samples:
    """What the runs before gathered, by check: for those that compare. One for each boot of a node."""

    def __init__(self) -> None:
        self._kept: dict[str, Sample] = {}

    def before(self, check: str) -> Sample | None:
        """What the check's latest run gathered."""
        return self._kept.get(check)

    def change(self, check: str, now: Sample) -> SampleChange:
        """Keep the sample and set it against the one before it."""
        before = self._kept.get(check)
        self._kept[check] = now
        return SampleChange(before, now)


def run(check: Check, context: Context, samples: Samples | None = None) -> tuple[Result, ...]:
    """Gather and judge, here and now. For checks that cannot hang; see :func:`run_with_deadline`.

    ``samples``: without them a check that compares takes this run for its first one."""
    try:
        if not check.compares:
            return check.judge(check.gather(context))
        kept = samples or Samples()
        facts = check.gather(replace(context, before=kept.before(check.id)))
        change = kept.change(check.id, Sample(facts, time.monotonic()))
        return check.judge(change)
    except NotApplicable as reason:
        return (Result.skipped(check.id, summary=str(reason)),)
    except (NotGathered, OSError) as reason:
        return (Result.unknown(check.id, summary=_one_line(reason)),)
    except (Exception, SystemExit) as fault:  # the bug of one check must not end the others; logged and shown
        log.exception("check_broken check=%s", check.id)
        return (Result.unknown(check.id, summary=f"the check itself failed: {_one_line(fault)}"),)


def run_with_deadline(
    check: Check, context: Context, deadline_s: float | None = None, samples: Samples | None = None
) -> tuple[Result, ...]:
    """The same in a separate thread; UNKNOWN when it is not done in time (the thread is left behind)."""
    limit_s = check.deadline_s if deadline_s is None else deadline_s
    box: list[tuple[Result, ...]] = []
    thread = threading.Thread(
        target=lambda: box.append(run(check, context, samples)), daemon=True, name=f"check-{check.id}"
    )
    thread.start()
    thread.join(limit_s)
    if box:
        return box[0]
    return (Result.unknown(check.id, summary=f"no answer within {limit_s:g} s"),)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return text or type(error).__name__
