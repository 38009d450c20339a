"""Who is calling: bearer tokens, stored hashed, kept in memory so that a heartbeat costs no query."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

from starlette.requests import Request
from starlette.types import Scope

from holdfast.api.errors import ApiError
from holdfast.api.transport.connections import identified
from holdfast.model.access.handover import TokenWatch, newest_used, watched
from holdfast.model.access.tokens import TokenRow
from holdfast.model.errors import OutsideError, Unavailable
from holdfast.model.policies.lookback import TOKEN_USE_EVERY_S, TOKEN_WATCH_EVERY_S
from holdfast.ports import Clock
from holdfast_checks.words import known, unknown_reads_as

log = logging.getLogger(__name__)
T = TypeVar("T")

REFRESH_S = 30.0
"""All tokens are read again this often, in one query: a revoked one stops working within this time."""
NEGATIVE_TTL_S = 2.0
STALE_S = 3600.0
"""While the database is away, a token that was valid this recently stays valid: an outage must not lose heartbeats."""
RETRY_S = 2.0
SOON_S = 2.0
"""All tokens are read again this often while those that are not known are too many to look each up: a new one works after this time."""
UNKNOWN_LIMIT = 10_000
USES_AT_ONCE = 1000
"""Uses of tokens that are recorded, and tokens that are ended, in one transaction; the others wait for the next."""
LOOKUPS_AT_ONCE = 32
"""Bound on unknown tokens: anyone can make them up, and the store is read for each."""
_MAX_TOKEN = 512
SHOWN_TOKEN = "holdfast.token"  # noqa: S105 - the name of a key
"""Key in the scope of a request from within the process: hash of the token that it is made for. Nothing that is sent over a connection sets
it."""


@unknown_reads_as(None, "the token is refused")
class Role(StrEnum):
    AGENT = "agent"
    """One node's agent: reports, heartbeats and orders of that node."""
    USER = "user"
    """One uid: its own jobs."""
    VIEWER = "viewer"
    """Reads everything."""
    OPERATOR = "operator"
    """Reads everything and gives orders to Holdfast."""


class TokenStore(Protocol):
    def find_token(self, token_hash: str) -> TokenRow | None:
        """The token with this hash (:func:`hash_token`), also a revoked or expired one."""
        ...

    def tokens(self) -> Sequence[TokenRow]:
        """All of them."""
        ...

    def tokens_used(self, uses: Mapping[str, datetime]) -> None:
        """Record the last use of each hash."""
        ...

    def end_tokens(self, hashes: Collection[str], at: datetime) -> Sequence[TokenRow]:
        """End those that were not used in the ten minutes before; those, as they are now."""
        ...


class InThread(Protocol):
    """Runs a synchronous call outside the event loop."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller."""

    name: str
    role: Role
    node: str | None = None
    uid: int | None = None
    token: str = ""
    """Hash of the token that was shown: quotas count by it, so that a stolen one uses up no other's."""


