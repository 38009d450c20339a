"""Adapters for Slurm behind one port: two implementations (twins) that pass the same contract tests."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from holdfast.model.errors import ConfigError, Unavailable
from holdfast.ports import SLURM_CLIENTS, Scheduler
from holdfast.slurm import pyslurm_twin
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.holding import HeldByReservation

_LOG = logging.getLogger(__name__)


def open_scheduler(client: str = "auto", *, env: Mapping[str, str] | None = None, reserve: bool = False) -> Scheduler:
    """Open the twin of this name. It keeps nodes out of service by drains, or with ``reserve`` by reservations (``holding``).

    Raises as :func:`open_twin` does."""
    twin = open_twin(client, env=env)
    return HeldByReservation(twin) if reserve else twin


def open_twin(client: str = "auto", *, env: Mapping[str, str] | None = None) -> Scheduler:
    """Open the twin of this name; ``auto``: pyslurm where it is installed for exactly the running release, else the commands.

    Raises ConfigError for a name that is none of ``SLURM_CLIENTS``, and for pyslurm where it is missing or was made for another
    release than the running one. While slurmctld is away the release is not known: ``auto`` then takes the commands, and
    pyslurm is assumed to fit."""
    if client not in SLURM_CLIENTS:
        raise ConfigError(f"slurm_client {client!r} is none of {', '.join(SLURM_CLIENTS)}")
    commands = SlurmCommands(env=env)
    if client == "commands":
        return commands
    why_not = _why_no_pyslurm(commands, unknown_fits=client == "pyslurm")
    if not why_not:
        return pyslurm_twin.SlurmPyslurm(env=env)
    if client == "pyslurm":
        raise ConfigError(f"slurm_client pyslurm cannot be used: {why_not}; use commands or auto")
    _LOG.info("event=slurm_client client=commands because=%r", why_not)
    return commands


def _why_no_pyslurm(commands: SlurmCommands, *, unknown_fits: bool) -> str:
    """Reason why pyslurm cannot be used; empty: it can."""
    installed = pyslurm_twin.installed_version()
    if installed is None:
        return "pyslurm is not installed"
    try:
        running = commands.version()
    except Unavailable as error:
        return "" if unknown_fits else f"the running release is not known: {error}"
    return "" if pyslurm_twin.fits(installed, running) else f"pyslurm {installed} was not made for Slurm {running}"
