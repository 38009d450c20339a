"""Owner of a process in a user namespace, as the kernel reports it. I/O only.

Rootless containers give a user additional ids (subuid(5)): a process of an image's user 1000 has a host uid such as 100999, which Slurm
does not know. The namespace itself belongs to the user who created it, and no other user's process can enter it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import struct
from types import TracebackType

_NS_GET_PARENT = 0xB702
_NS_GET_OWNER_UID = 0xB704
"""ioctl_ns(2); the parent from Linux 4.9 on, the owner from 4.11."""
_UID = struct.Struct("I")
_DEPTH_MAX = 33
"""The kernel nests 32 user namespaces at most."""
_OURS = "/proc/self/ns/user"
_PEERCRED = struct.Struct("3i")
_SO_PEERPIDFD = 77
"""From Linux 6.5 on; Python has no name for it."""


class PeerProcess:
    """The process that connected to a Unix socket, by the kernel's record of that moment.

    Read what is needed from /proc/PID, then call :meth:`exists`: if it still exists, no other process has had that pid. Where the kernel
    gives no handle on the process (before Linux 6.5), this only shows whether any process has that pid."""

    def __init__(self, connection: socket.socket) -> None:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
        self.pid, self.uid, _gid = _PEERCRED.unpack(data)
        self._handle: int | None = None
        self._gone = False
        try:
            self._handle = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as error:
            self._gone = error.errno in (errno.ESRCH, errno.EINVAL)

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        if self._handle is not None:
            os.close(self._handle)

    def exists(self) -> bool:
        """Whether the process exists, including one that has ended and was not reaped yet: its pid is not free."""
        if self._gone:
            return False
        if self._handle is None:
            return os.path.exists(f"/proc/{self.pid}")
        try:
            signal.pidfd_send_signal(self._handle, 0)
        except PermissionError:
            return True
        except OSError:
            return False
        return True


def is_in_ours(pid: int) -> bool:
    """Whether the process is in the agent's own user namespace. False also where that cannot be determined."""
    try:
        inside, ours = os.stat(f"/proc/{pid}/ns/user"), os.stat(_OURS)
    except OSError:
        return False
    return (inside.st_dev, inside.st_ino) == (ours.st_dev, ours.st_ino)


def user_behind(pid: int, uid: int) -> int:
    """The user who created the outermost user namespace below ours that the process is in; ``uid`` where it is in ours.

    Also ``uid`` where root created it (a daemon's, for anyone), and where it cannot be determined: the process is gone, or not visible."""
    try:
        inside = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return uid
    try:
        ours = os.stat(_OURS)
        return _owner(inside, (ours.st_dev, ours.st_ino)) or uid
    except OSError:
        return uid


def _owner(descriptor: int, ours: tuple[int, int]) -> int | None:
    """Owner of the child of ours above this namespace, which is closed; None: it is ours. Raises OSError."""
    for _ in range(_DEPTH_MAX):
        try:
            if _id(descriptor) == ours:
                return None
            parent = fcntl.ioctl(descriptor, _NS_GET_PARENT)
            if _id(parent) == ours:
                os.close(parent)
                held = fcntl.ioctl(descriptor, _NS_GET_OWNER_UID, bytes(_UID.size))
                return int(_UID.unpack(held)[0])
        finally:
            os.close(descriptor)
        descriptor = parent
    os.close(descriptor)
    return None


def _id(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
