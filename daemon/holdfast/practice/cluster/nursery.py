"""Daemons of a practice site as forks of one process that has imported them, the nursery (``nursery_main.py``).

Controller, actor, quorum service and agents need seconds of processor time for their imports alone, at each start. A fork has its own
session, log, environment, working directory and name, as if it had been started by ``launch.py``. What a fork cannot have, another
interpreter or an environment that counts when Python or the linker starts, is refused and started as a program.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = "nursery"
"""Name of its record among the cluster's processes."""
IMPORTED = {
    "holdfast.head": ("holdfast.head.controller_main", "holdfast.head.actor_main", "holdfast.head.quorum_main"),
    "holdfast.agent": ("holdfast.agent.main",),
    "holdfast.practice.cluster.data_centre": ("holdfast.practice.cluster.hosting",),
}
"""By module that is run with ``python -m``: what is imported for it. Not the module itself: ``runpy`` runs it from the start."""
AT_START = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "FAKETIME")
"""First letters of variables that count when a process starts, and not for a fork."""
_READY_S = 60.0
_ANSWER_S = 30.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Birth:
    """A process to be forked: ``python -m MODULE ARGUMENT …``."""

    module: str
    arguments: list[str]
    env: dict[str, str]
    """Its whole environment."""
    cwd: str
    log: str
    reaper: bool


def command(socket_file: Path) -> list[str]:
    """The nursery's own command line."""
    modules = sorted({name for names in IMPORTED.values() for name in names})
    return [sys.executable, "-m", "holdfast.practice.cluster.nursery_main", str(socket_file), *modules]


def birth(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, reaper: bool) -> Birth | None:
    """The request for a command; None if it is no daemon that the nursery has imported."""
    interpreter, option, module = (*argv, "", "", "")[:3]
    if (interpreter, option) != (sys.executable, "-m") or module not in IMPORTED:
        return None
    return Birth(module, list(argv[3:]), dict(env), str(cwd), str(log), reaper)


def at_start(env: Mapping[str, str]) -> dict[str, str]:
    """The variables in which a fork must not differ from the nursery."""
    return {name: value for name, value in env.items() if name.startswith(AT_START)}


def fork(socket_file: Path, wanted: Birth, alive: Callable[[], bool]) -> tuple[int, int] | None:
    """Have the nursery fork a process; returns its pid and that of its main process, which differ with a reaper.

    ``alive``: whether the nursery runs; it is waited for while it imports. None: it has ended, or refuses: start it as a program."""
    deadline = time.monotonic() + _READY_S
    while alive() and time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            try:
                connection.connect(str(socket_file))
            except (FileNotFoundError, ConnectionRefusedError):  # it imports
                time.sleep(_POLL_S)
                continue
            return _asked(connection, wanted)
    return None


def _asked(connection: socket.socket, wanted: Birth) -> tuple[int, int] | None:
    connection.sendall(json.dumps(asdict(wanted)).encode())
    connection.shutdown(socket.SHUT_WR)
    words = connection.makefile("rb").read().split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else None
