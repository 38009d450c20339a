"""Run Slurm's commands, each with a deadline, and translate their errors. Safe from several threads at a time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from holdfast.model.errors import HoldfastError, NotFound, NotPermitted, Rejected, Unavailable

_FIXED = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
"""Times as seconds since 1970, bit strings not shortened, messages in English."""
_ASKING = ("SQUEUE_", "SCONTROL_")
"""Prefixes of environment variables with which a login shell changes the output of these commands."""

_WORDS: tuple[tuple[str, type[HoldfastError]], ...] = (
    ("unable to contact slurm controller", Unavailable),
    ("socket timed out", Unavailable),
    ("connection refused", Unavailable),
    ("connect failure", Unavailable),
    ("zero bytes were transmitted", Unavailable),
    ("missing socket error", Unavailable),  # slurmctld died between the request and its answer
    ("slurm_msg_sendto", Unavailable),
    ("unexpected message received", Unavailable),  # printed by requeue and hold while slurmctld is away
    ("transport endpoint is not connected", Unavailable),
    ("protocol authentication error", Unavailable),
    ("slurm backup controller", Unavailable),
    ("resource temporarily unavailable", Unavailable),
    ("permission denied", NotPermitted),
    ("invalid user id", NotPermitted),
    ("invalid node name", NotFound),
    ("invalid job id", NotFound),
    ("requested reservation is invalid", NotFound),
    ("not found", NotFound),
    ("' does not exist", NotFound),  # pyslurm's own message for a node
)
"""slurm_strerror's texts, unchanged from 22.05 to 26.05; the first that appears decides. Anything else is Rejected."""


class Commands:
    """Runs ``scontrol`` and ``squeue``."""

    def __init__(self, env: Mapping[str, str] | None = None, deadline_s: float = 10.0) -> None:
        """``env`` is added to this process's environment. ``deadline_s``: Slurm's own MessageTimeout is 10 s by
        default."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_ASKING)}
        self._env = {**kept, **(env or {}), **_FIXED}
        self._deadline_s = deadline_s

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> str:
        """Standard output of a command. ``env``: more variables for this one.

        Raises Unavailable (deadline passed, slurmctld or the command missing), NotPermitted, NotFound, Rejected."""
        try:
            done = subprocess.run(
                argv,
                env={**self._env, **(env or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{argv[0]} {argv[1]} did not answer within {self._deadline_s:g} s") from error
        except OSError as error:
            raise Unavailable(f"{argv[0]} cannot be run: {error.strerror}") from error
        output = done.stdout.decode(errors="replace")
        words = done.stderr.decode(errors="replace").strip()
        if done.returncode:
            raise refusal(argv, words or output.strip())
        return output


def refusal(argv: tuple[str, ...], words: str) -> HoldfastError:
    """The error for a command's output."""
    line = " ".join(words.split()) or "no reason given"
    kind = next((kind for text, kind in _WORDS if text in line.lower()), Rejected)
    return kind(f"{' '.join(argv[:3])}: {line}")
