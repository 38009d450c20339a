"""One emulated HyperPod cluster, under a test's control."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from holdfast.model.machine import Instance
from holdfast.practice.aws import REGION
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast.providers.hyperpod.adapter import HyperpodProvider
from holdfast.providers.hyperpod.settings import LEAD, HyperpodSettings

SESSION = boto3.session.Session()
REPLACE, REBOOT = "BatchReplaceClusterNodes", "BatchRebootClusterNodes"


@dataclass(frozen=True, slots=True)
class Pod:
    """One emulated HyperPod cluster of a head and GPU nodes."""

    control: HyperpodControl
    ids: Mapping[str, str]
    """Slurm node name → instance id, the head's first."""
    since: int
    folder: Path

    @property
    def node(self) -> str:
        return list(self.ids)[1]

    @property
    def old(self) -> str:
        return self.ids[self.node]

    def open(self, **changes: Any) -> HyperpodProvider:
        """As a freshly started controller would."""
        given: dict[str, Any] = {
            "cluster": self.control.cluster,
            "region": REGION,
            "mode": LEAD,
            "attempts": 1,
            "read_timeout_s": 5.0,
            "resource_config": "",
        }
        return HyperpodProvider(HyperpodSettings(**given | changes), session=SESSION)

    def replace(self, provider: HyperpodProvider) -> Instance:
        return provider.replace(self.node, self.old, incident="inc", token="inc-1")

    def effects(self, action: str = REPLACE) -> list[str]:
        return self.control.effects(action, self.since)

    def asked(self, action: str = REPLACE) -> list[list[str]]:
        calls = self.control.calls(action, self.since)
        return [json.loads(call["parameters"]["NodeIds"]) for call in calls]
