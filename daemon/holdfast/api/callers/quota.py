"""How much may be sent with one agent's token, whatever is sent: a bucket for each kind of load, refilled as time passes. A node whose
machine is replaced has two tokens for a time, of which neither uses up the other's.

Far above what an agent needs, also one that empties a full outbox after an outage. What is refused is answered 429, and the agent keeps
it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.api.callers.auth import Principal
from holdfast.api.errors import ApiError

log = logging.getLogger(__name__)

_SAID_EVERY_S = 60.0


class Load(StrEnum):
    """What is limited for each token."""

    REPORTS = "reports"
    BYTES = "bytes"
    ITEMS = "items"
    FAULTS = "findings and clears"
    HEARTBEATS = "heartbeats"
    ORDERS = "requests for orders"
    ROOMS = "requests for rendezvous"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """As much may be sent at once, and so much a second for ever."""

    burst: float
    per_s: float


LIMITS: Mapping[Load, RateLimit] = {
    Load.REPORTS: RateLimit(200, 5),
    Load.BYTES: RateLimit(32 * 1024 * 1024, 512 * 1024),
    Load.ITEMS: RateLimit(10_000, 50),
    Load.FAULTS: RateLimit(1_000, 2),
    Load.HEARTBEATS: RateLimit(100, 5),
    Load.ORDERS: RateLimit(100, 5),
    Load.ROOMS: RateLimit(200, 5),
}


class AgentQuota:
    """For one event loop. A bucket that holds anything takes the whole request and may fall below nothing, so that no report is too large
    for ever."""

    def __init__(self, monotonic_s: Callable[[], float], limits: Mapping[Load, RateLimit] = LIMITS) -> None:
        self._monotonic_s = monotonic_s
        self._limits = limits
        self._left: dict[tuple[str, Load], tuple[float, float]] = {}
        """(what is left, as of when) by the token's hash; as many as tokens that were good."""
        self._said_s: dict[str, float] = {}

    def take(self, caller: Principal, loads: Mapping[Load, float]) -> None:
        """Count what is sent with this token. Raises ApiError 429 where one of its buckets is empty; then nothing is counted."""
        token, now_s = caller.token, self._monotonic_s()
        left = {load: self._now(token, load, now_s) for load in loads}
        spent = max(left, key=lambda load: -left[load] / self._limits[load].per_s, default=None)
        if spent is not None and left[spent] <= 0:
            raise self._refusal(caller, spent, -left[spent] / self._limits[spent].per_s, now_s)
        for load, amount in loads.items():
            self._left[token, load] = left[load] - amount, now_s

    def _now(self, token: str, load: Load, now_s: float) -> float:
        limit = self._limits[load]
        left, at_s = self._left.get((token, load), (limit.burst, now_s))
        return min(limit.burst, left + (now_s - at_s) * limit.per_s)

    def _refusal(self, caller: Principal, load: Load, short_s: float, now_s: float) -> ApiError:
        node = caller.node or caller.name
        if now_s - self._said_s.get(caller.token, -math.inf) >= _SAID_EVERY_S:
            self._said_s[caller.token] = now_s
            log.warning(
                "event=node_limited node=%s hash=%s load=%r effect=answered_429", node, caller.token[:12], load.value
            )
        text = (
            f"Node {node} sends too many {load.value}: at most {self._limits[load].per_s:g} a second; send them later"
        )
        return ApiError(429, "too_many", text, retry_after_s=max(1, math.ceil(short_s)))
