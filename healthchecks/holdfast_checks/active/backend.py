"""Backends on which a test computes: GPUs through PyTorch, or this process in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class BackendUnusable(Exception):
    """There is nothing to test with; the text says why."""


@dataclass(frozen=True)
class DevicePlace:
    """One GPU, or one stand-in for it."""

    component: str
    """UUID of the GPU."""
    index: int


@dataclass(frozen=True)
class MemoryPass:
    """One pass over a place's memory."""

    tested_bytes: int
    errors: int
    """Words that were not what had been written."""
    patterns: int
    seconds: float


@dataclass(frozen=True)
class Burn:
    """Products of one pair of matrices, again and again."""

    products: int
    wrong: int
    """Elements that differed from the first product, or from what the processor computed."""
    checksum: int
    """Of the first product. The factors are small whole numbers, so that every sum is exact in any order and on any part: two
    places that differ cannot both be right."""
    tflops: float


@dataclass(frozen=True)
class CopyRate:
    """A copy, timed and compared."""

    gigabytes_s: float
    errors: int


class Backend(Protocol):
    """Raises BackendUnusable, or RuntimeError of the library, from any call."""

    name: str

    def places(self) -> tuple[DevicePlace, ...]: ...

    def memory(self, place: DevicePlace, fraction: float, seconds: float) -> MemoryPass:
        """Write patterns into ``fraction`` of the free memory and read them back, each at least once."""

    def burn(self, place: DevicePlace, seconds: float) -> Burn: ...

    def expected_checksum(self) -> int:
        """Of the product, computed by the processor."""

    def copy(self, place: DevicePlace, seconds: float) -> dict[str, CopyRate]:
        """Host to device (``h2d``) and back (``d2h``)."""

    def pair(self, source: DevicePlace, target: DevicePlace, seconds: float) -> CopyRate: ...
