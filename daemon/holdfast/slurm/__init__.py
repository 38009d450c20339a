"""Slurm behind one port, with twins that obey one contract suite."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.errors import ConfigError
from holdfast.ports import Scheduler
from holdfast.slurm.commands import SlurmCommands

CLIENTS = ("auto", "commands", "pyslurm")


def open_scheduler(client: str = "auto", *, env: Mapping[str, str] | None = None) -> Scheduler:
    """The twin of this name; ``auto``: the best that there is for the running release, which today is commands.

    Raises ConfigError for a name that is none of ``CLIENTS``, and for pyslurm, whose twin does not exist yet."""
    if client not in CLIENTS:
        raise ConfigError(f"slurm_client {client!r} is none of {', '.join(CLIENTS)}")
    if client == "pyslurm":
        raise ConfigError("slurm_client pyslurm is not available in this release of Holdfast: use commands or auto")
    return SlurmCommands(env=env)
