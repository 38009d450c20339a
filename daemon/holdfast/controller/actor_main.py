"""``holdfast actor``: the process with rights and without a listener."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from threading import Event, Thread

from holdfast.config.controller import load
from holdfast.controller import logs
from holdfast.controller.exit_status import exit_status
from holdfast.controller.wiring import announce, build_actor
from holdfast.model.errors import HoldfastError
from holdfast.systemd import Pulse, sd_notify


def run(config: Path) -> int:
    """Run the actor until SIGTERM; a step under way is ended first. Exit status as the controller's."""
    try:
        settings = load(config)
        logs.set_up(settings.log.format, settings.log.level)
        parts = build_actor(settings)
    except HoldfastError as error:
        sys.stderr.write(f"holdfast actor: {error}\n")
        return exit_status(error)
    announce(settings)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    watch = Thread(target=parts.watch.run, args=(stop,), name="provider", daemon=True)
    watch.start()
    pulse = Pulse()

    def turned() -> None:
        parts.state.beat(parts.actor.problem)
        if watch.is_alive():
            pulse.beat()

    parts.actor.turned = turned
    try:
        parts.actor.run(stop)
    finally:
        sd_notify("STOPPING=1")
        parts.bell.close()
    return 0
