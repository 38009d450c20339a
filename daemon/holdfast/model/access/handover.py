"""Handover of node tokens: older ones end once the node uses a newer one and no longer uses them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.model.access.tokens import TokenRow
from holdfast.model.policies.lookback import TOKEN_HANDOVER_S, TOKEN_STEADY_S

_HANDOVER, _STEADY = timedelta(seconds=TOKEN_HANDOVER_S), timedelta(seconds=TOKEN_STEADY_S)


@dataclass(frozen=True, slots=True)
class TokenWatch:
    """An older token of a node that has used a newer one."""

    newer: TokenRow
    since: datetime
    """From when on both were seen to be valid, and the newer one in use."""
    quiet_since: datetime
    """Since when the newer one is in steady use and this one is not used."""

    def over(self, now: datetime) -> bool:
        """Whether the older one ends."""
        return now - self.quiet_since >= _HANDOVER

    def goes_on(self, old: TokenRow) -> bool:
        """Whether the older one is used although the node has had the time to change."""
        return old.last_used_at is not None and old.last_used_at - self.since >= _HANDOVER


def newest_used(rows: Iterable[TokenRow]) -> dict[str, TokenRow]:
    """Node → its newest token that was used. Not those of before an upgrade: what their nodes use was not recorded."""
    found: dict[str, TokenRow] = {}
    for row in rows:
        node = row.node
        if node is None or row.revoked or row.last_used_at is None or row.recorded_since is not None:
            continue
        if node not in found or found[node].created_at < row.created_at:
            found[node] = row
    return found


def watched(
    rows: Iterable[TokenRow], before: Mapping[str, TokenWatch], looked_at: datetime | None, now: datetime
) -> dict[str, TokenWatch]:
    """By hash: each valid token whose node has used a newer one. ``before`` is what this said at ``looked_at``; if that was long ago, or
    the newer token is not in steady use (the network is cut, the controller was down), the ten minutes start again: unused then does not
    mean replaced."""
    rows = tuple(rows)
    newest = newest_used(rows)
    heard = looked_at is not None and timedelta() <= now - looked_at < _STEADY
    found: dict[str, TokenWatch] = {}
    for row in rows:
        newer = newest.get(row.node or "")
        if newer is None or row.created_at >= newer.created_at or not (row.valid(now) and newer.valid(now)):
            continue
        last = before.get(row.hash)
        quiet_since = now
        if last is not None and heard and newer.last_used_at is not None and now - newer.last_used_at < _STEADY:
            quiet_since = max(last.quiet_since, row.last_used_at or last.quiet_since)
        found[row.hash] = TokenWatch(newer, last.since if last is not None else now, quiet_since)
    return found


def two_in_use(rows: Iterable[TokenRow], now: datetime) -> list[tuple[TokenRow, TokenRow]]:
    """(older, newer) token of each node of which both were used recently and within five minutes of each other, as recorded."""
    rows = tuple(rows)
    by_hash = {row.hash: row for row in rows}
    found = []
    for token_hash, watch in watched(rows, {}, None, now).items():
        old, new = by_hash[token_hash].last_used_at, watch.newer.last_used_at
        if old is not None and new is not None and now - min(old, new) < _HANDOVER and abs(old - new) < _STEADY:
            found.append((by_hash[token_hash], watch.newer))
    return found
