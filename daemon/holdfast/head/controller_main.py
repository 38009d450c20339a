"""``holdfast controller``: one process, one asyncio loop for the API and the control loop."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from threading import Event as Stop
from threading import Thread

from uvicorn import Server

from holdfast import logs
from holdfast.api.transport.certificates import reload_certificate
from holdfast.api.transport.server import quiet_gc
from holdfast.config.controller import load
from holdfast.descriptors import raise_limit
from holdfast.head.cannot_start import cannot_start, started
from holdfast.head.serving import Controller, build_controller
from holdfast.head.wiring import announce
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.systemd import WatchdogPulse, sd_notify

HAND_OVER_S = 0.0005
"""Interpreter switch interval: a thread that parses Slurm's answer for thousands of nodes yields to the event loop after this long. The
loop releases the interpreter at every system call; with Python's default of 5 ms each request would then wait three times as long."""


def run(config: Path) -> int:
    """Run the controller until SIGTERM. Exit status: 0 clean stop, 2 wrong configuration, 1 any other expected error."""
    settings = None
    try:
        settings = load(config)
        logs.set_up(settings.log.format, settings.log.level)
        raise_limit()
        controller = build_controller(settings)
    except HoldfastError as error:
        return cannot_start("controller", config, settings, error)
    announce(settings)
    started("controller", settings)
    quiet_gc()
    sys.setswitchinterval(HAND_OVER_S)
    try:
        asyncio.run(_serve(controller))
    except ConfigError as error:
        return cannot_start("controller", config, settings, error)
    finally:
        controller.bell.close()
        controller.store.close()
    return 0


async def _serve(controller: Controller) -> None:
    loop = asyncio.get_running_loop()
    server = controller.server()  # before anything runs: its certificate may be unusable
    loop.add_reader(controller.bell.fileno(), _rung, controller)
    pulse = WatchdogPulse()
    controller.loop.beat = lambda: pulse.beat() if server.started else None
    control = asyncio.create_task(controller.loop.run())
    control.add_done_callback(lambda _task: setattr(server, "should_exit", True))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: setattr(server, "should_exit", True))
    loop.add_signal_handler(signal.SIGHUP, reload_certificate, server)
    with_signals_ours = server.serve()
    closer = asyncio.create_task(_close_polls(controller, server))
    parts = (controller.paging, controller.totals, controller.figures, controller.emf)
    alongside = [asyncio.create_task(part.run()) for part in parts if part is not None]
    stop = Stop()
    if controller.traces is not None:
        Thread(target=controller.traces.run, args=(stop,), name="traces", daemon=True).start()
    await with_signals_ours
    stop.set()
    sd_notify("STOPPING=1")
    closer.cancel()
    for task in alongside:
        task.cancel()
    controller.loop.stopping = True
    controller.loop.wake.set()
    await control


async def _close_polls(controller: Controller, server: Server) -> None:
    """Answer the waiting long polls as soon as a stop is requested, so that the stop need not wait for their timeout."""
    while not server.should_exit:
        await asyncio.sleep(0.2)
    controller.hub.close()


def _rung(controller: Controller) -> None:
    """Handle a wakeup from the actor: an outcome is in the store. The turn finds out whether Slurm has changed."""
    controller.bell.drain()
    controller.loop.wake.set()
