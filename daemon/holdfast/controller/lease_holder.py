"""Identity of a controller process in the leader's lease: a name for operators, and an id that no other process has.

The id is in the file that the process locks for life (``controller/lock``). The actor of the same machine reads there which controller
it acts for. The next controller of this machine reads there who held the lock before: those processes have ended, or it would not have
got the lock, so it takes over their lease at once. It does so under a new fence, like any other process."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from holdfast.controller.wakeup import Alone
from holdfast.ports import Lease

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
REMEMBERED = 16
"""Ended processes that the file still names: of several that died before they led, one may hold the lease."""
_MOST_BYTES = 1 << 16
"""Size limit for reading the file: the controller owns it and could put anything in its place."""
_ID = re.compile(r"\S{1,300}/[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Holder:
    """One controller process."""

    id: str
    ended: frozenset[str] = frozenset()
    """Ids of earlier processes on this machine that have ended for certain."""


@dataclass
class ObservedLease:
    """A lease as read from the store, and how long it has been unchanged by this process's monotonic clock."""

    ttl_s: float
    """A live holder renews its lease several times within this time."""
    _seen: Lease | None = None
    _since_s: float = 0.0

    def ended(self, lease: Lease | None, now_s: float) -> frozenset[str]:
        """The holder, if the lease was not renewed for longer than its duration, whatever its expiry date: a clock may have been ahead or
        set back since. ``now_s``: monotonic."""
        if lease is None or lease != self._seen:
            self._seen, self._since_s = lease, now_s
            return frozenset()
        return frozenset({lease.holder}) if now_s - self._since_s > self.ttl_s else frozenset()


def claim(lock: Alone, name: str, boot_id_path: Path = BOOT_ID) -> Holder:
    """Create an id for the process that holds this lock and write it to the lock file. ``name``: for operators.

    Entries of another boot are ignored: this machine may be a copy of one that is still running."""
    boot = _boot_id(boot_id_path)
    written, *ids = lock.read().split("\n")
    ended = [one for one in ids if _ID.fullmatch(one)][:REMEMBERED] if boot and written == boot else []
    own = f"{'-'.join(name.split()) or 'controller'}/{secrets.token_hex(6)}"
    lock.write("\n".join([boot, own, *ended]) + "\n")
    return Holder(own, frozenset(ended))


def current(path: Path) -> str | None:
    """Id of the controller that last locked this file; None: none has, or it is just being written."""
    try:
        _boot, *ids = _read(path).decode().split("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return ids[0] if ids and _ID.fullmatch(ids[0]) else None


def _read(path: Path) -> bytes:
    """Read the start of the file; does not block and follows no link. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(file, _MOST_BYTES)
    finally:
        os.close(file)


def beside(path: Path, name: str) -> str | None:
    """Lease holder id of the controller on this machine; None: none has locked the file.

    A controller of the previous release leaves the file empty and leads under its bare ``name``."""
    try:
        if path.stat().st_size == 0:
            return name
    except OSError:
        return None
    return current(path)


def latest(lock: Path, former: Path) -> Path:
    """The lock file that a controller locked last: of this release, or of the previous one, which used another folder."""
    try:
        before_ns = former.stat().st_mtime_ns
        return lock if lock.stat().st_mtime_ns >= before_ns else former
    except OSError:
        return former if former.exists() else lock


def names_a_process(holder: str) -> bool:
    """Whether the holder is a process id of this scheme; False for the bare name under which a controller of the previous release leads."""
    return _ID.fullmatch(holder) is not None


def _boot_id(path: Path) -> str:
    """Boot id of this machine; empty: not known."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
