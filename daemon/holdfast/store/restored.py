"""Notes of a store that was restored from a backup, and the steps that it had planned but not started.

Between the backup and now a node may have been repaired or a job may have ended: planned steps are outdated and are dropped.
Started ones continue: each step checks the actual state outside before it is repeated. The controller handles findings
(:mod:`holdfast.decisions.nodes.restored`).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from sqlalchemy import Connection, Engine, select

from holdfast.model.actions.action import IntentState
from holdfast.ports import IntentOutcome
from holdfast.store import intents, rows
from holdfast.store import tables as t
from holdfast.store.books import PAUSED, PAUSED_AT, RESTORED, read_time
from holdfast.store.failures import translated

log = logging.getLogger(__name__)

_PAUSE = (
    "holdfast restore: the store is a backup, and what was done since it was made is not known; see `holdfast runbook store-lost`, "
    "then holdfast resume"
)
_LEFT_OUT = "planned before the store was restored: decided again if it is still called for"


def notes(at: datetime) -> dict[str, str]:
    """Notes for a store that has just been restored: it is paused, with the time of the restore."""
    return {RESTORED: at.isoformat(), PAUSED: _PAUSE, PAUSED_AT: at.isoformat()}


def mark(engine: Engine, at: datetime) -> None:
    """Write the notes to a store that another tool has restored. Raises Unavailable."""
    with translated(), engine.begin() as connection:
        rows.upsert(connection, t.notes, [{"key": key, "value": value} for key, value in notes(at).items()])


def leave_out_planned(engine: Engine) -> None:
    """Settle intents planned before the restore and not started; no-op for any other store. Raises Unavailable."""
    with translated(), engine.begin() as connection:
        note = connection.execute(select(t.notes.c.value).where(t.notes.c.key == RESTORED)).scalar()
        at = read_time(note)
        if at is not None:
            left = _leave_out(connection, at, datetime.now(UTC))
            if left:
                log.warning("event=store_restored restored_at=%s steps_left_out=%d", note, left)


def _leave_out(connection: Connection, restored_at: datetime, now: datetime) -> int:
    found = connection.execute(select(t.intents).where(~t.intents.c.settled)).mappings().all()
    planned = [i for i in map(rows.intent_of, found) if i is not None and i.state is IntentState.PLANNED]
    old = [i for i in planned if i.planned_at < restored_at]
    for intent in old:
        intents.settle(connection, intent, IntentOutcome(IntentState.WITHHELD, _LEFT_OUT), now)
    return len(old)
