"""Every kind of provider in one table: what it can be told, and where it is. Standard library only, no adapter is imported.

A new provider is one line in ``KINDS``, and one in ``WORLDS`` of ``tests/support/provider_worlds.py``."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import ConfigError
from holdfast.providers.asg_settings import AsgSettings
from holdfast.providers.hyperpod_settings import HyperpodSettings
from holdfast.providers.parallelcluster_settings import ParallelClusterSettings
from holdfast.providers.settings import CommandSettings, Ec2Settings

if TYPE_CHECKING:
    from holdfast.ports import Provider, Scheduler


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of provider."""

    at: str
    """``module:class``, imported when it is opened: boto3 only where it is used."""
    settings: type[Any] | None = None
    """Dataclass that the keys of ``[provider]`` fill; the provider's first argument. None: it needs none."""
    own_cluster: bool = False
    """The settings' ``cluster`` is a key of ``[provider]``, since it is not the Slurm cluster's name."""
    needs_cluster_name: bool = False
    """The settings' ``cluster`` is ``[cluster] name``, and that may not be empty."""
    hears_slurm: bool = False
    """It acts through Slurm: it takes ``scheduler`` besides."""
    gives_drained_away: bool = False
    """A drained node is exchanged there by somebody else, so Holdfast keeps nodes by reservations (``slurm/holding.py``)."""

    @property
    def options(self) -> tuple[str, ...]:
        """The keys of ``[provider]`` that belong to it."""
        if self.settings is None:
            return ()
        names = (field.name for field in dataclasses.fields(self.settings))
        return tuple(name for name in names if self.own_cluster or name != "cluster")


KINDS: Mapping[str, Kind] = {
    "none": Kind("holdfast.providers.none:NoProvider"),
    "ec2": Kind("holdfast.providers.ec2:Ec2Provider", Ec2Settings, needs_cluster_name=True),
    "asg": Kind("holdfast.providers.asg:AsgProvider", AsgSettings, needs_cluster_name=True),
    "command": Kind("holdfast.providers.command:CommandProvider", CommandSettings),
    "hyperpod": Kind("holdfast.providers.hyperpod:HyperpodProvider", HyperpodSettings, own_cluster=True),
    "parallelcluster": Kind(
        "holdfast.providers.parallelcluster:ParallelClusterProvider",
        ParallelClusterSettings,
        own_cluster=True,
        hears_slurm=True,
        gives_drained_away=True,
    ),
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
