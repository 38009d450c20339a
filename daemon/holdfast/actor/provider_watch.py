"""Provider poller: the actor records what the provider shows; the controller decides on it and has no rights at the provider."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Event as Stop

from holdfast import unexpected
from holdfast.model.errors import OutsideError
from holdfast.model.machine import NoticeKind, ProviderView
from holdfast.ports import Clock, Provider, Scheduler, Store

log = logging.getLogger(__name__)

PROVIDER = "provider"
"""Part of this process that asks the provider (:mod:`holdfast.unexpected`)."""
TAKES_AWAY = frozenset({NoticeKind.REBOOT, NoticeKind.STOP, NoticeKind.INTERRUPTION, NoticeKind.CAPACITY_END})
"""Kinds of notices after which a machine goes away, temporarily or for good."""
LOOK_EVERY_S = 20.0
"""EC2 refreshes its status checks every minute and HyperPod's view lags for longer; NodeRecovery is read again before each action."""


@dataclass
class ProviderWatch:
    """Polls the provider in a separate thread, so that a provider that hangs delays no step."""

    store: Store
    provider: Provider
    scheduler: Scheduler
    clock: Clock
    ring: Callable[[], None] = field(default=lambda: None)
    """Wakes the controller when there is something new."""
    _seen: ProviderView | None = None

    def run(self, stop: Stop) -> None:
        """Poll until stopped."""
        while not stop.is_set():
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - what was seen before counts until the next look
                unexpected.failed(PROVIDER, error)
            else:
                unexpected.passed(PROVIDER)
            stop.wait(LOOK_EVERY_S)

    def look(self) -> None:
        """Poll once and record the view. If the provider cannot be read, keep the previous view and add the reason."""
        view = self._ask(self.clock.now())
        try:
            self.store.see_provider(view)
        except OutsideError as error:
            log.warning("event=store_unavailable error=%r", str(error))
            return
        before, self._seen = self._seen, view
        if before is None or replace(before, seen_at=view.seen_at) != view:
            self.ring()

    def going(self) -> frozenset[str]:
        """Nodes whose machines the provider takes away, by its latest notices."""
        seen = self._seen
        return frozenset(n.node for n in seen.notices if n.kind in TAKES_AWAY) if seen is not None else frozenset()

    def _slurm_reboots(self) -> bool:
        program = self.scheduler.config().get("RebootProgram", "")
        return bool(program) and program != "(null)"

    def _ask(self, now: datetime) -> ProviderView:
        before = self._seen
        can = self.provider.can
        view = ProviderView(self.provider.name, can, now)
        try:
            return replace(
                view,
                slurm_reboots=self._slurm_reboots(),
                repairs_itself=self.provider.repairs_itself(),
                notices=self.provider.notices(),
                on_trial=self.provider.on_trial(),
            )
        except OutsideError as error:
            if before is None or not before.error:
                log.warning("event=provider_unavailable provider=%s error=%r", self.provider.name, str(error))
            if before is None:
                return replace(view, error=str(error))
            return replace(before, can=can, error=str(error))
