"""Child process of :mod:`holdfast_checkpoint.as_user`: becomes the user, reads the directory, answers on stdout, exits."""

from __future__ import annotations

import encodings.ascii
import encodings.idna
import encodings.latin_1  # noqa: F401 - codecs that must not be looked for once the rights are gone
import errno
import json
import os
import resource
import sys
from collections.abc import Mapping
from typing import Any

from holdfast_checkpoint.base.confined import Limits
from holdfast_checkpoint.base.model import CheckpointError
from holdfast_checkpoint.judge import survey, survey_all, verify
from holdfast_checkpoint.wire import dump_checkpoint, dump_survey

_MEMORY_BYTES = 1 << 30
_FILES_MAX = 64


def main() -> None:
    """Read one request from stdin and answer on stdout. Any failure is an answer too."""
    request = json.loads(sys.stdin.buffer.read(1 << 20))
    try:
        answer = _answer(request)
    except (CheckpointError, OSError, ValueError, MemoryError, RecursionError) as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()
    os._exit(0)


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    limits = Limits(**request["limits"])
    bound(limits.deadline_s)
    if request["who"] is not None:
        become(**request["who"])
    options, path = request["options"], request["path"]
    if request["verb"] == "verify":
        return dump_checkpoint(verify(path, limits=limits, **options))
    judge = survey_all if request["verb"] == "survey_all" else survey
    return dump_survey(judge(path, limits=limits, **options))


def bound(deadline_s: float, file_bytes: int = 0) -> None:
    """Limit this process permanently: no children, no core dump, bounded memory, files and time. ``file_bytes``: the largest file that
    it may write; 0: none."""
    cpu_s = int(deadline_s) + 2
    for what, most in (
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, _FILES_MAX),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        hard = resource.getrlimit(what)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (limit, limit))


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Take the identity and drop all privileges. Raises OSError when anything of the old identity is left."""
    os.umask(0o077)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3 or set(os.getgroups()) != set(groups):
        raise OSError(errno.EPERM, "the rights could not be given up")
    if uid != 0:
        try:
            os.setresuid(0, 0, 0)
        except PermissionError:
            return
        raise OSError(errno.EPERM, "the rights came back")
