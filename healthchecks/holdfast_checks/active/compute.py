"""Tests that compute: their calls of the backend, and the judgement of its answers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast_checks.active.backend import Backend, BackendUnusable, Burn, CopyRate, DevicePlace, MemoryPass
from holdfast_checks.active.report import NODE, ActiveReport, Corruption, Figure, PlaceTrouble

T = TypeVar("T")
_PAIR_S = 0.25
"""One pair of GPUs; eight of them have 56."""


def memory(backend: Backend, seconds: float, fraction: float) -> ActiveReport:
    """All places at once: patterns into nearly all free memory and back."""
    done, troubles = _everywhere(backend, lambda place: backend.memory(place, fraction, seconds))
    bad = [
        Corruption(place.component, "memory", f"{one.errors} words of memory were not what had been written")
        for place, one in done
        if one.errors
    ]
    figures = [Figure(place.component, "tested", one.tested_bytes / 1e9, "GB") for place, one in done]
    return _report("memory", backend, done, figures, bad, troubles)


def burn(backend: Backend, seconds: float) -> ActiveReport:
    """All places at once: one product again and again, compared with itself, with the processor and with the other places."""
    done, troubles = _everywhere(backend, lambda place: backend.burn(place, seconds))
    bad = [
        Corruption(place.component, "arithmetic", f"{one.wrong} elements of {one.products} products were wrong")
        for place, one in done
        if one.wrong
    ]
    known = {corruption.component for corruption in bad}
    right = _right_checksum(backend, [one.checksum for _place, one in done])
    bad += [
        Corruption(place.component, "arithmetic", "its product differs from what the others compute")
        for place, one in done
        if one.checksum != right and place.component not in known
    ]
    figures = [Figure(place.component, "burn", one.tflops, "TFLOP/s") for place, one in done]
    return _report("burn", backend, done, figures, bad, troubles)


def _right_checksum(backend: Backend, checksums: list[int]) -> int | None:
    """The one that all have; where they differ the processor decides."""
    counted = Counter(checksums)
    if len(counted) > 1:
        return backend.expected_checksum()
    return next(iter(counted), None)


def copy(backend: Backend, seconds: float) -> ActiveReport:
    """One place after the other: from the host's memory and back."""
    places = backend.places()
    share_s = seconds / max(1, len(places))
    done, troubles = _one_by_one(places, lambda place: backend.copy(place, min(2.0, share_s)))
    figures = [
        Figure(place.component, name, rate.gigabytes_s, "GB/s") for place, rates in done for name, rate in rates.items()
    ]
    bad = [
        Corruption(place.component, "copy", f"{rate.errors} bytes changed in transfer ({name})")
        for place, rates in done
        for name, rate in rates.items()
        if rate.errors
    ]
    return _report("copy", backend, done, figures, bad, troubles)


def pair(backend: Backend, seconds: float) -> ActiveReport:
    """Every place to every other. A slow place shows in the median of its pairs, a slow pair alone in the slowest."""
    places = backend.places()
    if len(places) < 2:
        return ActiveReport("pair", backend.name, skipped="there is one GPU only")
    pairs = [(one, other) for one in places for other in places if one != other]
    share_s = min(_PAIR_S, seconds / len(pairs))
    rates: dict[tuple[DevicePlace, DevicePlace], CopyRate] = {}
    troubles: list[PlaceTrouble] = []
    for one, other in pairs:
        try:
            rates[one, other] = backend.pair(one, other, share_s)
        except (RuntimeError, BackendUnusable) as error:
            troubles.append(PlaceTrouble(one.component, _words(error)))
    bad = [
        Corruption(one.component, "pair", f"{rate.errors} bytes changed in transfer to {other.component}")
        for (one, other), rate in rates.items()
        if rate.errors
    ]
    figures = []
    for place in places:
        own = [rate.gigabytes_s for both, rate in rates.items() if place in both]
        if own:
            figures.append(Figure(place.component, "pair", statistics.median(own), "GB/s"))
    if rates:
        figures.append(Figure(NODE, "slowest_pair", min(rate.gigabytes_s for rate in rates.values()), "GB/s"))
    done = [(place, None) for place in places if any(place in both for both in rates)]
    return _report("pair", backend, done, figures, bad, troubles)


def _everywhere(
    backend: Backend, work: Callable[[DevicePlace], T]
) -> tuple[list[tuple[DevicePlace, T]], list[PlaceTrouble]]:
    places = backend.places()
    with ThreadPoolExecutor(max(1, len(places))) as pool:
        running = [(place, pool.submit(work, place)) for place in places]
    return _gathered([(place, future.result) for place, future in running])


def _one_by_one(
    places: tuple[DevicePlace, ...], work: Callable[[DevicePlace], T]
) -> tuple[list[tuple[DevicePlace, T]], list[PlaceTrouble]]:
    return _gathered([(place, lambda place=place: work(place)) for place in places])  # type: ignore[misc]


def _gathered(
    asked: list[tuple[DevicePlace, Callable[[], T]]],
) -> tuple[list[tuple[DevicePlace, T]], list[PlaceTrouble]]:
    done: list[tuple[DevicePlace, T]] = []
    troubles: list[PlaceTrouble] = []
    for place, result in asked:
        try:
            done.append((place, result()))
        except (RuntimeError, BackendUnusable) as error:  # PyTorch's errors of CUDA are RuntimeErrors
            troubles.append(PlaceTrouble(place.component, _words(error)))
    return done, troubles


def _report(
    test: str,
    backend: Backend,
    done: list[tuple[DevicePlace, MemoryPass]]
    | list[tuple[DevicePlace, Burn]]
    | list[tuple[DevicePlace, dict[str, CopyRate]]]
    | list[tuple[DevicePlace, None]],
    figures: list[Figure],
    bad: list[Corruption],
    troubles: list[PlaceTrouble],
) -> ActiveReport:
    tested = tuple(place.component for place, _result in done)
    return ActiveReport(test, backend.name, tested, tuple(figures), tuple(bad), tuple(troubles))


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
