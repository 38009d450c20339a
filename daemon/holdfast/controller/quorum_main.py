"""``python -m holdfast.controller quorum``: becomes the quorum service, told what ``controller.toml`` says.

The service is a program of its own (``holdfast.quorum``), which knows nothing of the controller's configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.config.controller import Settings, load
from holdfast.model.errors import ConfigError, HoldfastError

STORE_VARIABLE = "HOLDFAST_QUORUM_STORE"


def run(config: Path, users: Sequence[str] = ()) -> int:
    """Returns only when something is wrong. ``users``: who may speak on its socket besides root and its own user."""
    try:
        settings = load(config)
        if not settings.quorum.enabled:
            raise ConfigError(f"{config}: quorum.enabled is false")
    except HoldfastError as error:
        sys.stderr.write(f"holdfast quorum: {error}\n")
        return 2
    argv = [sys.executable, *service_arguments(settings, users)]
    return os.execve(sys.executable, argv, {**os.environ, STORE_VARIABLE: settings.store.url})  # noqa: S606 - no shell


def service_arguments(settings: Settings, users: Sequence[str] = ()) -> list[str]:
    """The service's command line, without the store's URL, which may hold a password."""
    section = settings.quorum
    arguments = [
        "-m",
        "holdfast.quorum",
        "--key",
        str(section.key),
        "--socket",
        str(section.socket),
        "--bind",
        section.bind,
    ]
    arguments += ["--advertise", section.advertise] if section.advertise else []
    arguments += [word for user in users for word in ("--user", user)]
    return [*arguments, "--keep-days", str(settings.store.keep_days), "--log-level", settings.log.level.upper()]
