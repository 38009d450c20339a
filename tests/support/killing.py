"""Work that is killed before its n-th system call, as a power loss would stop it there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

_CALLS = ("open", "write", "fsync", "rename", "link", "unlink", "mkdir", "close")


def killed_at(call: int, work: Callable[[], None]) -> bool:
    """Runs the work in a child that kills itself before its n-th system call; False when it ended before that."""
    pid = os.fork()
    if pid == 0:
        count = 0

        def counted(real: Any) -> Any:
            def wrapper(*args: Any, **keys: Any) -> Any:
                nonlocal count
                count += 1
                if count == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **keys)

            return wrapper

        for name in _CALLS:
            setattr(os, name, counted(getattr(os, name)))
        work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False
