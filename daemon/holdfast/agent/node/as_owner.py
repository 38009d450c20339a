"""Run one of Holdfast's programs with the rights of a user's process instead of root's, because it parses that user's data.

As a script (``python -I -S as_owner.py …``) this is the child that permanently drops root's rights and becomes the program. It keeps the
user's uid, gid and groups, no new privileges, and limits on memory, time, files and further processes. The program runs from a copy in
memory that the user may execute but not read: so the kernel lets no other process of the user trace or change it, although it has the
user's uid. Only the standard library: nothing else can be imported."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 38, 47, 2
_CAP_SYS_PTRACE = 19
_CAP_VERSION_3 = 0x20080522
_MFD_EXEC = 0x10
"""From Linux 6.3 on; earlier kernels do not know it and allow execution of every such file."""
_MEMORY_BYTES = 2 << 30
_OOM_SCORE = 500
"""OOM score of the child, so that it is killed before a job's processes. The agent's own is -900."""


@dataclass(frozen=True, slots=True)
class PathOwner:
    """The user whose rights are used."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def owner_in(status: str) -> PathOwner | None:
    """Owner of a process, from its ``/proc/PID/status``; None: its real, effective and saved ids differ. Pure."""
    fields = dict(line.partition(":")[::2] for line in status.split("\n"))
    try:
        uids, gids, groups = (tuple(map(int, fields[name].split())) for name in ("Uid", "Gid", "Groups"))
    except (KeyError, ValueError):
        return None
    return PathOwner(uids[0], gids[0], groups) if len(set(uids)) == len(set(gids)) == 1 else None


def must_keep_ptrace(scope: Path = _PTRACE_SCOPE) -> bool:
    """Whether this machine requires CAP_SYS_PTRACE to read a process that is not a descendant (Yama).

    Settings that a job's process makes for itself never count: with them it could choose to be read with more rights."""
    try:
        return scope.read_text(encoding="ascii").strip() != "0"
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True


def command(owner: PathOwner, argv: Sequence[str], cpu_s: int, *, keep_ptrace: bool) -> list[str]:
    """Command line to run ``argv`` as this owner, from a process that is root. ``argv[0]`` is the path of one of Holdfast's programs."""
    groups = ",".join(map(str, owner.groups))
    first = [sys.executable, "-I", "-S", __file__, str(owner.uid), str(owner.gid), groups, str(cpu_s)]
    return [*first, "ptrace" if keep_ptrace else "", *argv]


def main() -> None:
    """Become the program. Exits with 126 where that fails: nothing has been run then."""
    uid, gid, groups, cpu_s, keep, *argv = sys.argv[1:]
    try:
        image = _unreadable_copy(argv[0])
        os.chdir("/")
        _bound(int(cpu_s))
        _become(PathOwner(int(uid), int(gid), tuple(map(int, filter(None, groups.split(","))))), keep_ptrace=bool(keep))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.execve(image, argv, dict(os.environ))  # noqa: S606 - a program of ours, with arguments of ours
    except OSError as error:
        sys.stderr.write(f"{argv[0]} cannot be run as uid {uid}: {error}\n")
        sys.exit(126)


def _unreadable_copy(program: str) -> int:
    """Descriptor of a copy of the program in memory: owned by root, executable by all, readable only by root. Raises OSError."""
    try:
        made = os.memfd_create("reader", _MFD_EXEC)
    except OSError:
        made = os.memfd_create("reader", 0)
    with open(program, "rb") as file:
        while os.sendfile(made, file.fileno(), None, 1 << 24):
            pass
    os.fchmod(made, 0o711)
    image = os.open(f"/proc/self/fd/{made}", os.O_RDONLY)  # a file that is open for writing cannot be executed
    os.close(made)
    os.set_inheritable(image, True)  # the interpreter of a script opens it again
    return image


def _bound(cpu_s: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    for what, most in (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 256),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, bound))
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(_OOM_SCORE))


def _become(owner: PathOwner, *, keep_ptrace: bool) -> None:
    """Switch to the owner's rights permanently. Raises OSError."""
    if keep_ptrace:
        _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups(owner.groups)
    os.setresgid(owner.gid, owner.gid, owner.gid)
    os.setresuid(owner.uid, owner.uid, owner.uid)
    if keep_ptrace:
        _keep_only(_CAP_SYS_PTRACE)
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_SYS_PTRACE)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _keep_only(capability: int) -> None:
    bit = 1 << capability
    head = ctypes.create_string_buffer(struct.pack("Ii", _CAP_VERSION_3, 0))
    sets = ctypes.create_string_buffer(struct.pack("6I", bit, bit, bit, 0, 0, 0))
    _checked(_libc().capset(head, sets))


def _prctl(option: int, *values: int) -> None:
    words = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    _checked(_libc().prctl(option, *words))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(answer: int) -> None:
    if answer != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main()
