"""Telling humans: always the log, and Apprise where URLs are configured."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.model.errors import ConfigError, OutsideError, Unavailable
from holdfast.model.parts import NotifierState
from holdfast.ports import Clock, Notifier

log = logging.getLogger(__name__)


class LogNotifier:
    """Implements :class:`holdfast.ports.Notifier` by one warning line."""

    def notify(self, subject: str, body: str) -> None:
        log.warning("event=notify subject=%r body=%r", subject, body)


class AppriseNotifier:
    """Sends through Apprise (mail, chat, paging), and to the log besides."""

    def __init__(self, urls: Sequence[str]) -> None:
        try:
            apprise: Any = importlib.import_module("apprise")
        except ImportError as error:
            raise ConfigError("notify.urls needs the package apprise: pip install apprise") from error
        self._sender = apprise.Apprise()
        for url in urls:
            if not self._sender.add(url):
                raise ConfigError(f"notify.urls: apprise does not understand {url.split(':', 1)[0]}://…")
        self._log = LogNotifier()

    def notify(self, subject: str, body: str) -> None:
        self._log.notify(subject, body)
        if not self._sender.notify(title=subject, body=body):
            raise Unavailable("apprise could not deliver the message to every address")


class WatchedNotifier:
    """A notifier that remembers how its last message went. Safe to use from any thread."""

    def __init__(self, notifier: Notifier, clock: Clock, addresses: int) -> None:
        """``addresses``: how many it sends to besides the log."""
        self._notifier = notifier
        self._clock = clock
        self._state = NotifierState(addresses)

    def notify(self, subject: str, body: str) -> None:
        """Raises what the notifier raises."""
        try:
            self._notifier.notify(subject, body)
        except Exception as error:
            since = self._state.failing_since or self._clock.now()
            text = str(error) if isinstance(error, OutsideError) else f"{type(error).__name__}: {error}"
            self._state = replace(self._state, error=text[:300], failing_since=since)
            raise
        self._state = NotifierState(self._state.addresses)

    def state(self) -> NotifierState:
        """As it is now."""
        return self._state


def notifier_for(urls: Sequence[str], clock: Clock) -> WatchedNotifier:
    """Sends to these addresses, or to the log alone where there are none. Raises ConfigError for one that cannot be used."""
    notifier: Notifier = AppriseNotifier(urls) if urls else LogNotifier()
    return WatchedNotifier(notifier, clock, len(urls))
