"""How a daemon that cannot start ends: its unit starts it again, unless only an operator can mend it."""

from __future__ import annotations

from holdfast.model.errors import ConfigError, HoldfastError


def exit_status(error: HoldfastError) -> int:
    """2: the configuration is wrong, trying again does not mend it. 1: what is outside does not answer yet, such as the database."""
    return 2 if isinstance(error, ConfigError) else 1
