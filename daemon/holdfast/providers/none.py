"""The provider for machines that nobody can reboot or replace by an API: a person does it, Holdfast waits."""

from __future__ import annotations

from typing import NoReturn

from holdfast.model.errors import NotFound, Rejected
from holdfast.ports import Instance, ProviderCan


class NoProvider:
    """Knows no machine and can do nothing; every verb is Rejected with the reason."""

    @property
    def name(self) -> str:
        return "none"

    @property
    def can(self) -> ProviderCan:
        return ProviderCan(reboot=False, replace=False, launch_first=False, status=False, power_off_confirmed=False)

    def instance_of(self, node: str) -> Instance | None:
        return None

    def instance(self, instance_id: str) -> Instance:
        raise NotFound(f"provider none knows no machine, so not {instance_id} either")

    def launch(self, node: str, *, incident: str, token: str) -> Instance:
        _refuse(f"launch a machine for {node}")

    def find_launched(self, token: str) -> Instance | None:
        return None

    def assign(self, instance_id: str, node: str) -> None:
        _refuse(f"hand {node} over to {instance_id}")

    def terminate(self, instance_id: str) -> None:
        _refuse(f"terminate {instance_id}")

    def reboot(self, instance_id: str) -> None:
        _refuse(f"reboot {instance_id}")


def _refuse(what: str) -> NoReturn:
    raise Rejected(f"provider none cannot {what}: repair the node by hand, or set another provider")
