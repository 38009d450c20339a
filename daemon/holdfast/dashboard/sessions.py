"""Who is signed in: sessions of browsers and the one-time codes that begin them. In memory: a restart signs everybody out.

A session stands for a token: it can do no more than that one, and ends when that one does."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

CODE_S = 120.0
"""A code is typed or followed at once."""
MOST_SESSIONS = 1000
MOST_PER_TOKEN = 20
"""Of its sessions, and of its codes."""
MOST_CODES = 1000


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """One signed-in browser."""

    token: str
    """Hash of its token."""
    until_s: float
    """Monotonic."""
    read_only: bool = False
    """It changes nothing, whatever the token may."""
    proxied: str = ""
    """Name under which its user is signed in at the proxy: it is valid while the proxy gives this name. Empty: it was begun by hand."""


class BrowserSessions:
    """All of them. For one event loop."""

    def __init__(self, monotonic_s: Callable[[], float], last_s: float) -> None:
        """``last_s``: how long a session lasts."""
        self._monotonic_s = monotonic_s
        self._last_s = last_s
        self._open: OrderedDict[str, BrowserSession] = OrderedDict()
        """By the hash of the cookie's secret, oldest first."""
        self._codes: OrderedDict[str, BrowserSession] = OrderedDict()

    def code(self, token: str, *, read_only: bool) -> str:
        """A code that begins one session for this token (its hash) within :data:`CODE_S`."""
        self._make_room(self._codes, token, MOST_CODES)
        made = secrets.token_urlsafe(24)
        self._codes[_hashed(made)] = BrowserSession(token, self._monotonic_s() + CODE_S, read_only)
        return made

    def redeem(self, code: str) -> BrowserSession | None:
        """What the code allows, once; None: it is not known, was used, or is too old."""
        found = self._codes.pop(_hashed(code), None)
        return found if found is not None and found.until_s > self._monotonic_s() else None

    def begin(self, token: str, *, read_only: bool, proxied: str = "") -> str:
        """A new session for a token (its hash): the secret for its cookie, which no one has seen before."""
        self._make_room(self._open, token, MOST_SESSIONS)
        made = secrets.token_urlsafe(32)
        self._open[_hashed(made)] = BrowserSession(token, self._monotonic_s() + self._last_s, read_only, proxied)
        return made

    def find(self, secret: str) -> BrowserSession | None:
        """The session of a cookie; None: it is over, or never was."""
        found = self._open.get(_hashed(secret))
        return found if found is not None and found.until_s > self._monotonic_s() else None

    def end(self, secret: str) -> None:
        self._open.pop(_hashed(secret), None)

    def _make_room(self, kept: OrderedDict[str, BrowserSession], token: str, most: int) -> None:
        """For one more of a token: drop what is over, then the oldest of this token, then of the one that has most. So no token ends
        what belongs to one with fewer."""
        now_s = self._monotonic_s()
        for name in [name for name, each in kept.items() if each.until_s <= now_s]:
            del kept[name]
        counts = Counter(each.token for each in kept.values())
        while counts[token] >= MOST_PER_TOKEN or len(kept) >= most:
            whose = token if counts[token] >= MOST_PER_TOKEN else max(counts, key=counts.__getitem__)
            del kept[next(name for name, each in kept.items() if each.token == whose)]
            counts[whose] -= 1


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
