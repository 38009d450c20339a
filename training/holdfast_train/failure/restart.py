"""In-process restart of a group after an exception in one of its ranks: imports, memory and caches stay."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import threading
import time
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch.distributed as dist

from holdfast_train.errors import RankLost, TrainError, tell
from holdfast_train.failure.events import SignalWatch
from holdfast_train.failure.lines import Lines
from holdfast_train.failure.meeting import RankMeeting
from holdfast_train.ranks import backend
from holdfast_train.settings import TrainSettings, settings_from_env
from holdfast_train.tensors.codec import Packed, unpack

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_BASE = 1000
"""In-process restarts of the group's n-th start are numbered from 1000 × (n + 1): a launcher counts 1, 2, 3."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """A group's own state after a whole step, which no peer needs to send."""

    step: int
    state: Packed


class Restartable(Protocol):
    """Part of a session that a restart needs."""

    holders: int
    """Number of groups that have its last committed step."""

    def keep(self) -> KeptState | None:
        """The state to keep; None: it failed during a change of its model."""

    def abandon(self) -> None:
        """Leave the rendezvous, and end every collective with the other groups."""


@dataclass(slots=True)
class Era:
    """One start of a group inside its processes."""

    number: int
    incarnation: str
    watch: SignalWatch
    lines: Lines = field(default_factory=Lines)
    kept: KeptState | None = None
    session: Restartable | None = None
    off: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raises RankLost when another rank has failed."""
        if self.off.is_set():
            raise RankLost("another rank of this group failed")

    def state(self) -> Any:
        """The state kept from the start before; returned once."""
        kept, self.kept = self.kept, None
        return None if kept is None else unpack(kept.state)

    def call_off(self) -> None:
        """Called from the watching thread: the main thread may be blocked in a collective of the group."""
        self.off.set()
        self.lines.cut()


_ERA: ContextVar[Era | None] = ContextVar("era", default=None)


def current() -> Era | None:
    """The start in which the caller runs; None outside of :func:`restartable`."""
    return _ERA.get()


def goes_on_after(error: BaseException | None) -> bool:
    """Whether a group may restart after it: not after an error of this library, an exit or an interrupt."""
    return isinstance(error, RankLost) or (isinstance(error, Exception) and not isinstance(error, TrainError))


def restartable(train: Callable[[], _T], restarts: int = 3) -> _T:
    """Run ``train``, which builds its model and its Session, again after an exception in any rank of the group::

        restartable(train)

    The process group of a group with several ranks is created here for each start. The group's own state is kept if the failed
    step had not started to change it, and is otherwise taken from a peer. After the maximum number of restarts the exception is
    raised; also at once when there is no state, and for TrainError."""
    settings = settings_from_env(os.environ)
    meeting, watch = RankMeeting(settings, os.environ), SignalWatch()
    watch.install()
    try:
        return _Runs(settings, meeting, watch, restarts).run(train)
    except TrainError as error:
        tell(error)
        raise SystemExit(error.status) from error
    finally:
        watch.restore()
        meeting.close()


class _Runs:
    def __init__(self, settings: TrainSettings, meeting: RankMeeting, watch: SignalWatch, restarts: int) -> None:
        self._settings, self._meeting, self._watch, self._restarts = settings, meeting, watch, restarts
        self._start = settings.incarnation or secrets.token_hex(8)

    def run(self, train: Callable[[], _T]) -> _T:
        era = Era(0, self._start, self._watch)
        while True:
            token, running = _ERA.set(era), era
            try:
                self._open(era)
                return train()
            except Exception as error:
                if not goes_on_after(error):
                    raise
                log.warning("event=rank_failed start=%s error=%r", era.incarnation, _line(error))
                began_s, era = time.monotonic(), self._next(era, error)
                took_ms = round(1000 * (time.monotonic() - began_s))
                kept = era.kept.step if era.kept else "none"
                log.warning("event=restarting start=%s kept_step=%s took_ms=%d", era.incarnation, kept, took_ms)
            finally:
                running.over.set()
                _ERA.reset(token)

    def _open(self, era: Era) -> None:
        if self._settings.ranks == 1:
            return
        self._meeting.watch(era.number, era.call_off, era.over)
        with era.lines.noted():
            dist.init_process_group(
                backend(),
                store=self._meeting.store(era.number),
                rank=self._settings.rank,
                world_size=self._settings.ranks,
                timeout=timedelta(seconds=self._settings.collective_timeout_s),
            )

    def _next(self, era: Era, error: Exception) -> Era:
        """Raise the run's exception when it cannot continue."""
        session, number = era.session, era.number + 1
        self._meeting.call_off(era.number)
        era.over.set()
        if session is not None:
            session.abandon()
        era.lines.cut()
        if number > self._restarts:
            raise error
        kept = session.keep() if session is not None else None
        alone = session is None or session.holders < 2
        era.session = None
        del session
        traceback.clear_frames(error.__traceback__)
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()
        words = self._meeting.exchange(number, f"{kept.step if kept else ''} {int(alone)}")
        steps = {word.split(" ")[0] for word in words}
        whole = len(steps) == 1 and "" not in steps
        if not whole and any(word.endswith("1") for word in words):
            raise error  # the state is partly changed, and no other group has it
        return Era(number, self._named(number), self._watch, kept=kept if whole else None)

    def _named(self, number: int) -> str:
        """``JOB.RESTARTS`` and its n-th start by the launcher, ``JOB.RESTARTS.n``, become ``JOB.RESTARTS.m``."""
        parts = self._start.split(".")
        again = int(parts[2]) if len(parts) == 3 and parts[2].isdigit() else 0
        return ".".join([*(parts[:2] if len(parts) == 3 else parts), str(_BASE * (again + 1) + number)])


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
