"""Split a training state into its tensors, by name, and a JSON tree of everything else; and join it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

StateNode = Any
Tensors = dict[str, torch.Tensor]
_DEPTH_MAX = 64


class Misfit(ValueError):
    """A tree that :func:`split` did not create; its text is one line."""


def split(state: object) -> tuple[StateNode, Tensors]:
    """(tree, tensors by name; they share the state's memory).

    Raises TypeError for any value but numbers, texts, lists, tuples, dictionaries and tensors."""
    tensors: Tensors = {}

    def tree(value: object, path: str) -> StateNode:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.Tensor):
            tensors[path] = value.detach()
            return {"x": [path, str(value.dtype).removeprefix("torch."), list(value.shape)]}
        if isinstance(value, dict):
            below = f"{path}/" if path else ""
            return {"d": [[_key(key), tree(item, f"{below}{key}")] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            kind = "l" if isinstance(value, list) else "t"
            return {kind: [tree(item, f"{path}/{place}") for place, item in enumerate(value)]}
        raise TypeError(f"{type(value).__name__} in the training state cannot be saved ({path})")

    return tree(state, ""), tensors


def join(tree: StateNode, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Join a state. Raises Misfit."""
    return _walk(tree, lambda name, _dtype, _shape: tensors[name])


def blank(tree: StateNode) -> Tensors:
    """Tensors to read into, by name. Raises Misfit."""
    made: Tensors = {}

    def make(name: str, dtype: str, shape: list[int]) -> None:
        kind = getattr(torch, dtype, None)
        if not isinstance(kind, torch.dtype):
            raise Misfit(f"unknown type {dtype!r} of {name}")
        made[name] = torch.empty(shape, dtype=kind)

    _walk(tree, make)
    return made


def shapes(tree: StateNode, prefix: str) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor below ``prefix/``, by the rest of its name. Raises Misfit."""
    found: dict[str, tuple[int, ...]] = {}

    def note(name: str, _dtype: str, shape: list[int]) -> None:
        if name.startswith(f"{prefix}/"):
            found[name[len(prefix) + 1 :]] = tuple(shape)

    _walk(tree, note)
    return found


def _walk(node: StateNode, tensor: Callable[[str, str, list[int]], Any], depth: int = 0) -> Any:
    if depth > _DEPTH_MAX:
        raise Misfit("too deep")
    if not isinstance(node, dict):
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise Misfit("a bare list")
    try:
        ((kind, value),) = node.items()
        if kind == "x":
            name, dtype, shape = value
            return tensor(str(name), str(dtype), [int(n) for n in shape])
        if kind == "d":
            return {_key(key): _walk(item, tensor, depth + 1) for key, item in value}
        return {"l": list, "t": tuple}[kind](_walk(item, tensor, depth + 1) for item in value)
    except (KeyError, TypeError, ValueError) as error:
        raise error if isinstance(error, Misfit) else Misfit(f"no state: {str(error)[:100]!r}") from error


def _key(key: object) -> str | int:
    if isinstance(key, str) or type(key) is int:
        return key
    raise TypeError(f"a key of {type(key).__name__} in the training state cannot be saved")
