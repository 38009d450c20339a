"""Every kind of provider in one table. No adapter is imported before one is opened: boto3 is loaded only where it is used.

A new provider is a folder with its ``PROVIDER``, one line in ``KINDS``, and one in ``WORLDS`` of ``tests/support/provider_worlds.py``."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import ConfigError
from holdfast.providers import asg, command, ec2, hyperpod, none, parallelcluster
from holdfast.providers.kind import ProviderKind

if TYPE_CHECKING:
    from holdfast.ports import Provider, Scheduler

KINDS: Mapping[str, ProviderKind] = {
    "none": none.PROVIDER,
    "ec2": ec2.PROVIDER,
    "asg": asg.PROVIDER,
    "command": command.PROVIDER,
    "hyperpod": hyperpod.PROVIDER,
    "parallelcluster": parallelcluster.PROVIDER,
}
PROVIDERS = tuple(KINDS)
"""Names that ``open_provider`` and ``[provider] kind`` know."""


def open_provider(kind: str, settings: object | None = None, *, scheduler: Scheduler | None = None) -> Provider:
    """The provider of this kind. Opens no connection: wrong credentials show at the first call. Raises ConfigError.

    ``scheduler``: Slurm, for a kind that acts through it; the others never see it."""
    found = KINDS.get(kind)
    if found is None:
        near = difflib.get_close_matches(kind, PROVIDERS, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(PROVIDERS)}"
        raise ConfigError(f"no provider is called {kind!r}{hint}")
    if found.settings is not None and not isinstance(settings, found.settings):
        raise ConfigError(f"provider {kind} needs its settings: {_needed(found.settings)} at least")
    if found.hears_slurm and scheduler is None:
        raise ConfigError(f"provider {kind} acts through Slurm and was given none")
    module, _, name = found.at.partition(":")
    make = getattr(importlib.import_module(module), name)
    given = () if found.settings is None else (settings,)
    made: Provider = make(*given, scheduler=scheduler) if found.hears_slurm else make(*given)
    return made


def _needed(settings: type[Any]) -> str:
    missing = dataclasses.MISSING
    fields = dataclasses.fields(settings)
    return ", ".join(f.name for f in fields if f.default is missing and f.default_factory is missing)
