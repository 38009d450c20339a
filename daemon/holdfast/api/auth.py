"""Who is calling: bearer tokens, stored hashed, remembered for a short while so that a heartbeat costs no query."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from starlette.requests import Request

from holdfast.api.errors import ApiError
from holdfast.model.errors import Unavailable
from holdfast.ports import Clock

log = logging.getLogger(__name__)

POSITIVE_TTL_S = 60.0
"""A revoked token stops working within this time. 4,096 agents then cost 70 look-ups a second at most."""
NEGATIVE_TTL_S = 2.0
STALE_S = 3600.0
"""While the database is away, a token that was good this long ago goes on: its silence is no reason to lose heartbeats."""
CACHE_LIMIT = 50_000
_MAX_TOKEN = 512


class Role(StrEnum):
    AGENT = "agent"
    """One node's agent: reports, heartbeats and orders of that node."""
    USER = "user"
    """One uid: its own jobs."""
    VIEWER = "viewer"
    """Reads everything."""
    OPERATOR = "operator"
    """Reads everything and gives orders to Holdfast."""


class TokenRow(Protocol):
    """A token as the store keeps it."""

    @property
    def role(self) -> str: ...

    @property
    def subject(self) -> str:
        """Whom it is bound to: an agent's node, a user's uid, somebody's name."""
        ...

    def valid(self, now: datetime) -> bool: ...


class TokenStore(Protocol):
    def find_token(self, token_hash: str) -> TokenRow | None:
        """The token with this hash (:func:`hash_token`), also a revoked or expired one."""
        ...


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller."""

    name: str
    role: Role
    node: str | None = None
    uid: int | None = None


def hash_token(token: str) -> str:
    """SHA-256 in hex: tokens are 256 random bits, so no salt or slow hash is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def _principal(row: TokenRow, now: datetime) -> Principal | None:
    if not row.valid(now):
        return None
    try:
        role = Role(row.role)
        uid = int(row.subject) if role is Role.USER else None
    except ValueError:
        log.error("token refused role=%s subject=%s: unknown role, or a user without a uid", row.role, row.subject)
        return None
    return Principal(row.subject, role, row.subject if role is Role.AGENT else None, uid)


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: Principal | None
    at_s: float


class Authenticator:
    """Turns a request's bearer token into a :class:`Principal`. One event loop; look-ups run in threads."""

    def __init__(
        self,
        find: Callable[[str], TokenRow | None],
        in_thread: Callable[[Callable[[], TokenRow | None]], Awaitable[TokenRow | None]],
        clock: Clock,
    ) -> None:
        self._find = find
        self._in_thread = in_thread
        self._clock = clock
        self._cache: OrderedDict[str, _Entry] = OrderedDict()

    async def caller(self, request: Request, *roles: Role) -> Principal:
        """The caller, who must have one of ``roles`` (none named: any). Raises ApiError 401 or 403."""
        principal = await self._lookup(_bearer(request))
        if principal is None:
            raise ApiError(401, "unauthenticated", "The token is not known here; make one with `holdfast token create`")
        if roles and principal.role not in roles:
            wanted = " or ".join(roles)
            raise ApiError(403, "forbidden", f"This needs the role {wanted}; the token has {principal.role}")
        return principal

    async def _lookup(self, token: str) -> Principal | None:
        digest = hash_token(token)
        now_s = self._clock.monotonic_s()
        entry = self._cache.get(digest)
        if entry is not None:
            ttl_s = POSITIVE_TTL_S if entry.principal is not None else NEGATIVE_TTL_S
            if now_s - entry.at_s < ttl_s:
                return entry.principal
        try:
            row = await self._in_thread(lambda: self._find(digest))
        except Unavailable:
            if entry is not None and entry.principal is not None and now_s - entry.at_s < STALE_S:
                return entry.principal
            raise
        principal = _principal(row, self._clock.now()) if row is not None else None
        self._cache[digest] = _Entry(principal, now_s)
        self._cache.move_to_end(digest)
        if len(self._cache) > CACHE_LIMIT:
            self._cache.popitem(last=False)
        return principal


def _bearer(request: Request) -> str:
    header = request.headers.get("authorization", "")
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
        raise ApiError(401, "unauthenticated", "Send the header `Authorization: Bearer TOKEN`")
    return token
