"""Training state as one run of bytes and a JSON index of it: numbers, texts and tensors, and nothing that could be executed.

Pickle, which torch's own formats rest on, runs what it reads; this cannot."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

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


@dataclass(frozen=True, slots=True)
class Packed:
    """A state that no longer changes, whatever is done to the tensors that it was taken from."""

    index: bytes
    body: bytearray


def pack(state: object) -> Packed:
    """A copy of the state. Raises TypeError for what is no number, text, list, tuple, dictionary or tensor."""
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
    body = bytearray(max(size, _ALIGN))
    whole = torch.frombuffer(body, dtype=torch.uint8)
    for at, tensor in tensors:
        if tensor.numel():
            there = whole[at : at + tensor.numel() * tensor.element_size()].view(tensor.dtype)
            there.copy_(tensor.reshape(-1))
    return Packed(json.dumps({"bytes": len(body), "state": described}, separators=(",", ":")).encode(), body)


def body_bytes(index: bytes) -> int:
    """How long the body of this index is. Raises TransferFailed."""
    size = _read(index).get("bytes")
    if type(size) is not int or not 0 < size < 1 << 48:
        raise TransferFailed("the index of a peer's state gives no size")
    return size


def unpack(packed: Packed) -> Any:
    """The state; its tensors share the body's memory. Raises TransferFailed when index and body do not make sense."""
    whole = torch.frombuffer(packed.body, dtype=torch.uint8)
    try:
        return _untree(_read(packed.index)["state"], whole, 0)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise TransferFailed(f"the index of a peer's state makes no sense: {str(error)[:200]!r}") from error


def _untree(node: Any, whole: torch.Tensor, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise ValueError("too deep")
    if not isinstance(node, dict):
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise ValueError("a list by itself")
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
        raise TransferFailed("the index of a peer's state is no object")
    return read
