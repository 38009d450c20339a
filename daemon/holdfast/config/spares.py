"""What ``[spares]`` may say beyond types and ranges."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.model.errors import ConfigError
from holdfast.model.policies.policy import SparePolicy

P99 = "p99"
_TIME = re.compile(r"^([01]\d|2[0-3]):[0-5]\d$")


def check_spares(spares: SparePolicy, where: str) -> None:
    """Raises ConfigError in one line for what no spare pool could be kept by."""
    if not spares.reservation:
        raise ConfigError(f"{where}.reservation is empty")
    if isinstance(spares.wanted, str) and spares.wanted not in ("", P99):
        raise ConfigError(f'{where}.wanted: {spares.wanted!r} is neither a number nor "{P99}" nor empty')
    for key in ("deep_from", "deep_until"):
        if not _TIME.match(getattr(spares, key)):
            raise ConfigError(f"{where}.{key}: {getattr(spares, key)!r} is no time of day such as 02:30")
    if 0 < spares.check_every_s < 60:
        raise ConfigError(f"{where}.check_every_s: {spares.check_every_s} is not 0 and less than 60")
    try:
        ZoneInfo(spares.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"{where}.zone: this machine knows no time zone {spares.zone!r}") from None