def hash_token(token: str) -> str:
    """SHA-256 in hex: tokens are 256 random bits, so no salt or slow hash is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def _principal(row: TokenRow) -> Principal | None:
    role = known(Role, row.role)
    uid = int(row.subject) if role is Role.USER and row.subject.isdecimal() else None
    if role is None or (role is Role.USER and uid is None):
        log.error(
            "event=token_refused role=%s subject=%s: unknown role, or a user without a uid", row.role, row.subject
        )
        return None
    return Principal(row.subject, role, row.subject if role is Role.AGENT else None, uid, row.hash)


class Authenticator:
    """Turns a request's bearer token into a :class:`Principal`. One event loop; look-ups run in threads."""

    def __init__(self, store: TokenStore, in_thread: InThread, clock: Clock) -> None:
        self._store = store
        self._in_thread = in_thread
        self._clock = clock
        self._known: dict[str, tuple[TokenRow, Principal | None]] = {}
        self._read_s: float | None = None
        self._next_s = 0.0
        self._tried_s = 0.0
        """When they were last read, or were to be."""
        self._away_until_s = 0.0
        """Until then the store is not asked again: callers get an error at once instead of waiting one after the other."""
        self._refreshing = asyncio.Lock()
        self._lookups = 0
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._used: dict[str, datetime] = {}
        """Uses that are to be recorded, of tokens in ``_known`` alone."""
        self._seen: dict[str, datetime] = {}
        """The last use here of nodes' tokens: the store has it once an hour."""
        self._newest: dict[str, TokenRow] = {}
        """By node: its newest token that was used."""
        self._watched: dict[str, TokenWatch] = {}
        self._newer: frozenset[str] = frozenset()
        """The tokens because of which others are watched."""
        self._looked_at: datetime | None = None
        self._told: set[str] = set()

    async def caller(self, request: Request, *roles: Role) -> Principal:
        """The caller, who must have one of ``roles`` (none named: any). Raises ApiError 401 or 403, Unavailable."""
        principal = await self._lookup(_digest(request.scope))
        if (
            principal.role is not Role.USER
        ):  # any job's owner may hold such a token, and open connections by the thousand
            identified(request.scope, principal.token, agent=principal.role is Role.AGENT)
        if roles and principal.role not in roles:
            wanted = " or ".join(roles)
            raise ApiError(403, "forbidden", f"This needs the role {wanted}; the token has {principal.role}")
        return principal

    async def token_of(self, name: str, roles: Sequence[Role]) -> str | None:
        """Hash of the newest valid token of this name that has the first of these roles, or else the next; None: there is none. Raises
        Unavailable. For callers who have proved otherwise who they are."""
        await self._read(self._clock.monotonic_s())
        now = self._clock.now()
        found = [
            (-roles.index(principal.role), row.created_at, row.hash)
            for row, principal in self._known.values()
            if principal is not None and principal.role in roles and principal.name == name and row.valid(now)
        ]
        return max(found)[2] if found else None

    async def known(self, scope: Scope, *, crowded: bool) -> Principal | None:
        """Who sends a request with this scope, by a token that was read before: the store is not asked for one that is not.
        ``crowded``: many others wait, so that one that is new is worth a reading of all."""
        now_s = self._clock.monotonic_s()
        try:
            digest = _digest(scope)
            await self._read(now_s)
            if crowded and digest not in self._known:
                await self._read_soon(now_s)
        except (ApiError, Unavailable):
            return None
        known = self._known.get(digest)
        return known[1] if known is not None and known[0].valid(self._clock.now()) else None

    async def _read(self, now_s: float) -> None:
        """All of them, when it is time."""
        if self._read_s is None or now_s >= self._next_s:
            await self._refresh(now_s)

    async def _read_soon(self, now_s: float) -> None:
        """Earlier than it would be time."""
        self._next_s = min(self._next_s, self._tried_s + SOON_S)
        await self._read(now_s)

    async def _lookup(self, digest: str) -> Principal:
        """Raises ApiError 401, with the reason: the owner of a token may know why it is refused."""
        now_s = self._clock.monotonic_s()
        await self._read(now_s)
        known = self._known.get(digest)
        if known is None:
            known = await self._look_up_new(digest, now_s)
        now = self._clock.now()
        row, principal = known if known is not None else (None, None)
        if row is None or principal is None or not row.valid(now):
            newer = self._newest.get(row.node or "") if row is not None else None
            raise ApiError(401, "unauthenticated", _refusal(row, now, newer))
        if row.node is not None:
            self._seen[digest] = now
        if self._use_is_due(digest, now):
            self._used.setdefault(digest, now)
        return principal

    async def _refresh(self, now_s: float) -> None:
        """One at a time; the others continue with what is loaded, or wait where nothing is loaded yet."""
        if self._refreshing.locked() and self._read_s is not None:
            return
        async with self._refreshing:
            if self._read_s is not None and now_s < self._next_s:
                return
            if self._clock.monotonic_s() < self._away_until_s:
                raise Unavailable("the tokens could not be read a moment ago")
            self._tried_s = now_s
            try:
                rows = await self._in_thread(self._store.tokens)
            except Unavailable:
                if self._read_s is None or now_s - self._read_s > STALE_S:
                    self._away_until_s = self._clock.monotonic_s() + RETRY_S
                    raise
                self._next_s = now_s + RETRY_S
                return
            self._known = {row.hash: (row, _principal(row)) for row in rows}
            self._read_s, self._next_s = now_s, now_s + REFRESH_S
            await self._hand_over(rows)
            await self._record_uses()

    async def _record_uses(self) -> None:
        """A store that takes no write refuses no caller: the uses are recorded next time."""
        due = [digest for digest, at in self._used.items() if self._use_is_due(digest, at)][:USES_AT_ONCE]
        uses = {digest: self._used[digest] for digest in due}
        self._used = {d: at for d, at in self._used.items() if d not in uses and self._use_is_due(d, at)}
        if not uses:
            return
        try:
            await self._in_thread(lambda: self._store.tokens_used(uses))
        except OutsideError as error:
            log.warning("event=token_uses_not_recorded tokens=%d error=%s", len(uses), error)

    async def _hand_over(self, rows: Sequence[TokenRow]) -> None:
        """End the older token of a node once only the newer one is used; while both are used, notify an operator."""
        now = self._clock.now()
        self._seen = {digest: at for digest, at in self._seen.items() if digest in self._known}
        rows = [self._as_seen(row) for row in rows]
        self._newest = newest_used(rows)
        self._watched = watched(rows, self._watched, self._looked_at, now)
        self._newer = frozenset(watch.newer.hash for watch in self._watched.values())
        self._looked_at = now
        for row in rows:
            watch = self._watched.get(row.hash)
            if watch is not None and watch.goes_on(row) and row.hash not in self._told:
                self._told.add(row.hash)
                log.warning(
                    "event=token_replaced_in_use node=%s hash=%s newer=%s: two tokens of the node are in use, and both stay valid; "
                    "find who uses the older one, then holdfast token revoke %s",
                    row.subject,
                    row.hash[:12],
                    watch.newer.hash[:12],
                    row.hash[:12],
                )
        self._told.intersection_update(self._watched)
        if over := [digest for digest, watch in self._watched.items() if watch.over(now)]:
            await self._end(over[:USES_AT_ONCE], now)

    async def _end(self, over: list[str], now: datetime) -> None:
        try:
            ended = await self._in_thread(lambda: self._store.end_tokens(over, now))
        except OutsideError as error:
            log.warning("event=tokens_not_ended tokens=%d error=%s", len(over), error)
            return
        for row in ended:
            log.warning(
                "event=token_replaced node=%s hash=%s newer=%s: its newer token is used, this one was not for ten minutes: it has ended",
                row.subject,
                row.hash[:12],
                self._watched[row.hash].newer.hash[:12],
            )
            self._known[row.hash] = (row, _principal(row))

    def _as_seen(self, row: TokenRow) -> TokenRow:
        at = self._seen.get(row.hash)
        newer = at is not None and (row.last_used_at is None or row.last_used_at < at)
        return replace(row, last_used_at=at) if newer else row

    def _use_is_due(self, digest: str, at: datetime) -> bool:
        """Where two tokens of a node are valid, the uses are written down each minute: another controller goes by them, and the doctor."""
        known = self._known.get(digest)
        if known is None:
            return False
        two = digest in self._watched or digest in self._newer
        return known[0].use_is_due(at, TOKEN_WATCH_EVERY_S if two else TOKEN_USE_EVERY_S)

    async def _look_up_new(self, digest: str, now_s: float) -> tuple[TokenRow, Principal | None] | None:
        """A token that was made since the last refresh works at once; a wrong one costs a query every two seconds."""
        asked_s = self._unknown.get(digest)
        if asked_s is not None and now_s - asked_s < NEGATIVE_TTL_S:
            return None
        if self._lookups >= LOOKUPS_AT_ONCE:
            await self._read_soon(now_s)
            if (known := self._known.get(digest)) is not None:
                return known
            raise ApiError(503, "unavailable", "Too many unknown tokens are being looked up; try again")
        self._lookups += 1
        try:
            row = await self._in_thread(lambda: self._store.find_token(digest))
        finally:
            self._lookups -= 1
        if row is not None:
            self._known[digest] = (row, _principal(row))
            return self._known[digest]
        self._unknown[digest] = now_s
        self._unknown.move_to_end(digest)
        if len(self._unknown) > UNKNOWN_LIMIT:
            self._unknown.popitem(last=False)
        return None


