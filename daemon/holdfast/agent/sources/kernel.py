"""Kernel log as a source of results: live records count, history is only recorded, the cursor survives a restart."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast import unexpected
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.kernel.devices import Devices
from holdfast_checks.kernel.repeats import Repeats
from holdfast_checks.kernel.table import judge_record
from holdfast_checks.probes.kmsg import Cursor, KmsgFollower
from holdfast_checks.probes.kmsg_record import KernelRecord
from holdfast_checks.result import Result

log = logging.getLogger(__name__)

CURSOR_KEY = "kmsg_cursor"
UNJUDGED = "kernel"
"""Part of the agent that evaluates kernel log records (:mod:`holdfast.unexpected`)."""
_HELD = 2000
"""Maximum records kept while the GPUs of the node are not known yet; the newest are kept."""
_HISTORY = 200
"""Maximum results of history that are recorded; the newest are kept."""


@dataclass(frozen=True, slots=True)
class KernelResult:
    """A result from the kernel log."""

    result: Result
    history: bool


class KernelLog:
    """Reader of the kernel log. Raises OSError when the log cannot be opened."""

    def __init__(
        self,
        path: Path,
        boot_id: str,
        cursor: str | None,
        sysfs: Path | None = None,
        *,
        off: Collection[str] = (),
    ) -> None:
        """``cursor``: value of :attr:`cursor` when its records had been processed. ``sysfs``: shows which devices exist.
        ``off``: ids of checks whose lines are ignored."""
        self._sysfs = sysfs
        self._off = frozenset(off)
        self._repeats = Repeats()
        self._follower = KmsgFollower(path, boot_id, _cursor(cursor))
        self._held: deque[KernelRecord] = deque(maxlen=_HELD)
        self._caught_up_s: float | None = None

    def fileno(self) -> int:
        return self._follower.fileno()

    @property
    def cursor(self) -> str:
        """Position in the log; save it together with the results."""
        where = self._follower.cursor
        return json.dumps([where.boot_id, where.seq])

    @property
    def settled(self) -> bool:
        """Whether no record is held back, so that the cursor may be saved."""
        return not self._held

    def read(self, gpus: Mapping[str, GpuRef] | None, now_s: float) -> list[KernelResult]:
        """Evaluate new records. ``gpus`` (PCI address → GPU) None: not known yet, records wait."""
        self._held.extend(record for record in self._follower.read_available() if record.from_kernel)
        caught_up_s, self._caught_up_s = self._caught_up_s, now_s
        if gpus is None:
            return []
        devices = Devices(gpus, self._sysfs)
        judged = (self._judged(record, devices, _placed(record, caught_up_s, now_s)) for record in self._held)
        seen = [each for each in judged if each is not None]
        self._held.clear()
        history = [each for each in seen if each.history]
        return history[-_HISTORY:] + [each for each in seen if not each.history]

    def close(self) -> None:
        self._follower.close()

    def _judged(self, record: KernelRecord, devices: Devices, monotonic_s: float) -> KernelResult | None:
        """Evaluate a record. One that fails is logged and skipped: the agent would meet it again after each restart."""
        try:
            return self._judge(record, devices, monotonic_s)
        except Exception as error:  # noqa: BLE001 - the kernel promises no form of its lines
            unexpected.failed(UNJUDGED, error, repr(record.message[:200]))
            return None

    def _judge(self, record: KernelRecord, devices: Devices, monotonic_s: float) -> KernelResult | None:
        result = judge_record(record.message, devices, monotonic_s)
        if result is None or not result.bad or result.check in self._off:
            return None
        return KernelResult(self._repeats.weigh(result), record.history)


def _placed(record: KernelRecord, caught_up_s: float | None, now_s: float) -> float:
    """The record's time on CLOCK_MONOTONIC. The kernel stamps records with another clock, which drifts from it over weeks; a record
    that was not there at the previous read cannot be older than that read, and none is from the future."""
    at_s = min(record.monotonic_s, now_s)
    return at_s if record.history or caught_up_s is None else max(at_s, min(caught_up_s, now_s))


def _cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    try:
        boot_id, seq = json.loads(text)
        return Cursor(str(boot_id), int(seq))
    except (ValueError, TypeError, OverflowError, RecursionError):
        log.warning("event=cursor_unreadable effect=log_is_history")
        return None
