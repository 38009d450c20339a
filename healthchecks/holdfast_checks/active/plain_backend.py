"""Plain Python in place of a GPU: for rehearsals and unit tests. Small and slow."""

from __future__ import annotations

import random
import time
from array import array

from holdfast_checks.active.backend import Burn, CopyRate, DevicePlace, MemoryPass

_WORDS = 1 << 16
_SIZE = 24
_COPY_BYTES = 1 << 20
_PATTERNS = (0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 0, 0xFFFFFFFFFFFFFFFF)


class PlainBackend:
    """Two places that are both this process."""

    name = "plain"

    def __init__(self, places: int = 2) -> None:
        self._places = tuple(DevicePlace(f"plain-{index}", index) for index in range(places))

    def places(self) -> tuple[DevicePlace, ...]:
        return self._places

    def stored(self, place: DevicePlace, data: bytes) -> bytes:
        """What comes back of data that was stored at a place; a test may give other data back."""
        return data

    def multiplied(self, place: DevicePlace, product: list[int]) -> list[int]:
        """What a place makes of a product; a test may change it."""
        return product

    def memory(self, place: DevicePlace, fraction: float, seconds: float) -> MemoryPass:
        began_s = time.monotonic()
        errors = patterns = 0
        while patterns < len(_PATTERNS) or time.monotonic() - began_s < seconds:
            written = array("Q", [_PATTERNS[patterns % len(_PATTERNS)]]) * _WORDS
            read = array("Q", self.stored(place, written.tobytes()))
            errors += sum(a != b for a, b in zip(written, read, strict=False)) if read != written else 0
            patterns += 1
        return MemoryPass(_WORDS * 8, errors, patterns, time.monotonic() - began_s)

    def burn(self, place: DevicePlace, seconds: float) -> Burn:
        left, right = _factors()
        began_s = time.monotonic()
        first = self.multiplied(place, _multiply(left, right))
        wrong, products = 0, 1
        while products < 2 or time.monotonic() - began_s < seconds:
            wrong += sum(a != b for a, b in zip(first, self.multiplied(place, _multiply(left, right)), strict=False))
            products += 1
        elapsed_s = max(time.monotonic() - began_s, 1e-9)
        return Burn(products, wrong, _checksum(first), 2 * _SIZE**3 * products / elapsed_s / 1e12)

    def expected_checksum(self) -> int:
        return _checksum(_multiply(*_factors()))

    def copy(self, place: DevicePlace, seconds: float) -> dict[str, CopyRate]:
        return {"h2d": self._copied(place, seconds / 2), "d2h": self._copied(place, seconds / 2)}

    def pair(self, source: DevicePlace, target: DevicePlace, seconds: float) -> CopyRate:
        return self._copied(target, seconds)

    def _copied(self, place: DevicePlace, seconds: float) -> CopyRate:
        data = random.Random(7).randbytes(_COPY_BYTES)  # noqa: S311 - a pattern
        began_s = time.monotonic()
        copies = 0
        while copies < 2 or time.monotonic() - began_s < seconds:
            back = self.stored(place, bytes(bytearray(data)))
            copies += 1
        elapsed_s = max(time.monotonic() - began_s, 1e-9)
        return CopyRate(copies * _COPY_BYTES / elapsed_s / 1e9, int(back != data))


def _factors() -> tuple[list[int], list[int]]:
    numbers = random.Random(1)  # noqa: S311 - reproducible by intent
    return [numbers.randint(-1, 1) for _ in range(_SIZE**2)], [numbers.randint(-1, 1) for _ in range(_SIZE**2)]


def _multiply(left: list[int], right: list[int]) -> list[int]:
    columns = [right[column::_SIZE] for column in range(_SIZE)]
    rows = [left[row * _SIZE : (row + 1) * _SIZE] for row in range(_SIZE)]
    return [sum(a * b for a, b in zip(row, column, strict=False)) for row in rows for column in columns]


def _checksum(product: list[int]) -> int:
    return sum(value * (index % 65521 + 1) for index, value in enumerate(product))
