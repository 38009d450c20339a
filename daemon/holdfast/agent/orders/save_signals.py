"""Save signals that jobs registered on this node: an order may send a job only the signal that it registered."""

from __future__ import annotations

import json
import logging
import signal
import sqlite3
import threading
from collections import Counter

from holdfast.agent.sending.memory import AgentMemory
from holdfast_checks.probes import users_process

log = logging.getLogger(__name__)

SAVE_SIGNALS = frozenset({"SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT", "SIGTERM", "SIGCONT", "SIGURG", "SIGALRM"})
"""Signals that a job may register: none that ends it without a chance to save."""
USERS_OWN = frozenset({signal.SIGUSR1, signal.SIGUSR2})
"""Those that have no meaning to the kernel, Slurm or a shell."""
SAVE_SIGNAL_ENV = "HOLDFAST_SAVE_SIGNAL"
"""Set by the SPANK plug-in (``--holdfast-signal``) or by the job's script; the tasks inherit it on every node."""
_KEY = "save_signals"
_JOBS_KEPT = 512


def signal_named(name: object) -> signal.Signals | None:
    """Parse ``USR1`` or ``SIGUSR1``; None: no permitted save signal."""
    text = name.upper() if isinstance(name, str) else ""
    text = text if text.startswith("SIG") else f"SIG{text}"
    return signal.Signals[text] if text in SAVE_SIGNALS else None


def signal_in_environment(pid: int) -> signal.Signals | None:
    """The save signal in the process's initial environment; None: none, or it is gone. Raises TimeoutError where it cannot be read."""
    try:
        return signal_named(users_process.environ_of(pid).get(SAVE_SIGNAL_ENV))
    except TimeoutError:
        raise
    except OSError:
        return None


class SaveSignals:
    """Save signals by job and user, of the newest jobs. Kept in the agent's memory: a job registers once, and the agent may restart."""

    def __init__(self, memory: AgentMemory | None = None) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._kept = _loaded(memory.get(_KEY)) if memory is not None else {}

    def registered(self, job_id: int, uid: int, restarts: int, name: object) -> None:
        """Record a valid registration. Within one run, a registration without a signal removes none (as in ``store/checkpoints.py``)."""
        chosen = signal_named(name)
        with self._lock:
            before = self._kept.get((job_id, uid))
            if chosen is None and (before is None or before[0] == restarts):
                return
            after = None if chosen is None else (restarts, chosen.name)
            if after == before:
                return
            self._kept.pop((job_id, uid), None)
            if after is not None:
                self._kept[job_id, uid] = after
            while len(self._kept) > _JOBS_KEPT:
                ((most, _),) = Counter(user for _job, user in self._kept).most_common(1)
                del self._kept[next(who for who in self._kept if who[1] == most)]  # no user displaces another's jobs
            self._remember()

    def of(self, job_id: int, uid: int) -> signal.Signals | None:
        """The job's signal; None: it registered none on this node."""
        with self._lock:
            kept = self._kept.get((job_id, uid))
        return None if kept is None else signal.Signals[kept[1]]

    def _remember(self) -> None:
        if self._memory is None:
            return
        try:
            self._memory.set(_KEY, json.dumps([[*who, *what] for who, what in self._kept.items()]), durable=False)
        except sqlite3.Error as error:
            log.warning("event=save_signals_not_kept error=%r effect='forgotten when the agent ends'", str(error))


def _loaded(text: str | None) -> dict[tuple[int, int], tuple[int, str]]:
    """Load the signals. Unreadable ones are dropped: an order is then refused, and nothing is sent."""
    try:
        rows = json.loads(text or "[]")
        return {(int(job), int(uid)): (int(run), str(name)) for job, uid, run, name in rows if name in SAVE_SIGNALS}
    except (TypeError, ValueError):
        return {}
