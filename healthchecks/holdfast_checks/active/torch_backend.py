"""GPUs through PyTorch; with ``cpu`` the same code on the processor, with small sizes."""

from __future__ import annotations

import importlib
import time
from typing import Any

from holdfast_checks.active.backend import BackendUnusable, Burn, CopyRate, DevicePlace, MemoryPass

_BLOCK_BYTES = 1 << 30
_SPARE_BLOCKS = 2
"""Room for what the comparison needs itself."""
_CPU_BLOCK_BYTES = 1 << 22
_CPU_BLOCKS = 4
_SIZE = {"cuda": 8192, "cpu": 256}
_ROWS = 64
"""Of the first product, computed by the processor too."""
_COPY_BYTES = {"cuda": 1 << 28, "cpu": 1 << 22}
_COPIES = 8
_PRODUCTS = 8
"""Products between two clock readings, which wait for the GPU."""
_PATTERNS = (0x5555555555555555, -0x5555555555555556, 0, -1)
_ADDRESSES = len(_PATTERNS)
"""Number of the pattern in which every word holds its own address: finds address lines that are stuck."""


class TorchBackend:
    """``device`` is ``cuda`` or ``cpu``. Raises BackendUnusable without PyTorch, or without a GPU that it can use."""

    def __init__(self, device: str) -> None:
        try:
            self._torch: Any = importlib.import_module("torch")
        except (ImportError, OSError) as error:  # OSError: a library of it that does not load
            raise BackendUnusable(f"PyTorch cannot be imported: {error}") from error
        self.name = device
        if device == "cuda" and not self._torch.cuda.is_available():
            raise BackendUnusable("PyTorch finds no GPU that it can use")
        self._factors: tuple[Any, Any] | None = None

    def places(self) -> tuple[DevicePlace, ...]:
        if self.name == "cpu":
            return (DevicePlace("cpu-0", 0), DevicePlace("cpu-1", 1))
        cuda = self._torch.cuda
        return tuple(
            DevicePlace(_uuid(cuda.get_device_properties(index), index), index) for index in range(cuda.device_count())
        )

    def memory(self, place: DevicePlace, fraction: float, seconds: float) -> MemoryPass:
        began_s = time.monotonic()
        words, count = self._room(place, fraction)
        blocks = [self._torch.empty(words, dtype=self._torch.int64, device=self._device(place)) for _ in range(count)]
        errors = done = 0
        while done <= _ADDRESSES or time.monotonic() - began_s < seconds:
            pattern = done % (_ADDRESSES + 1)
            for number, block in enumerate(blocks):
                self._write(block, pattern, number * words)
            self._wait(place)
            errors += sum(int(self._wrong(block, pattern, number * words)) for number, block in enumerate(blocks))
            done += 1
        return MemoryPass(words * 8 * count, errors, done, time.monotonic() - began_s)

    def burn(self, place: DevicePlace, seconds: float) -> Burn:
        torch, device = self._torch, self._device(place)
        left, right = (factor.to(device).to(self._dtype()) for factor in self._both_factors())
        rows = self._exact_rows().to(device)
        first = left @ right
        wrong = (first[:_ROWS] != rows).sum()
        self._wait(place)
        products, began_s = 0, time.monotonic()
        while True:
            for _ in range(_PRODUCTS):
                wrong += (left @ right != first).sum()
            products += _PRODUCTS
            self._wait(place)
            elapsed_s = time.monotonic() - began_s
            if elapsed_s >= seconds:
                break
        size = _SIZE[self.name]
        return Burn(
            products + 1, int(wrong), _checksum(torch, first), 2 * size**3 * products / max(elapsed_s, 1e-9) / 1e12
        )

    def expected_checksum(self) -> int:
        left, right = self._both_factors()
        return _checksum(self._torch, (left.float() @ right.float()).to(self._dtype()))

    def copy(self, place: DevicePlace, seconds: float) -> dict[str, CopyRate]:
        host, device = self._pattern(), self._device(place)
        back = self._torch.zeros_like(host)
        if self.name == "cuda":
            host, back = host.pin_memory(), back.pin_memory()
        there = self._torch.empty_like(host, device=device)
        up = self._timed(place, there, host, seconds / 2)
        down = self._timed(place, back, there, seconds / 2)
        errors = int((back != host).sum())
        return {"h2d": CopyRate(up, 0), "d2h": CopyRate(down, errors)}

    def pair(self, source: DevicePlace, target: DevicePlace, seconds: float) -> CopyRate:
        here = self._pattern().to(self._device(source))
        there = self._torch.zeros_like(here, device=self._device(target))
        rate = self._timed(source, there, here, seconds)
        self._wait(target)
        return CopyRate(rate, int((there.cpu() != here.cpu()).sum()))

    def _timed(self, place: DevicePlace, target: Any, source: Any, seconds: float) -> float:
        """GB/s of ``target.copy_(source)``, after one copy to warm up."""
        target.copy_(source, non_blocking=True)
        self._wait(place)
        copies, began_s = 0, time.monotonic()
        while True:
            for _ in range(_COPIES):
                target.copy_(source, non_blocking=True)
            copies += _COPIES
            self._wait(place)
            elapsed_s = time.monotonic() - began_s
            if elapsed_s >= seconds:
                return float(copies * source.numel() / max(elapsed_s, 1e-9) / 1e9)

    def _room(self, place: DevicePlace, fraction: float) -> tuple[int, int]:
        """(words of a block, how many blocks)."""
        if self.name == "cpu":
            return _CPU_BLOCK_BYTES // 8, _CPU_BLOCKS
        free, _total = self._torch.cuda.mem_get_info(place.index)
        count = int(free * fraction) // _BLOCK_BYTES - _SPARE_BLOCKS
        if count < 1:
            raise BackendUnusable(f"only {free >> 20} MiB of GPU memory are free")
        return _BLOCK_BYTES // 8, count

    def _write(self, block: Any, pattern: int, address: int) -> None:
        if pattern == _ADDRESSES:
            self._torch.arange(address, address + block.numel(), out=block)
        else:
            block.fill_(_PATTERNS[pattern])

    def _wrong(self, block: Any, pattern: int, address: int) -> Any:
        if pattern == _ADDRESSES:
            wanted = self._torch.arange(address, address + block.numel(), dtype=block.dtype, device=block.device)
            return (block != wanted).sum()
        return (block != _PATTERNS[pattern]).sum()

    def _both_factors(self) -> tuple[Any, Any]:
        """The same on every place and at every run."""
        if self._factors is None:
            torch, size = self._torch, _SIZE[self.name]
            numbers = torch.Generator().manual_seed(20260101)
            self._factors = (
                torch.randint(-1, 2, (size, size), dtype=torch.int8, generator=numbers),
                torch.randint(-1, 2, (size, size), dtype=torch.int8, generator=numbers),
            )
        return self._factors

    def _exact_rows(self) -> Any:
        left, right = self._both_factors()
        return (left[:_ROWS].float() @ right.float()).to(self._dtype())

    def _pattern(self) -> Any:
        torch = self._torch
        numbers = torch.Generator().manual_seed(7)
        return torch.randint(0, 256, (_COPY_BYTES[self.name],), dtype=torch.uint8, generator=numbers)

    def _dtype(self) -> Any:
        return self._torch.bfloat16 if self.name == "cuda" else self._torch.float32

    def _device(self, place: DevicePlace) -> Any:
        return self._torch.device("cpu") if self.name == "cpu" else self._torch.device("cuda", place.index)

    def _wait(self, place: DevicePlace) -> None:
        if self.name == "cuda":
            self._torch.cuda.synchronize(place.index)


def _checksum(torch: Any, product: Any) -> int:
    """Depends on every element and its place; a piece at a time, as it needs eight bytes an element."""
    total = 0
    for number, rows in enumerate(product.split(512)):
        flat = rows.float().to(torch.int64).flatten()
        weights = torch.arange(flat.numel(), device=flat.device) % 65521 + 1 + number
        total += int((flat * weights).sum())
    return total


def _uuid(properties: Any, index: int) -> str:
    """As NVML writes it."""
    text = str(getattr(properties, "uuid", "") or "")
    if not text:
        return f"gpu-index-{index}"
    return text if text.startswith("GPU-") else f"GPU-{text}"
