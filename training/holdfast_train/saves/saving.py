"""Asynchronous saves of one group, one at a time: staged between two steps, written and published by a thread."""

from __future__ import annotations

import logging
import os
import shutil
import statistics
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast_checkpoint import (
    Checkpoint,
    CheckpointError,
    Layout,
    RunId,
    TakenOver,
    commit,
    durable,
    lease,
    statements,
    survey,
    survey_all,
)
from holdfast_checkpoint.base.manifest import MANIFEST, CheckpointManifest, folder_name
from holdfast_checkpoint.lease import Term
from holdfast_train.errors import TrainError
from holdfast_train.saves.background import BackgroundTask
from holdfast_train.saves.stored import Buffers, Staged, StateOrigin

log = logging.getLogger(__name__)

_RANKS_S = 600.0
"""How long rank 0 waits for the other ranks' files."""
_MEASURED = 5
_ASSUMED_COST_S = 1.0
"""Assumed cost of a save before one was measured."""


class Saves:
    """Saves of one group. A failure is logged in one line and leaves nothing behind: training continues, and a later save tries again."""

    def __init__(self, directory: str, member: str, run: RunId, rank: int, keep: int | None) -> None:
        self._directory, self._member, self._run, self._rank, self._keep = directory, member, run, rank, keep
        self._costs_s: deque[float] = deque(maxlen=_MEASURED)
        self._background, self._buffers = BackgroundTask(), Buffers()
        self.saved_step = 0
        """Step of the newest checkpoint that this process published."""
        self.took_s = 0.0
        """Time from the start of the last save until it was complete."""
        self.taken_over: str | None = None
        """Another job has taken over the directory."""
        self.news: deque[statements.StatementFields] = deque(maxlen=8)
        """Statements to send to the agent."""

    @property
    def busy(self) -> bool:
        return self._background.busy

    @property
    def cost_s(self) -> float:
        """Time that the loop loses to a save: the median of the last ones."""
        return statistics.median(self._costs_s) if self._costs_s else _ASSUMED_COST_S

    def start(self, term: Term, state: Mapping[str, Any], about: StateOrigin) -> None:
        """Copy the state; the rest runs in the background. All ranks of the group call it together."""
        self._background.join()
        began_s = time.monotonic()
        folder = Path(self._directory, folder_name(about.step, term.run))
        if (folder / MANIFEST).exists():  # of this same state; nothing is written into a complete checkpoint
            return
        try:
            staged = Staged(folder, state, about, self._rank, self._buffers)
        except (RuntimeError, OSError, AssertionError) as error:  # the last: torch's, for a group without gloo
            self._failed(about.step, folder, error)
            return
        self._costs_s.append(time.monotonic() - began_s)
        self._background.run(lambda: self._write(term, folder, staged, about, began_s))

    def wait(self) -> None:
        """Wait until the running save has ended or failed."""
        self._background.join()

    def beside(self, work: Any) -> None:
        """Queue another task that uses the disk."""
        self._background.run(work)

    def _write(self, term: Term, folder: Path, staged: Staged, about: StateOrigin, began_s: float) -> None:
        try:
            names = staged.finish()  # first: nothing is deleted while it is still written
            if self._rank == 0:
                lease.take(self._directory, term, self._member)
            files = commit.hand_in(folder, names, about.step, term.run, self._rank, about.ranks)
            durable.sync_folder(self._directory)
            if self._rank:
                return
            files.update(commit.receipts(folder, about.ranks, about.step, term.run, _RANKS_S))
            manifest = CheckpointManifest(about.step, term.run, about.ranks, files)
            commit.publish(folder, manifest, lambda: lease.check(self._directory, term, self._member))
        except TakenOver as error:
            self.taken_over = str(error)
            self._failed(about.step, folder, error)
        except (CheckpointError, TrainError, OSError) as error:
            self._failed(about.step, folder, error)
        else:
            self._published(folder, manifest, began_s)

    def _published(self, folder: Path, manifest: CheckpointManifest, began_s: float) -> None:
        self.saved_step, self.took_s = manifest.step, time.monotonic() - began_s
        self.news.append(statements.saved(manifest.step, str(folder), manifest.size_bytes, self._run))
        log.info(
            "event=checkpoint_saved step=%d bytes=%d took_ms=%d stall_ms=%d",
            manifest.step,
            manifest.size_bytes,
            round(1000 * self.took_s),
            round(1000 * self._costs_s[-1]),
        )
        if self._keep is not None:
            try:
                prune(self._directory, self._keep)
            except (CheckpointError, OSError) as error:
                log.warning("event=old_checkpoints_not_removed reason=%r", str(error))

    def _failed(self, step: int, folder: Path, error: Exception) -> None:
        log.error("event=save_failed step=%d directory=%s reason=%r", step, self._directory, str(error))
        if self._rank == 0 and not (folder / MANIFEST).exists():
            shutil.rmtree(folder, ignore_errors=True)


def prune(directory: str, keep: int) -> None:
    """Remove complete checkpoints of Holdfast's layout except the newest ones. Raises Unreadable, OSError."""
    found = survey_all(directory, digests=False).candidates
    for old in [c for c in found if c.complete and c.layout is Layout.HOLDFAST][keep:]:
        os.unlink(os.path.join(old.path, MANIFEST))  # first: a partly removed checkpoint must not look complete
        shutil.rmtree(old.path)
        log.info("event=checkpoint_removed step=%s path=%s", old.step, old.path)


def newest(directory: str) -> Checkpoint | None:
    """The newest complete checkpoint by its sizes. Raises Unreadable."""
    return survey(directory, digests=False).latest


def age_s(checkpoint: Checkpoint | None) -> float:
    """Age by this node's clock; infinite for none."""
    if checkpoint is None or checkpoint.mtime is None:
        return float("inf")
    return max(0.0, time.time() - checkpoint.mtime.timestamp())
