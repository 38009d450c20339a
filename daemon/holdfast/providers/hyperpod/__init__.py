"""Machines of a SageMaker HyperPod cluster."""

from __future__ import annotations

from holdfast.providers.hyperpod.settings import HyperpodSettings
from holdfast.providers.kind import ProviderKind

PROVIDER = ProviderKind("holdfast.providers.hyperpod.adapter:HyperpodProvider", HyperpodSettings, own_cluster=True)
