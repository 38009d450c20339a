"""A training state taken apart into its tensors, by name, and a JSON tree of everything else; and put together again.

Tensors that are split over the ranks of a group (DTensor) have one name for all ranks; any other tensor is each rank's own, and
has the rank's number behind its name where there are several."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

Node = Any
Tensors = dict[str, torch.Tensor]
_DEPTH_MAX = 64
_RANK = re.compile(r"@\d+$")


class Misfit(ValueError):
    """A tree that was not made by :func:`split`, or that does not go with the tensors at hand; its text is one line."""


def split(state: object, rank: int = 0, ranks: int = 1) -> tuple[Node, Tensors]:
    """(tree, tensors by name; they share the state's memory).

    Raises TypeError for what is no number, text, list, tuple, dictionary or tensor."""
    tensors: Tensors = {}

    def tree(value: object, path: str) -> Node:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.Tensor):
            shared = isinstance(value, DTensor)
            name = path if shared or ranks == 1 else f"{path}@{rank}"
            tensors[name] = value.detach()
            return {"x": [name, str(value.dtype).removeprefix("torch."), list(value.shape), shared]}
        if isinstance(value, dict):
            below = f"{path}/" if path else ""
            return {"d": [[_key(key), tree(item, f"{below}{key}")] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            kind = "l" if isinstance(value, list) else "t"
            return {kind: [tree(item, f"{path}/{place}") for place, item in enumerate(value)]}
        raise TypeError(f"{type(value).__name__} in the training state cannot be saved ({path})")

    return tree(state, ""), tensors


def join(tree: Node, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The state again. Raises Misfit."""
    return _walk(tree, lambda name, _dtype, _shape, _shared: tensors[name])


def blank(tree: Node, like: Callable[[str], torch.Tensor | None]) -> Tensors:
    """Tensors to read into, by name. ``like`` gives, for one that is split over ranks, one that is split as ours should be.

    Raises Misfit when there is none, or it has another shape."""
    made: Tensors = {}

    def make(name: str, dtype: str, shape: list[int], shared: bool) -> None:
        kind = getattr(torch, dtype, None)
        if not isinstance(kind, torch.dtype):
            raise Misfit(f"unknown type {dtype!r} of {name}")
        if not shared:
            made[name] = torch.empty(shape, dtype=kind)
            return
        model = like(name)
        if model is None or list(model.shape) != shape:
            raise Misfit(f"{name} is split over ranks there, and not, or otherwise, here")
        made[name] = torch.empty_like(model, dtype=kind)

    _walk(tree, make)
    return made


def shapes(tree: Node, prefix: str) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor below ``prefix/``, by the rest of its name without the rank. Raises Misfit."""
    found: dict[str, tuple[int, ...]] = {}

    def note(name: str, _dtype: str, shape: list[int], _shared: bool) -> None:
        if name.startswith(f"{prefix}/"):
            found[_RANK.sub("", name[len(prefix) + 1 :])] = tuple(shape)

    _walk(tree, note)
    return found


def _walk(node: Node, tensor: Callable[[str, str, list[int], bool], Any], depth: int = 0) -> Any:
    if depth > _DEPTH_MAX:
        raise Misfit("too deep")
    if not isinstance(node, dict):
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise Misfit("a list by itself")
    try:
        ((kind, value),) = node.items()
        if kind == "x":
            name, dtype, shape, shared = value
            return tensor(str(name), str(dtype), [int(n) for n in shape], bool(shared))
        if kind == "d":
            return {_key(key): _walk(item, tensor, depth + 1) for key, item in value}
        return {"l": list, "t": tuple}[kind](_walk(item, tensor, depth + 1) for item in value)
    except (KeyError, TypeError, ValueError) as error:
        raise error if isinstance(error, Misfit) else Misfit(f"no state: {str(error)[:100]!r}") from error


def _key(key: object) -> str | int:
    if isinstance(key, str) or type(key) is int:
        return key
    raise TypeError(f"a key of {type(key).__name__} in the training state cannot be saved")
