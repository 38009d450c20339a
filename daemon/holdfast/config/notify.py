"""What ``[notify]`` says: levels, topics, quiet hours, and the files that hold addresses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, time, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.config.sections import NotifySection, OwnersSection, RouteSection
from holdfast.decisions.notices.routes import QuietHours, RouteRule
from holdfast.model.errors import ConfigError
from holdfast.model.notice import NoticeLevel, Topic

T = TypeVar("T", bound=StrEnum)

_TIME = r"([01]\d|2[0-3]):([0-5]\d)"
_CLOCK = re.compile(rf"{_TIME}(?: +(\S+))?")
_HOURS = re.compile(rf"{_TIME} *- *{_TIME}(?: +(\S+))?")


def check_notify(section: NotifySection, where: str) -> None:
    """Raises ConfigError in one line for what cannot be used; addresses and files are not looked at."""
    clock_of(section.digest_at, f"{where}.digest_at")
    for number, route in enumerate(section.routes):
        rule_of(route, f"{where}.routes[{number}]")
        if not route.urls and route.urls_file is None:
            raise ConfigError(f"{where}.routes[{number}]: neither urls nor urls_file: it would reach no one")


def check_owners(section: OwnersSection | None, where: str, *, wanted: bool) -> None:
    """``wanted``: ``[jobs] owner_mail``. Raises ConfigError in one line, without the address."""
    section = section or OwnersSection()
    named = bool(section.url or section.url_file)
    if wanted and not (named and section.to):
        raise ConfigError(f"{where}: jobs.owner_mail is on, which needs url (or url_file) and to")
    if named and not section.to:
        raise ConfigError(f"{where}: to is missing, such as {{user}}@site.example")
    if section.to and "{user}" not in section.to:
        raise ConfigError(f"{where}.to: {section.to!r} has no {{user}}: all mails would go to one address")
    if section.url and "{to}" not in section.url:
        raise ConfigError(f"{where}.url has no {{to}}: all mails would go to one address")


def owners_url(section: OwnersSection, folder: Path) -> str:
    """The mail server's address. Raises ConfigError."""
    urls = urls_of((section.url,) if section.url else (), section.url_file, folder)
    url = urls[0] if urls else ""
    if "{to}" not in url:
        raise ConfigError(
            "notify.owners: the address of the mail server has no {to}: all mails would go to one address"
        )
    return url


def rule_of(route: RouteSection, where: str) -> RouteRule:
    """What the route takes. Raises ConfigError."""
    if not route.levels:
        raise ConfigError(f"{where}.levels is empty: of {', '.join(NoticeLevel)}")
    return RouteRule(
        frozenset(_words(NoticeLevel, route.levels, f"{where}.levels")),
        frozenset(_words(Topic, route.topics, f"{where}.topics")),
        frozenset(route.nodes),
        frozenset(route.partitions),
        _quiet(route.quiet_hours, f"{where}.quiet_hours"),
    )


def _words(kind: type[T], given: Iterable[str], where: str) -> list[T]:
    try:
        return [kind(word) for word in given]
    except ValueError:
        wrong = next(word for word in given if word not in list(kind))
        raise ConfigError(f"{where}: {wrong!r} is none of {', '.join(kind)}") from None


def _quiet(text: str, where: str) -> QuietHours | None:
    if not text:
        return None
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{where}: {text!r} is not like 22:00-07:00 Europe/Berlin")
    start, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    return QuietHours(start, end, _zone(found[5], where))


def clock_of(text: str, where: str) -> tuple[time, tzinfo]:
    """A time of day and its zone; UTC where none is named. Raises ConfigError."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{where}: {text!r} is no time of day such as 08:00 or 08:00 Europe/Berlin")
    return time(int(found[1]), int(found[2])), _zone(found[3], where)


def _zone(name: str | None, where: str) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"{where}: this machine knows no time zone {name!r}") from None


def urls_of(
    urls: tuple[str, ...], file: Path | None, folder: Path, environ: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """The addresses, with those of the file. ``folder``: of ``controller.toml``. Raises ConfigError, which names only the file."""
    if file is None:
        return urls
    path = Path(environ.get("CREDENTIALS_DIRECTORY") or folder) / file
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"notify.urls_file: {path}: {why}") from None
    return (*urls, *(line.strip() for line in lines if line.strip() and not line.strip().startswith("#")))
