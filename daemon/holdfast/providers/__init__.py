"""What can reboot or replace a machine: adapters behind ``holdfast.ports.Provider``; see ``docs/providers.md``."""

from __future__ import annotations

import difflib

from holdfast.model.errors import ConfigError
from holdfast.ports import Provider
from holdfast.providers.hyperpod_settings import HyperpodSettings
from holdfast.providers.settings import CommandSettings, Ec2Settings, Offer, TagKeys

__all__ = ["PROVIDERS", "CommandSettings", "Ec2Settings", "HyperpodSettings", "Offer", "TagKeys", "open_provider"]

PROVIDERS = ("none", "ec2", "command", "hyperpod")
"""Names that ``open_provider`` knows."""


def open_provider(
    name: str,
    *,
    ec2: Ec2Settings | None = None,
    command: CommandSettings | None = None,
    hyperpod: HyperpodSettings | None = None,
) -> Provider:
    """The provider of this name. Opens no connection: wrong credentials show at the first call.

    Each provider needs its own settings alone, and boto3 is imported only where it is used. Raises ConfigError."""
    if name == "none":
        from holdfast.providers.none import NoProvider  # noqa: PLC0415 - late, like every adapter

        return NoProvider()
    if name == "ec2":
        if ec2 is None:
            raise ConfigError("provider ec2 needs its settings: region and launch_template at least")
        from holdfast.providers.ec2 import Ec2Provider  # noqa: PLC0415 - boto3 only where it is used

        return Ec2Provider(ec2)
    if name == "command":
        if command is None:
            raise ConfigError("provider command needs its settings: the command, by its absolute path")
        from holdfast.providers.command import CommandProvider  # noqa: PLC0415 - late, like every adapter

        return CommandProvider(command)
    if name == "hyperpod":
        if hyperpod is None:
            raise ConfigError("provider hyperpod needs its settings: cluster and region at least")
        from holdfast.providers.hyperpod import HyperpodProvider  # noqa: PLC0415 - boto3 only where it is used

        return HyperpodProvider(hyperpod)
    near = difflib.get_close_matches(name, PROVIDERS, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(PROVIDERS)}"
    raise ConfigError(f"no provider is called {name!r}{hint}")
