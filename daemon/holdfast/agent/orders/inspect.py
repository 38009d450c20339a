"""Fresh readings for orders: requested by an order's thread, taken by the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from holdfast.agent.findings.trust import ResultTrust, Weighed
from holdfast.agent.sources.checks import on_demand_checks
from holdfast.agent.sources.nvml import NvmlAnswer, NvmlSource
from holdfast.agent.timing.loop import Loop
from holdfast.config.agent import AgentConfig
from holdfast.model.errors import Unavailable
from holdfast_checks.registry import Check, Context, Need
from holdfast_checks.result import Result
from holdfast_checks.runner import run, run_with_deadline
from holdfast_checks.settings import CheckSettings
from holdfast_checks.snapshot import NvmlFailure

_OFF = "switched off for this node in controller.toml (checks_off)"


class Inspector:
    """Takes fresh readings of the node."""

    def __init__(
        self,
        config: AgentConfig,
        settings: Callable[[], CheckSettings],
        loop: Loop,
        nvml: NvmlSource,
        checks: Mapping[str, Check],
        trust: ResultTrust,
        slurm_gpus: Callable[[], frozenset[int] | None],
        off: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """``settings``: those of the checks now. ``slurm_gpus``: device minors of the GPUs that slurmd gives to jobs, where that is
        proved. ``off``: checks that the site has switched off now."""
        self._settings = settings
        self._nvml_wait_s = 2 * config.nvml_deadline_s + 1.0
        """A pending snapshot may have to miss its deadline before this one starts."""
        self._loop = loop
        self._nvml = nvml
        self.checks = checks
        self.named = {**checks, **on_demand_checks(config)}
        """Checks that an order may name."""
        self._trust = trust
        self._slurm_gpus = slurm_gpus
        self._off = off

    def nvml_answer(self, within_s: float) -> NvmlAnswer:
        """A snapshot started after the call. Raises Unavailable when there is no answer in time."""
        box: list[NvmlAnswer] = []
        told = threading.Event()

        def take(answer: NvmlAnswer) -> None:
            box.append(answer)
            told.set()

        self._loop.call(lambda: self._nvml.ask(take))
        if not told.wait(within_s):
            raise Unavailable(f"NVML did not answer within {within_s:g} s")
        return box[0]

    def run_checks(self, wanted: list[str]) -> dict[str, tuple[Weighed, ...]]:
        """Run these checks (empty: all periodic ones) on facts gathered now, weighed for service. One that is switched off is skipped."""
        off = self._off()
        named = [self.named[name] for name in wanted or self.checks]
        chosen = [check for check in named if check.id not in off]
        answer: NvmlAnswer | None = None
        if any(Need.NVML in check.needs for check in chosen):
            answer = self.nvml_answer(self._nvml_wait_s)
        context = Context(self._settings(), answer, self._nvml.known.inventory, self._slurm_gpus())
        found = {check.id: (run if Need.NVML in check.needs else run_with_deadline)(check, context) for check in chosen}
        skipped = {check.id: (Result.skipped(check.id, summary=_OFF),) for check in named if check.id in off}
        return {name: tuple(map(self._trust.for_service, each)) for name, each in {**skipped, **found}.items()}

    def gpu_uuids(self) -> list[str]:
        """UUIDs of the GPUs that the newest snapshot shows as working."""
        latest = self._nvml.latest
        if latest is None or isinstance(latest, NvmlFailure):
            return []
        return sorted(gpu.ref.uuid for gpu in latest.gpus if gpu.ref.uuid is not None and not gpu.lost)

    def gpu_evidence(self, within_s: float) -> Mapping[str, Any]:
        """NVML's answer within the given time, and the inventory known before."""
        try:
            now: Any = self.nvml_answer(within_s)
        except Unavailable as error:
            now = {"unavailable": str(error)}
        return {"nvml": now, "nvml_before": self._nvml.latest, "inventory": self._nvml.known.wire()}
