"""Apply a job's progress reports to its record: step, phase and duration of steps. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.model.agents.report import Statement
from holdfast.model.book import CheckpointRecord

STEPPING = frozenset({"", "step"})
"""Phases in which a run makes steps; a run that reports no phases has the first."""
SLOT_S = 5.0
"""Slot length: of the step times reported within one slot of the run's own time, the lowest counts."""
SLOTS = 13
"""Slots kept: the starts of the first and the last are at least a minute apart."""
LONGEST_MS = 7 * 24 * 3600 * 1000
"""Longest accepted step; a longer one is ignored."""


def told(record: CheckpointRecord, said: Statement) -> CheckpointRecord:
    """Apply a progress report with a step. A new run starts with an empty record."""
    if said.restarts != record.progress_restarts:
        record = _of_new_run(record, said.restarts)
    phase = str(said.detail.get("phase") or "")
    stepping = phase in STEPPING
    new_step = stepping and (record.step_at is None or _grew(record, said))
    step_s = (_ms(said, "step_ms") or 0) / 1000
    after = replace(
        record,
        progress_step=said.step,
        progress_at=said.at,
        progress_gap_s=_longest_gap(record, said) if stepping else record.progress_gap_s,
        quorum=_quorum(record, said),
        phase=phase,
        phase_at=record.phase_at if phase == record.phase and record.phase_at is not None else said.at,
        step_at=said.at if new_step else record.step_at,
        longest_step_s=max(step_s, record.longest_step_s or 0.0) if stepping and step_s else record.longest_step_s,
    )
    return _with_own_time(after, said) if stepping else after


def _of_new_run(record: CheckpointRecord, restarts: int) -> CheckpointRecord:
    return replace(
        record,
        progress_restarts=restarts,
        progress_at=None,
        progress_gap_s=None,
        quorum=None,
        phase="",
        phase_at=None,
        step_at=None,
        longest_step_s=None,
        own_ms=(),
        own_at=None,
    )


def _grew(record: CheckpointRecord, said: Statement) -> bool:
    return said.step is not None and (record.progress_step is None or said.step > record.progress_step)


def _longest_gap(record: CheckpointRecord, said: Statement) -> float | None:
    """Longest time between two reports of one run, both while it made steps. A pause in which other groups of an elastic job joined or
    were lost does not count: after a one-minute hang, the next one would be allowed five."""
    regrouped = record.quorum is not None and _quorum(record, said) != record.quorum
    if record.progress_at is None or record.phase not in STEPPING or regrouped:
        return record.progress_gap_s
    return max(record.progress_gap_s or 0.0, (said.at - record.progress_at).total_seconds())


def _with_own_time(record: CheckpointRecord, said: Statement) -> CheckpointRecord:
    own = _ms(said, "own_ms")
    if own is None:
        return record
    if record.own_at is not None and abs(said.at - record.own_at) < timedelta(seconds=SLOT_S):
        return replace(record, own_ms=(*record.own_ms[:-1], min(own, *record.own_ms[-1:])))
    return replace(record, own_ms=(*record.own_ms, own)[-SLOTS:], own_at=said.at)


def _quorum(record: CheckpointRecord, said: Statement) -> int | None:
    value = said.detail.get("quorum")
    return value if isinstance(value, int) and not isinstance(value, bool) else record.quorum


def _ms(said: Statement, key: str) -> int | None:
    """A plausible duration; None: none was reported."""
    value = said.detail.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LONGEST_MS:
        return None
    return value
