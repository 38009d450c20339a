"""Provider for machines without an API to reboot or replace them: an operator does it, Holdfast waits."""

from __future__ import annotations

from typing import NoReturn

from holdfast.model.errors import NotFound, Rejected
from holdfast.model.machine import CAN_NOTHING, Instance, ProviderCan
from holdfast.providers.limits import LimitedProvider


class NoProvider(LimitedProvider):
    """Has no machines and no capabilities; every action is Rejected with the reason."""

    @property
    def name(self) -> str:
        return "none"

    @property
    def can(self) -> ProviderCan:
        return CAN_NOTHING

    def instance_of(self, node: str) -> Instance | None:
        return None

    def instance(self, instance_id: str) -> Instance:
        raise NotFound(f"provider none knows no machine, so not {instance_id} either")

    def _refuse(self, what: str) -> NoReturn:
        raise Rejected(f"provider none cannot {what}: repair the node by hand, or set another provider")
