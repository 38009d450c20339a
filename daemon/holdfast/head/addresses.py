"""Addresses of people: one class for each way to reach them, made from URLs that are secrets."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast.decisions.notices.texts import NoticeLinks
from holdfast.head.alertmanager import SCHEMES, alertmanager
from holdfast.head.bounded_address import BoundedAddress
from holdfast.model.errors import Unavailable
from holdfast.model.notice import Matter, Message, NoticeLevel
from holdfast.ports import Address, Clock

_KIND = re.compile(r"([a-z][a-z0-9+]{0,20})://", re.IGNORECASE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that would break a line, a header or a terminal, or reverse the order of a text."""


_CALLS = re.compile(r"@(?=(?:everyone|here|channel|all)\b)", re.IGNORECASE)


def _calls_no_one(text: str) -> str:
    """Text in which chat services see neither a call to all of a channel nor a link behind other words (Discord, Mattermost): a message
    about one node that a stolen agent token reports wakes those who are on call, and no one else."""
    return _CALLS.sub("@ ", text).replace("](", "] (")


_TYPES: Mapping[NoticeLevel, str] = {
    NoticeLevel.NEEDS_SOMEBODY: "failure",
    NoticeLevel.HEALED: "info",
    NoticeLevel.DIGEST: "info",
}


def apprise_type(message: Message) -> str:
    """Type of the message in Apprise's words: a paging service takes it as the severity, a chat as the colour.

    No end is a ``success``: Apprise takes that for PagerDuty's "resolve", and it finds no alert, since ``over: `` begins its text."""
    return "info" if message.over else _TYPES[message.level]


def one_line(text: str) -> str:
    """Text of agents and users as one safe line."""
    return _CONTROLS.sub(" ", text.replace("\n", " ").replace("\t", " ")).strip()


def lines_only(text: str) -> str:
    """The same for several lines."""
    return _CONTROLS.sub(" ", text)


@dataclass(frozen=True, slots=True)
class AppriseAddress:
    """One URL of Apprise: mail, chat, paging, webhooks. Implements :class:`holdfast.ports.Address`."""

    name: str
    sender: Any = field(repr=False)
    """An Apprise of this address alone."""

    def send(self, message: Message) -> None:
        """Raises Unavailable."""
        subject, body = _calls_no_one(one_line(message.subject)), _calls_no_one(lines_only(message.body))
        kind = apprise_type(message)
        try:
            taken = self.sender.notify(title=subject, body=body or subject, body_format="text", notify_type=kind)
        except Exception as error:  # of a plugin of Apprise's: one address, not the actor
            raise Unavailable(type(error).__name__) from error  # its text may hold the address, and so a secret
        if not taken:
            raise Unavailable("not delivered; the log of this process says why (logger=apprise)")

    def keep(self, matters: Sequence[Matter]) -> None:
        """Nothing: what was sent stays."""


@dataclass(frozen=True, slots=True)
class BrokenAddress:
    """An address that cannot be used; each message to it fails. Implements :class:`holdfast.ports.Address`."""

    name: str
    problem: str

    def send(self, message: Message) -> None:
        """Raises Unavailable."""
        raise Unavailable(self.problem)

    def keep(self, matters: Sequence[Matter]) -> None:
        """Nothing."""


def kind_of(url: str) -> str:
    """What may be shown of an address: ``mailto://…``; what follows may hold a secret."""
    kind = _KIND.match(url)
    return f"{kind[1].lower()}://…" if kind is not None else "an address without ://"


def address(where: str, url: str, clock: Clock, links: NoticeLinks | None = None) -> Address:
    """The address of one URL. ``where``: the setting that names it. Never raises: what cannot be used fails with each message."""
    name = f"{where} {kind_of(url)}"
    kind = _KIND.match(url)
    if kind is not None and kind[1].lower() in SCHEMES:
        try:
            return BoundedAddress(alertmanager(name, url, clock, links or NoticeLinks()))
        except ValueError as error:
            return BrokenAddress(name, str(error))
    return _of_apprise(name, url)


def _of_apprise(name: str, url: str) -> Address:
    try:
        apprise: Any = importlib.import_module("apprise")
    except ImportError:
        return BrokenAddress(name, "the package apprise is missing: install the controller again (docs/install.md)")
    sender = apprise.Apprise()
    with _no_log():
        understood = sender.add(url)
    if not understood:
        return BrokenAddress(name, "apprise does not understand this address")
    return BoundedAddress(AppriseAddress(name, sender))


@contextmanager
def _no_log() -> Iterator[None]:
    """Apprise logs the whole of an address that it does not understand, and so a secret."""
    its_own = logging.getLogger("apprise")
    before, its_own.disabled = its_own.disabled, True
    try:
        yield
    finally:
        its_own.disabled = before


def addresses(where: str, urls: Sequence[str], clock: Clock, links: NoticeLinks | None = None) -> tuple[Address, ...]:
    """One for each URL, named by its place in the setting."""
    return tuple(address(f"{where}[{number}]", url, clock, links) for number, url in enumerate(urls))


def page(to: Address, matter: Matter, message: Message) -> None:
    """Send a page of a process itself. Raises Unavailable."""
    if isinstance(to, BoundedAddress):
        to.page(matter, message)
    else:
        to.send(message)
