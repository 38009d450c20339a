"""``holdfast actor``: the process with rights in Slurm and at the provider, and without a listener."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Event, Thread

from holdfast import logs
from holdfast.config.controller import load
from holdfast.head.cannot_start import cannot_start, started
from holdfast.head.wiring import announce, build_actor
from holdfast.model.errors import HoldfastError
from holdfast.systemd import WatchdogPulse, sd_notify


def run(config: Path) -> int:
    """Run the actor until SIGTERM; a step under way is finished first. Exit status as the controller's."""
    settings = None
    try:
        settings = load(config)
        logs.set_up(settings.log.format, settings.log.level)
        parts = build_actor(settings)
    except HoldfastError as error:
        return cannot_start("actor", config, settings, error)
    announce(settings)
    started("actor", settings)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    watch = Thread(target=parts.watch.run, args=(stop,), name="provider", daemon=True)
    watch.start()
    Thread(target=parts.paging.run, args=(stop,), name="paging", daemon=True).start()
    pulse = WatchdogPulse()

    def turned() -> None:
        parts.state.beat(parts.actor.problem, parts.actor.held_back)
        if watch.is_alive():
            pulse.beat()

    parts.actor.turned = turned
    try:
        parts.actor.run(stop)
    finally:
        sd_notify("STOPPING=1")
        parts.bell.close()
    return 0
