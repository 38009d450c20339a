"""Pruning of the quorum service's event record."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from holdfast import unexpected
from holdfast.model.errors import OutsideError
from holdfast.quorum.state import BATCH, QuorumStore

log = logging.getLogger(__name__)

PRUNE_EVERY_S = 6 * 3600.0


async def keep_pruning(state: QuorumStore, keep_days: int) -> None:
    """Delete old records now and every six hours, until cancelled. Runs alongside the rendezvous."""
    while True:
        try:
            gone = await _prune(state, datetime.now(UTC) - timedelta(days=keep_days))
            if gone:
                log.info("event=quorum_pruned records=%d", gone)
        except OutsideError as error:
            log.warning("event=quorum_prune_failed error=%r", str(error))
        except Exception as error:  # noqa: BLE001 - the record grows until the next attempt
            unexpected.failed("prune", error)
        else:
            unexpected.passed("prune")
        await asyncio.sleep(PRUNE_EVERY_S)


async def _prune(state: QuorumStore, before: datetime) -> int:
    """Delete in small batches; the service may stop between any two. Returns the number of records."""
    gone = count = await asyncio.to_thread(state.prune, before)
    while count >= BATCH:
        count = await asyncio.to_thread(state.prune, before)
        gone += count
    return gone
