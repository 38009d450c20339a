"""Encoding of training state as a byte stream and its JSON index: numbers, texts and tensors, and nothing that could be executed.

Pickle, on which torch's own formats are based, can execute code on reading; this cannot."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from holdfast_train.errors import TransferFailed

_ALIGN: Final = 64
_DEPTH_MAX = 64
_DTYPES: Final = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
        *(
            torch.float8_e4m3fn,
            torch.float8_e5m2,
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
            torch.bool,
        ),
    )
}
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}


class Readable(Protocol):
    """A state that can be read in parts."""

    @property
    def index(self) -> bytes:
        """The index as JSON."""

    @property
    def size_bytes(self) -> int:
        """Size of the body."""

    def read(self, start: int, stop: int) -> bytearray | memoryview:
        """Read bytes of the body; fewer, or none, at its end."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An immutable copy of a state, independent of the tensors that it was taken from."""

    index: bytes
    body: bytearray

    @property
    def size_bytes(self) -> int:
        return len(self.body)

    def read(self, start: int, stop: int) -> memoryview:
        return memoryview(self.body)[start:stop]


@dataclass(frozen=True, slots=True)
class StateLayout:
    """A view of a state in its tensors: nothing is copied before it is read, and reads return the present values."""

    index: bytes
    size_bytes: int
    places: tuple[int, ...]
    tensors: tuple[torch.Tensor, ...]
    """Tensors by position in the body, none of them empty."""

    def read(self, start: int, stop: int) -> bytearray:
        body = bytearray(max(0, min(stop, self.size_bytes) - start))
        if body:
            self.copy(torch.frombuffer(body, dtype=torch.uint8), start)
        return body

    def copy(self, into: torch.Tensor, start: int) -> None:
        """Read bytes from ``start`` on, as many as ``into`` holds."""
        stop = start + into.numel()
        for number in range(max(0, bisect_right(self.places, start) - 1), len(self.places)):
            at = self.places[number]
            if at >= stop:
                return
            source = _raw(self.tensors[number])
            low, high = max(start, at), min(stop, at + source.numel())
            if low < high:
                into[low - start : high - start].copy_(source[low - at : high - at])


def pack(state: object) -> Packed:
    """A copy of the state. Raises TypeError for any value but numbers, texts, lists, tuples, dictionaries and tensors."""
    return frozen(lay_out(state))


def frozen(layout: StateLayout) -> Packed:
    """A copy of the present values of its tensors. Raises MemoryError."""
    body = bytearray(layout.size_bytes)
    layout.copy(torch.frombuffer(body, dtype=torch.uint8), 0)
    return Packed(layout.index, body)


def lay_out(state: object) -> StateLayout:
    """The layout of a state. Raises TypeError for any value but numbers, texts, lists, tuples, dictionaries and tensors."""
    tensors: list[tuple[int, torch.Tensor]] = []
    size = 0

    def place(tensor: torch.Tensor) -> dict[str, Any]:
        nonlocal size
        if tensor.dtype not in _NAMES or tensor.layout is not torch.strided:
            raise TypeError(f"a tensor of {tensor.dtype}, {tensor.layout} cannot be sent to a peer")
        at, size = size, -(-(size + tensor.numel() * tensor.element_size()) // _ALIGN) * _ALIGN
        tensors.append((at, tensor))
        return {"x": [_NAMES[tensor.dtype], list(tensor.shape), at]}

    def tree(value: object) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.Tensor):
            return place(value.detach())
        if isinstance(value, dict):
            return {"d": [[_key(key), tree(item)] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            return {"l" if isinstance(value, list) else "t": [tree(item) for item in value]}
        raise TypeError(f"{type(value).__name__} in the training state cannot be sent to a peer")

    described = tree(state)
    size = max(size, _ALIGN)
    index = json.dumps({"bytes": size, "state": described}, separators=(",", ":")).encode()
    held = [(at, tensor) for at, tensor in tensors if tensor.numel()]
    return StateLayout(index, size, tuple(at for at, _ in held), tuple(tensor for _, tensor in held))


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes."""
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return numbers.reshape(-1).view(torch.uint8)


def body_bytes(index: bytes) -> int:
    """Length of the body for this index. Raises TransferFailed."""
    size = _read(index).get("bytes")
    if type(size) is not int or not 0 < size < 1 << 48:
        raise TransferFailed("the index of a peer's state gives no size")
    return size


def unpack(packed: Packed) -> Any:
    """Decode a state; its tensors share the body's memory. Raises TransferFailed when index and body are not consistent."""
    whole = torch.frombuffer(packed.body, dtype=torch.uint8)
    try:
        return _untree(_read(packed.index)["state"], whole, 0)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise TransferFailed(f"the index of a peer's state is invalid: {str(error)[:200]!r}") from error


def _untree(node: Any, whole: torch.Tensor, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise ValueError("too deep")
    if not isinstance(node, dict):
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise ValueError("a bare list")
    ((kind, value),) = node.items()
    if kind == "x":
        return _tensor(value, whole)
    if kind == "d":
        return {_key(key): _untree(item, whole, depth + 1) for key, item in value}
    items = [_untree(item, whole, depth + 1) for item in value]
    return {"l": list, "t": tuple}[kind](items)


def _tensor(described: Any, whole: torch.Tensor) -> torch.Tensor:
    name, shape, at = described
    dtype = _DTYPES[name]
    if type(at) is not int or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("a tensor's place")
    size = math.prod(shape) * dtype.itemsize
    if at < 0 or at % _ALIGN or at + size > whole.numel():
        raise ValueError("a tensor outside the body")
    return whole[at : at + size].view(dtype).reshape(shape)


def _key(key: object) -> str | int:
    if isinstance(key, str) or type(key) is int:
        return key
    raise TypeError(f"a key of {type(key).__name__} cannot be sent to a peer")


def _read(index: bytes) -> dict[str, Any]:
    try:
        read = json.loads(index)
    except (ValueError, RecursionError) as error:
        raise TransferFailed("the index of a peer's state is not JSON") from error
    if not isinstance(read, dict):
        raise TransferFailed("the index of a peer's state is not an object")
    return read
