"""Startup failure of a daemon: its exit status, and a page that needs neither a store nor another process."""

from __future__ import annotations

import logging
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from holdfast.clock import SystemClock
from holdfast.config import notify
from holdfast.config.controller import ControllerSettings
from holdfast.config.sections import NotifySection
from holdfast.head.notify import WatchedNotifier, notifier_for
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
        section = settings.notify if settings is not None else NotifySection(urls_of(config))
        _notifier(section, config.parent).notify(page.subject, page.body)
    else:
        _pager(process, settings).look({START: page})


def _pager(process: str, settings: ControllerSettings) -> Pager:
    clock = SystemClock()
    path = settings.run.dir / process / "start.pages"
    return Pager(_notifier(settings.notify, settings.path.parent), path, clock.monotonic_s)


def _notifier(section: NotifySection, folder: Path) -> WatchedNotifier:
    """For a file of addresses that cannot be read, those of the configuration."""
    try:
        return notifier_for(section, folder, SystemClock())
    except ConfigError as error:
        log.error("event=addresses_unreadable error=%r", str(error))
        return notifier_for(NotifySection(section.urls), folder, SystemClock())


def urls_of(config: Path) -> tuple[str, ...]:
    """Notification addresses of a configuration file whose other parts may be wrong; none where it cannot be read at all."""
    try:
        found: Any = tomllib.loads(config.read_text(encoding="utf-8")).get("notify")
    except (OSError, ValueError):
        return ()
    section = found if isinstance(found, dict) else {}
    given = section.get("urls")
    urls = tuple(url for url in given if isinstance(url, str)) if isinstance(given, list) else ()
    file = section.get("urls_file")
    try:
        return notify.urls_of(urls, Path(file) if isinstance(file, str) else None, config.parent)
    except ConfigError:
        return urls
