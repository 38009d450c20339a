"""Client of the emulator's HyperPod control verbs. Standard library only."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from holdfast.practice.aws.client import EmulatorControl


class HyperpodControl(EmulatorControl):
    """An emulator's control endpoint with the verbs for one HyperPod cluster, named at the start."""

    def __init__(self, endpoint: str, cluster: str, timeout_s: float = 10.0) -> None:
        super().__init__(endpoint, timeout_s)
        self.cluster = cluster

    def make(self, groups: list[dict[str, Any]], **settings: Any) -> dict[str, str]:
        """A cluster of running nodes (``groups``: name, count, type, node_type); Slurm node name → instance id.

        Settings: ``node_recovery`` (``None``), ``continuous`` (false), ``slurm_config`` (true), ``hostnames`` (true)."""
        return cast("dict[str, str]", self._hyperpod("cluster", groups=groups, **settings))

    def settings(self, **changes: Any) -> None:
        """Change ``node_recovery``, ``status`` or ``continuous`` of the cluster."""
        self._hyperpod("settings", **changes)

    def phases(self, **seconds: float) -> None:
        """Set some of ``hyperpod_world.HyperpodDelays``; for all clusters of the emulator."""
        self._ask("POST", "hyperpod/delays", seconds)

    def set_status(self, instance_id: str, status: str, message: str = "", for_s: float | None = None) -> None:
        """Show this InstanceStatus from now on, or for a time and then Running."""
        self._hyperpod("status", instance_id=instance_id, status=status, message=message, for_s=for_s)

    def refuse(self, instance_id: str, code: str, times: int = 1) -> None:
        """Batch calls answer 200 with this ErrorCode for the id."""
        self._hyperpod("refuse", instance_id=instance_id, code=code, times=times)

    def doom(self, instance_id: str, message: str) -> None:
        """The next replacement in this machine's slot ends in Failure."""
        self._hyperpod("doom", instance_id=instance_id, message=message)

    def repair(self, instance_id: str, action: str) -> None:
        """HyperPod itself reboots or replaces the node."""
        self._hyperpod("repair", instance_id=instance_id, action=action)

    def machines(self) -> list[dict[str, Any]]:
        """Every machine that the cluster ever had, without delay: ``instance_id``, ``node`` (InstanceName of its slot), ``status``
        (``NotFound``: gone), ``first`` (it existed when the cluster was created)."""
        path = f"hyperpod/machines?cluster={quote(self.cluster)}"
        return cast("list[dict[str, Any]]", self._ask("GET", path))

    def resource_config(self) -> dict[str, Any]:
        """``resource_config.json`` as a node created now would have it."""
        path = f"hyperpod/resource_config?cluster={quote(self.cluster)}"
        return cast("dict[str, Any]", self._ask("GET", path))

    def _hyperpod(self, verb: str, **data: Any) -> Any:
        return self._ask("POST", f"hyperpod/{verb}", {"cluster": self.cluster, **data})
