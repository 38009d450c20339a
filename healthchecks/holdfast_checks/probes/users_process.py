"""What the kernel reads of a user's process under the lock of its address space, read by a child with a deadline. Standard library only.

Its user can have that lock held for ever: by a mapping of a file on their own file system (FUSE) that does not answer. A thread that
waits for it is never given back; a child ends upon SIGKILL."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_checks.probes import process_files
from holdfast_checks.probes.child import CHILDREN, Children, Finished

_WITHIN_S = 2.0


def environ_of(pid: int, children: Children = CHILDREN) -> Mapping[str, str]:
    """As :func:`process_files.environ`. Raises OSError; TimeoutError where the process cannot be read in time."""
    return process_files.pairs(read(pid, "environ", process_files.ENVIRON_BYTES, children))


def read(pid: int, name: str, most_bytes: int, children: Children = CHILDREN) -> bytes:
    """The first bytes of ``environ``, ``cmdline`` or ``maps``. Raises as :func:`environ_of`."""
    argv = ["head", "-c", str(most_bytes), f"{process_files.PROC}/{pid}/{name}"]
    done = children.run(f"{name}/{pid}", argv, _WITHIN_S, max_bytes=most_bytes)
    if not isinstance(done, Finished):
        raise TimeoutError(f"{name} of process {pid} cannot be read")
    if done.status != 0:
        raise ProcessLookupError(done.complaint)
    return done.out
