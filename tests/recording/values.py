"""Dataclasses of the simulated site as plain JSON and back, by their type hints. Fields that a later release lacks are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def plain(value: Any) -> Any:
    """A value as JSON: sets sorted, times in ISO 8601, dataclasses as objects."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(v) for v in value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def build(kind: type[T], document: Mapping[str, Any]) -> T:
    """The dataclass that :func:`plain` wrote."""
    hints = get_type_hints(kind)
    known = {f.name for f in fields(cast(Any, kind)) if f.init}
    return kind(**{name: restore(hints[name], value) for name, value in document.items() if name in known})


def restore(hint: Any, value: Any) -> Any:
    """A value of that type from its JSON."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        inner = [a for a in get_args(hint) if a is not NoneType]
        return value if value is None or len(inner) > 1 else restore(inner[0], value)
    if origin is tuple:
        return tuple(restore(get_args(hint)[0], each) for each in value)
    if origin in (set, frozenset, list):
        return origin(restore(get_args(hint)[0], each) for each in value)
    if origin is not None and issubclass(origin, Mapping):
        key, item = get_args(hint)
        return {restore(key, k): restore(item, v) for k, v in value.items()}
    return _of_class(hint, value)


def _of_class(hint: Any, value: Any) -> Any:
    if hint is datetime:
        return datetime.fromisoformat(value)
    if hint is int and isinstance(value, str):
        return int(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if isinstance(hint, type) and is_dataclass(hint):
        return build(hint, value)
    return value
