"""Notifications to operators: always to the log, and through Apprise where URLs are configured."""

from __future__ import annotations

import importlib
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.model.errors import OutsideError, Unavailable
from holdfast.model.parts import NotifierState
from holdfast.ports import Clock, Notifier

log = logging.getLogger(__name__)

_KIND = re.compile(r"([a-z][a-z0-9+]{0,20})://", re.IGNORECASE)
_REMEMBERED = 256
"""Maximum number of remembered messages that did not reach every address."""


class LogNotifier:
    """Implements :class:`holdfast.ports.Notifier` by one warning line."""

    def notify(self, subject: str, body: str) -> None:
        log.warning("event=notify subject=%r body=%r", subject, body)


class AppriseNotifier:
    """Sends through Apprise (mail, chat, paging), and to the log as well.

    An address that fails does not keep the message from the others, and an address that has a message does not get it again at a retry.
    This is remembered in memory: after a restart of the process, a message that was delivered in part may arrive twice."""

    def __init__(self, urls: Sequence[str]) -> None:
        """An address that cannot be used fails with each message; :func:`wrong_addresses` names it beforehand."""
        self._addresses = [_address(url) for url in urls]
        self._delivered: OrderedDict[tuple[str, str], set[int]] = OrderedDict()
        self._lock = threading.Lock()
        self._log = LogNotifier()

    def notify(self, subject: str, body: str) -> None:
        """Raises Unavailable, naming the addresses without their secrets, when one did not take it."""
        with self._lock:
            have = self._delivered.get((subject, body))
            if have is None:
                self._log.notify(subject, body)
                have = self._delivered[subject, body] = set()
                while len(self._delivered) > _REMEMBERED:
                    self._delivered.popitem(last=False)
            failed = []
            for number, address in enumerate(self._addresses):
                if number not in have:
                    try:
                        address.send(subject, body)
                        have.add(number)
                    except Unavailable as error:
                        failed.append(f"{address.name}: {error}")
            if not failed:
                self._delivered.pop((subject, body), None)
                return
        others = "; the others have it" if have else ""
        raise Unavailable(f"{'; '.join(failed)[:400]}{others}")


@dataclass(frozen=True, slots=True)
class _Address:
    name: str
    """Its kind, such as ``mailto``: what follows may hold a secret."""
    sender: Any
    """An Apprise of this address alone; None: it cannot be used."""
    problem: str = ""

    def send(self, subject: str, body: str) -> None:
        if self.sender is None:
            raise Unavailable(self.problem)
        try:
            taken = self.sender.notify(title=subject, body=body)
        except Exception as error:  # of a plugin of Apprise's: one address, not the actor
            raise Unavailable(type(error).__name__) from error  # its text may hold the address, and so a secret
        if not taken:
            raise Unavailable("not delivered; see Apprise's log for the reason")


def _address(url: str) -> _Address:
    kind = _KIND.match(url)
    name = f"{kind[1]}://…" if kind is not None else "an address without ://"
    try:
        apprise: Any = importlib.import_module("apprise")
    except ImportError:
        return _Address(name, None, "the package apprise is missing: install the controller again (docs/install.md)")
    sender = apprise.Apprise()
    return (
        _Address(name, sender) if sender.add(url) else _Address(name, None, "apprise does not understand this address")
    )


def wrong_addresses(urls: Sequence[str]) -> tuple[str, ...]:
    """One line for each address that cannot be used, without its secrets."""
    return tuple(f"notify.urls: {each.name}: {each.problem}" for each in map(_address, urls) if each.sender is None)


class WatchedNotifier:
    """A notifier that remembers the outcome of its last message. Safe to use from any thread."""

    def __init__(self, notifier: Notifier, clock: Clock, addresses: int, problem: str = "") -> None:
        """``addresses``: how many it sends to in addition to the log. ``problem``: what is known to be wrong before the first message."""
        self._notifier = notifier
        self._clock = clock
        self._state = NotifierState(addresses, problem[:300], clock.now() if problem else None)

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
    """Sends to these addresses, or to the log alone where there are none."""
    notifier: Notifier = AppriseNotifier(urls) if urls else LogNotifier()
    return WatchedNotifier(notifier, clock, len(urls), "; ".join(wrong_addresses(urls)))
