"""Unix sockets at a path, created with their final mode."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path


def bound(path: Path, mode: int, kind: socket.SocketKind) -> socket.socket:
    """Bind a non-blocking socket at the path; one left by a dead process is replaced. Raises OSError.

    It is created under another name with no more rights than ``mode``; bits removed by the umask are restored by its descriptor: in a
    folder that another user may write to, no link of theirs is followed."""
    made = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    draft = path.with_name(f".{os.getpid()}.sock")
    try:
        draft.unlink(missing_ok=True)
        os.fchmod(made.fileno(), mode)  # Linux: bind makes the file with the socket's own mode
        made.bind(str(draft))
        _set_mode(draft, mode)
        if kind is socket.SOCK_STREAM:
            made.listen(128)
        draft.replace(path)
    except OSError:
        made.close()
        raise
    return made


def _set_mode(path: Path, mode: int) -> None:
    """Of this very socket. Raises OSError."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor).st_mode
        if not stat.S_ISSOCK(found):
            raise OSError(errno.EINVAL, "not the socket that was just made", str(path))
        if stat.S_IMODE(found) != mode:
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)
