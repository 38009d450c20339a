"""Default answers of a provider: Rejected, in one line. Each provider overrides what it can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import NoReturn

from holdfast.model.errors import Rejected
from holdfast.model.machine import Instance, Notice


class LimitedProvider(ABC):
    """Default implementation of the port: every action is Rejected; queries about automatic repairs and notices return nothing."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    def repairs_itself(self) -> bool:
        return False

    def notices(self) -> tuple[Notice, ...]:
        return ()

    def on_trial(self) -> tuple[Instance, ...]:
        return ()

    def find_launched(self, token: str) -> Instance | None:
        return None

    def launch(self, node: str, *, incident: str, token: str) -> Instance:
        self._refuse(f"launch a machine for {node} in addition to the old one")

    def assign(self, instance_id: str, node: str) -> None:
        self._refuse(f"hand {node} over to {instance_id}")

    def terminate(self, instance_id: str) -> None:
        self._refuse(f"terminate {instance_id} alone")

    def replace(self, node: str, instance_id: str, *, incident: str, token: str) -> Instance:
        self._refuse(f"exchange the machine of {node} in place")

    def reboot(self, instance_id: str, *, incident: str = "", token: str = "") -> None:
        self._refuse(f"reboot {instance_id}")

    def stop_start(self, instance_id: str, *, incident: str, token: str) -> Instance:
        self._refuse(f"stop and start {instance_id}")

    def report_fault(self, instance_id: str, *, since: datetime, text: str) -> None:
        return None

    def _refuse(self, what: str) -> NoReturn:
        raise Rejected(f"provider {self.name} cannot {what}")
