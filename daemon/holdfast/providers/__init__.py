"""What can reboot or replace a machine: adapters behind ``holdfast.ports.Provider``; see ``docs/providers.md``."""

from __future__ import annotations

from holdfast.providers.asg_settings import AsgSettings
from holdfast.providers.hyperpod_settings import HyperpodSettings
from holdfast.providers.parallelcluster_settings import ParallelClusterSettings
from holdfast.providers.registry import KINDS, PROVIDERS, Kind, open_provider
from holdfast.providers.settings import CommandSettings, Ec2Settings, Offer, TagKeys

__all__ = [
    "KINDS",
    "PROVIDERS",
    "AsgSettings",
    "CommandSettings",
    "Ec2Settings",
    "HyperpodSettings",
    "Kind",
    "Offer",
    "ParallelClusterSettings",
    "TagKeys",
    "open_provider",
]
