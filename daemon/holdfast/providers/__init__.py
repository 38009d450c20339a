"""Providers, which reboot and replace machines: adapters of ``holdfast.ports.Provider``; see ``docs/providers.md``."""

from __future__ import annotations

from holdfast.providers.asg.settings import AsgSettings
from holdfast.providers.aws.tags import TagKeys
from holdfast.providers.command.settings import CommandSettings
from holdfast.providers.ec2.settings import Ec2Settings, Offer
from holdfast.providers.hyperpod.settings import HyperpodSettings
from holdfast.providers.kind import ProviderKind
from holdfast.providers.parallelcluster.settings import ParallelClusterSettings
from holdfast.providers.registry import KINDS, PROVIDERS, open_provider

__all__ = [
    "KINDS",
    "PROVIDERS",
    "AsgSettings",
    "CommandSettings",
    "Ec2Settings",
    "HyperpodSettings",
    "Offer",
    "ParallelClusterSettings",
    "ProviderKind",
    "TagKeys",
    "open_provider",
]
