"""Description of a provider kind for registry, settings, doctor and documentation, without loading its adapter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_DEADLINE_S = 600.0
"""Longest permitted deadline of a provider call: the actor waits for it, so a site's lengthy work must run in the background."""


@dataclass(frozen=True, slots=True)
class ProviderKind:
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
    """It acts through Slurm: its adapter also takes ``scheduler``."""
    gives_drained_away: bool = False
    """Another system replaces drained nodes there, so Holdfast keeps nodes by reservations (``slurm/holding.py``)."""

    iam: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Purpose → IAM actions that it needs, which ``docs/iam/KIND.json`` grants. Empty: it needs none."""
    leave_repairs: str = "switch the provider's own repair off"
    """How an operator leaves the repairs of machines to Holdfast, where the provider would repair them itself."""

    @property
    def actions(self) -> frozenset[str]:
        """Every IAM action that it may use."""
        return frozenset(action for actions in self.iam.values() for action in actions)

    @property
    def options(self) -> tuple[str, ...]:
        """The keys of ``[provider]`` that belong to it."""
        if self.settings is None:
            return ()
        names = (field.name for field in dataclasses.fields(self.settings))
        return tuple(name for name in names if self.own_cluster or name != "cluster")
