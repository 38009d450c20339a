"""Startup failure of a daemon: its exit status, and a page that needs neither a store nor another process."""

from __future__ import annotations

import logging
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from holdfast.clock import SystemClock
from holdfast.config.controller import ControllerSettings
from holdfast.head.notify import notifier_for
from holdfast.head.pager import Page, Pager
from holdfast.head.wiring import controller_name
from holdfast.model.errors import ConfigError, HoldfastError

log = logging.getLogger(__name__)

START = "start"


def exit_status(error: HoldfastError) -> int:
    """2: the configuration is wrong, a retry does not help. 1: an external system, such as the database, does not answer yet."""
    return 2 if isinstance(error, ConfigError) else 1


def cannot_start(process: str, config: Path, settings: ControllerSettings | None, error: HoldfastError) -> int:
    """Log the reason, page if a service manager started the process, and return the exit status. ``settings``: None where they cannot be
    read."""
    sys.stderr.write(f"holdfast {process}: {error}\n")
    status = exit_status(error)
    if os.environ.get("NOTIFY_SOCKET"):  # a user who started it by hand reads the error
        try:
            _page(process, config, settings, error, final=status == 2)
        except Exception as failure:  # noqa: BLE001 - the exit status and the line above are what counts
            log.error("event=page_failed error=%r", str(failure))
    return status


def started(process: str, settings: ControllerSettings) -> None:
    """Record that the process runs: an outage that was paged is over."""
    pager = _pager(process, settings)
    if pager.path.exists():
        pager.look({})


def _page(
    process: str, config: Path, settings: ControllerSettings | None, error: HoldfastError, *, final: bool
) -> None:
    where = f" on {controller_name(settings)}" if settings is not None else ""
    page = Page(
        f"Holdfast{where}: the {process} cannot start",
        f"{error}\nNext step: journalctl -u holdfast-{process}   # holdfast runbook cannot-start",
    )
    if final or settings is None:  # the service manager does not retry: this is the only chance to page
        notifier_for(urls_of(config), SystemClock()).notify(page.subject, page.body)
    else:
        _pager(process, settings).look({START: page})


def _pager(process: str, settings: ControllerSettings) -> Pager:
    clock = SystemClock()
    path = settings.run.dir / process / "start.pages"
    return Pager(notifier_for(settings.notify.urls, clock), path, clock.monotonic_s)


def urls_of(config: Path) -> tuple[str, ...]:
    """Notification addresses of a configuration file whose other parts may be wrong; none where it cannot be read at all."""
    try:
        found: dict[str, Any] = tomllib.loads(config.read_text(encoding="utf-8"))
        return tuple(url for url in found["notify"]["urls"] if isinstance(url, str))
    except (OSError, ValueError, KeyError, TypeError):
        return ()
