"""Slurm behind one port, with twins that obey one contract suite."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from holdfast.model.errors import ConfigError
from holdfast.ports import Scheduler
from holdfast.slurm.commands import SlurmCommands

CLIENTS = ("auto", "commands", "pyslurm")


def open_scheduler(client: str = "auto", *, env: Mapping[str, str] | None = None) -> Scheduler:
    """The twin of this name; ``auto`` takes pyslurm only where it is installed for exactly the running release.

    Raises ConfigError for a name that is none of ``CLIENTS``, or for pyslurm where it is not installed."""
    if client not in CLIENTS:
        raise ConfigError(f"slurm_client {client!r} is none of {', '.join(CLIENTS)}")
    if client == "pyslurm" and importlib.util.find_spec("pyslurm") is None:
        raise ConfigError(
            "slurm_client is pyslurm, but it is not installed: pip install holdfast[pyslurm], or use commands"
        )
    return SlurmCommands(env=env)
