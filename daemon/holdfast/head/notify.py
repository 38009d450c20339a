"""Notifications of a process itself, which need no store: always to the log, and to the addresses where there are any."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from holdfast.actor.notice_desk import Place
from holdfast.config.notify import owners_url, rule_of, urls_of
from holdfast.config.sections import NotifySection, OwnersSection
from holdfast.decisions.notices.owners import address_of
from holdfast.decisions.notices.routes import takes
from holdfast.decisions.notices.texts import NoticeLinks
from holdfast.head.addresses import BrokenAddress, address, addresses, page
from holdfast.model.errors import OutsideError, Unavailable
from holdfast.model.notice import Matter, Message, NoticeLevel, Topic
from holdfast.model.parts import NotifierState
from holdfast.ports import Address, Clock, Notifier

log = logging.getLogger(__name__)

_REMEMBERED = 256
"""Maximum number of remembered messages that did not reach every address."""


class LogNotifier:
    """Implements :class:`holdfast.ports.Notifier` by one warning line."""

    def notify(self, subject: str, body: str, *, over_of: str = "") -> None:
        log.warning("event=notify subject=%r body=%r", subject, body)


class AddressesNotifier:
    """Sends to several addresses, and to the log as well.

    An address that fails does not keep the message from the others, and an address that has a message does not get it again at a retry.
    This is remembered in memory: after a restart of the process, a message that was delivered in part may arrive twice."""

    def __init__(self, places: Sequence[Address], clock: Clock) -> None:
        """An address that cannot be used fails with each message; :func:`wrong_addresses` names it beforehand."""
        self._addresses = tuple(places)
        self._clock = clock
        self._delivered: OrderedDict[tuple[str, str], set[int]] = OrderedDict()
        self._lock = threading.Lock()
        self._log = LogNotifier()

    def notify(self, subject: str, body: str, *, over_of: str = "") -> None:
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
                        self._page(address, subject, body, over_of)
                        have.add(number)
                    except Unavailable as error:
                        failed.append(f"{address.name}: {error}")
            if not failed:
                self._delivered.pop((subject, body), None)
                return
        others = "; the others have it" if have else ""
        raise Unavailable(f"{'; '.join(failed)[:400]}{others}")

    def _page(self, address: Address, subject: str, body: str, over_of: str) -> None:
        matter = Matter(Topic.OTHER, over_of or subject, over_of or subject, body=body)
        now = self._clock.now()
        level = NoticeLevel.NEEDS_SOMEBODY
        message = Message("", now, level, Topic.OTHER, subject, body, over=bool(over_of), matters=(matter,))
        page(address, matter, message)


def wrong_addresses(places: Sequence[Address]) -> tuple[str, ...]:
    """One line for each address that cannot be used, without its secrets."""
    return tuple(f"notify.{each.name}: {each.problem}" for each in places if isinstance(each, BrokenAddress))


class WatchedNotifier:
    """A notifier that remembers the outcome of its last message. Safe to use from any thread."""

    def __init__(self, notifier: Notifier, clock: Clock, addresses: int, problem: str = "") -> None:
        """``addresses``: how many it sends to in addition to the log. ``problem``: what is known to be wrong before the first message."""
        self._notifier = notifier
        self._clock = clock
        self._state = NotifierState(addresses, problem[:300], clock.now() if problem else None)

    def notify(self, subject: str, body: str, *, over_of: str = "") -> None:
        """Raises what the notifier raises."""
        try:
            self._notifier.notify(subject, body, over_of=over_of)
        except Exception as error:
            since = self._state.failing_since or self._clock.now()
            text = str(error) if isinstance(error, OutsideError) else f"{type(error).__name__}: {error}"
            self._state = replace(self._state, error=text[:300], failing_since=since)
            raise
        self._state = NotifierState(self._state.addresses)

    def state(self) -> NotifierState:
        """As it is now."""
        return self._state


def links_of(section: NotifySection, cluster: str) -> NoticeLinks:
    """Where the messages of this site point to."""
    return NoticeLinks(section.runbook_base, section.link_base, cluster)


def called(section: NotifySection, folder: Path, clock: Clock, cluster: str = "") -> tuple[Address, ...]:
    """The addresses of those who are called for everything that needs an operator. Raises ConfigError."""
    return addresses("urls", urls_of(section.urls, section.urls_file, folder), clock, links_of(section, cluster))


def places_of(section: NotifySection, folder: Path, clock: Clock, cluster: str = "") -> tuple[Place, ...]:
    """Every address with what it takes. Raises ConfigError."""
    places = [Place(each) for each in called(section, folder, clock, cluster)]
    for number, route in enumerate(section.routes):
        urls = urls_of(route.urls, route.urls_file, folder)
        rule = rule_of(route, f"notify.routes[{number}]")
        links = links_of(section, cluster)
        places += [Place(each, rule) for each in addresses(f"routes[{number}].urls", urls, clock, links)]
    return tuple(places)


def owner_address(section: OwnersSection | None, folder: Path, clock: Clock) -> Callable[[str], Address | None] | None:
    """Makes the address of a user; None: no mail server is named. Raises ConfigError."""
    if section is None or not (section.url or section.url_file):
        return None
    url, template = owners_url(section, folder), section.to

    def of(user: str) -> Address | None:
        to = address_of(template, user)
        return None if to is None else address(f"owner {user}", url.replace("{to}", quote(to, safe="@")), clock)

    return of


def notifier_for(section: NotifySection, folder: Path, clock: Clock, cluster: str = "") -> WatchedNotifier:
    """Sends to those who are called, by routes too, or to the log alone where there are none. Raises ConfigError."""
    page_of_all = Message("", clock.now(), NoticeLevel.NEEDS_SOMEBODY, Topic.OTHER, "", "")
    every = places_of(section, folder, clock, cluster)
    places = tuple(place.address for place in every if takes(place.rule, page_of_all, {}))
    notifier: Notifier = AddressesNotifier(places, clock) if places else LogNotifier()
    return WatchedNotifier(notifier, clock, len(places), "; ".join(wrong_addresses(places)))
