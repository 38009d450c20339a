"""History for groups that catch up: a training group's state right after one step, and the gradients of the steps since.

Without a request nothing is kept and a step costs nothing extra. The state is copied during the next step's forward and backward
pass, which do not change it; gradients are kept in place, and the next step uses other buffers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from holdfast_train.tensors.codec import Packed, Readable, StateLayout, frozen, lay_out

log = logging.getLogger(__name__)

LEASE_S = 30.0
"""Without a request for this long, the group that caught up is gone."""
HISTORY_STATES = 4
"""Gradients are kept up to this multiple of the state's size: about twelve steps with AdamW."""
HISTORY_BYTES = 64 << 20
"""Or up to this, where the state is small."""
_MEMORY_SHARE = 0.5
"""Largest share of the memory free at the request for state and gradients together."""


@dataclass(frozen=True, slots=True)
class TrainingPace:
    """Progress of a group's training, as sent to its peers."""

    step: int
    """Steps committed."""
    step_s: float
    """Duration of the last step; 0: there was none."""
    idle_s: float
    """Time since it was committed."""
    snapshot: int
    """The step whose state is kept or will be, with all gradients since; -1: none."""


class History:
    """History of one group. The loop calls :meth:`before_step` and :meth:`committed`, the state server's threads everything else."""

    def __init__(
        self,
        bulk: Callable[[], object],
        size_bytes: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        free_bytes: Callable[[], int] = lambda: int(psutil.virtual_memory().available),
    ) -> None:
        """``bulk``: the state that depends only on the steps; ``size_bytes``: its size."""
        self._bulk, self._size_bytes, self._clock, self._free_bytes = bulk, size_bytes, clock, free_bytes
        self._lock = threading.Lock()
        self._step, self._quorum, self._step_s, self._at_s = 0, -1, 0.0, clock()
        self._wanted = -1
        self._snapshot: Packed | None = None
        self._deltas: dict[int, StateLayout] = {}
        self._delta_bytes, self._bound_bytes = 0, 0
        self._users, self._asked_s = 0, 0.0
        self._copier: threading.Thread | None = None
        self._held: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._alters = False
        """The optimizer changes gradients in place, as clipping does: copy them before it runs."""

    # The training loop

    def before_step(self, flats: list[torch.Tensor]) -> None:
        """Called right before the optimizer changes the state: wait until it is copied, if a peer wants it."""
        if self._copier is not None:
            self._copier.join()
            self._copier = None
        self._held, self._versions = [], []
        if self._wanted >= 0:
            self._held = [flat.clone() for flat in flats] if self._alters else flats
            self._versions = [flat._version for flat in self._held]

    def committed(self, step: int, quorum: int, options: list[dict[str, Any]]) -> bool:
        """Record this number of steps as done, the last one in this quorum and with these optimizer options. Returns whether the
        gradients are kept: then they must not be written to."""
        now_s, held = self._clock(), self._held
        self._held = []
        with self._lock:
            before, self._quorum = self._quorum, quorum
            jumped = step != self._step + 1
            self._step, self._step_s, self._at_s = step, now_s - self._at_s, now_s
            if self._wanted < 0:
                return False
            altered = [flat._version for flat in held] != self._versions
            self._alters = self._alters or altered
            if jumped or not self._users or now_s > self._asked_s + LEASE_S:
                self._drop("no peer asks any more" if not jumped else "a step came from a peer")
                return False
            try:
                if step == self._wanted:
                    self._copy(step)
                elif step > self._wanted:
                    return self._keep(step, before, options, [] if altered else held)
            except (TypeError, MemoryError, RuntimeError) as error:
                self._drop(f"{type(error).__name__}: {str(error)[:200]}")
            return False

    @property
    def quorum(self) -> int:
        """Quorum in which the last step was committed; -1: unknown."""
        return self._quorum

    def forget(self, quorum: int) -> None:
        """The state came from a peer, its last step from this quorum: the steps kept before do not lead to it."""
        with self._lock:
            self._quorum = quorum
            self._drop("state came from a peer")

    # Requests of peers

    def pace(self) -> TrainingPace:
        with self._lock:
            return self._pace()

    def arm(self, step: int) -> TrainingPace:
        """Keep the state after this step, if that is still to come and nothing else is kept; the answer says what will be."""
        with self._lock:
            self._asked_s = now_s = self._clock()
            if self._wanted >= 0 and self._whole():
                self._users += 1
            elif step > self._step:
                free_bytes, size_bytes = self._free_bytes(), self._size_bytes()
                self._drop("a new one is wanted")
                if size_bytes > _MEMORY_SHARE * free_bytes:
                    log.warning("event=catch_up_refused bytes=%d free_bytes=%d reason=memory", size_bytes, free_bytes)
                else:
                    most_bytes = max(HISTORY_STATES * size_bytes, HISTORY_BYTES)
                    self._bound_bytes = min(most_bytes, int(_MEMORY_SHARE * free_bytes) - size_bytes)
                    self._wanted, self._users, self._asked_s = step, 1, now_s
            return self._pace()

    def done(self) -> None:
        """One of the requesting peers needs no more."""
        with self._lock:
            self._users = max(0, self._users - 1)

    def find(self, kind: str, step: int) -> tuple[int, Readable | None]:
        """The ``snapshot`` after a step, or the ``delta`` from it to the next. 404: not yet; 410: not any more, or never."""
        with self._lock:
            self._asked_s = self._clock()
            there: Readable | None
            if kind == "delta":
                there = self._deltas.get(step)
                coming = self._wanted >= 0 and step >= self._step
            else:
                kept = self._wanted == step and self._whole()
                there, coming = self._snapshot if kept else None, kept
            return (200, there) if there is not None else (404 if coming else 410, None)

    # All methods below hold the lock

    def _pace(self) -> TrainingPace:
        snapshot = self._wanted if self._whole() else -1
        return TrainingPace(self._step, self._step_s, self._clock() - self._at_s, snapshot)

    def _whole(self) -> bool:
        """Whether nothing is missing since the state that is kept."""
        return self._wanted >= self._step or self._wanted in self._deltas

    def _copy(self, step: int) -> None:
        layout = lay_out({"step": step, "quorum": self._quorum, "bulk": self._bulk()})

        def copy() -> None:
            began_s = time.monotonic()
            try:
                packed = frozen(layout)
            except (MemoryError, RuntimeError) as error:
                with self._lock:
                    self._drop(f"{type(error).__name__}: {str(error)[:200]}")
                return
            with self._lock:
                if self._wanted == step:
                    self._snapshot = packed
            took_ms = round(1000 * (time.monotonic() - began_s))
            log.info("event=snapshot_taken step=%d bytes=%d took_ms=%d", step, packed.size_bytes, took_ms)

        self._copier = threading.Thread(target=copy, name="peer-snapshot", daemon=True)
        self._copier.start()

    def _keep(self, step: int, before: int, options: list[dict[str, Any]], held: list[torch.Tensor]) -> bool:
        if not held:
            self._drop("its gradients were changed in place, or it was asked for too late")
            return False
        delta = lay_out({"before": before, "quorum": self._quorum, "options": options, "flats": held})
        self._deltas[step - 1] = delta
        self._delta_bytes += delta.size_bytes
        while self._delta_bytes > self._bound_bytes and self._deltas:
            self._delta_bytes -= self._deltas.pop(min(self._deltas)).size_bytes
        if not self._whole():
            self._snapshot = None
        return True

    def _drop(self, why: str) -> None:
        if self._wanted >= 0:
            log.info("event=history_dropped step=%d steps=%d reason=%r", self._wanted, len(self._deltas), why)
        self._wanted, self._snapshot, self._users = -1, None, 0
        self._deltas, self._delta_bytes = {}, 0