def _refusal(row: TokenRow | None, now: datetime, newer: TokenRow | None) -> str:
    """Why this token is refused; ``newer``: the newest that its node has used."""
    if row is None:
        return "The token is not known here; make one with `holdfast token create`"
    name, make = row.hash[:12], f"make one with `holdfast token create {row.role} {row.subject}`"
    if row.revoked:
        return f"The token {name} was revoked; {make}"
    if row.expires_at is None or now < row.expires_at:
        return f"The token {name} has a role that is not known here, or is bound to nothing; make one with `holdfast token create`"
    ended = f"The token {name} ended at {row.expires_at.isoformat(timespec='seconds')}"
    if newer is not None and newer.created_at > row.created_at:
        return f"{ended}, because a newer one of {row.subject}, {newer.hash[:12]}, was used; use that one, or {make}"
    return f"{ended}; {make}"


def _digest(scope: Scope) -> str:
    """Hash of the token that a request shows. Raises ApiError 401."""
    shown = scope.get(SHOWN_TOKEN)
    return shown if isinstance(shown, str) else hash_token(_bearer(Request(scope)))


def _bearer(request: Request) -> str:
    header = request.headers.get("authorization", "")
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
        raise ApiError(401, "unauthenticated", "Send the header `Authorization: Bearer TOKEN`")
    return token
