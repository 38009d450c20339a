"""Who a controller process is in the leader's lease: a name for people, and an id that no other process has.

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
"""Ended processes that the file still names: of several that died before they led, one may be the lease's holder."""
_MOST_BYTES = 1 << 16
"""Of the file, which is the controller's: it may put anything in its place."""
_ID = re.compile(r"\S{1,300}/[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Holder:
    """One controller process."""

    id: str
    ended: frozenset[str] = frozenset()
    """Ids of earlier processes on this machine that have ended for certain."""


@dataclass
class Standing:
    """A lease as it stands in the store, and since when by this process's monotonic clock."""

    ttl_s: float
    """A holder that lives renews its lease several times in this time."""
    _seen: Lease | None = None
    _since_s: float = 0.0

    def ended(self, lease: Lease | None, now_s: float) -> frozenset[str]:
        """Its holder, if the lease was not renewed for longer than it lasts, whatever its date: a clock was ahead, or was set back since.
        ``now_s``: monotonic."""
        if lease is None or lease != self._seen:
            self._seen, self._since_s = lease, now_s
            return frozenset()
        return frozenset({lease.holder}) if now_s - self._since_s > self.ttl_s else frozenset()


def claim(lock: Alone, name: str, boot_id_path: Path = BOOT_ID) -> Holder:
    """A new id for the process that holds this lock, put down in its file. ``name``: for people.

    What the file says of another boot counts for nothing: the machine may be a copy of one that lives."""
    boot = _boot_id(boot_id_path)
    written, *ids = lock.read().split("\n")
    ended = [one for one in ids if _ID.fullmatch(one)][:REMEMBERED] if boot and written == boot else []
    own = f"{'-'.join(name.split()) or 'controller'}/{secrets.token_hex(6)}"
    lock.write("\n".join([boot, own, *ended]) + "\n")
    return Holder(own, frozenset(ended))


def current(path: Path) -> str | None:
    """Id of the controller that locked this file last; None: none has, or it is just being written."""
    try:
        _boot, *ids = _read(path).decode().split("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return ids[0] if ids and _ID.fullmatch(ids[0]) else None


def _read(path: Path) -> bytes:
    """Its begin; waits for nobody, and follows no link. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(file, _MOST_BYTES)
    finally:
        os.close(file)


def beside(path: Path, name: str) -> str | None:
    """The holder that the lease names while the controller of this machine leads; None: none has locked the file.

    A controller of the release before leaves the file empty and leads under its bare ``name``."""
    try:
        if path.stat().st_size == 0:
            return name
    except OSError:
        return None
    return current(path)


def latest(lock: Path, former: Path) -> Path:
    """The file that a controller locked last: of this release, or of the one before, which had another folder."""
    try:
        before_ns = former.stat().st_mtime_ns
        return lock if lock.stat().st_mtime_ns >= before_ns else former
    except OSError:
        return former if former.exists() else lock


def names_a_process(holder: str) -> bool:
    """False for the bare name under which a controller of the release before leads."""
    return _ID.fullmatch(holder) is not None


def _boot_id(path: Path) -> str:
    """Empty: not known."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
