"""The model's dataclasses as JSON documents and back. Pure.

A document carries the name of its type. Writing goes by the value, reading by the type hints of the dataclass, so a new noun
needs no code here. Reading is tolerant: a field that the class does not know is dropped, one that is absent takes its default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from holdfast.model.action import ACTION_TYPES, Action

T = TypeVar("T")
Decoder = Callable[[Any], Any]

_TYPE = "type"
_SCALARS = (str, int, bool, NoneType)


def encode(noun: Any) -> dict[str, Any]:
    """A dataclass as a JSON document with its type's name. Raises TypeError for what JSON cannot hold."""
    return {_TYPE: type(noun).__name__} | {f.name: plain(getattr(noun, f.name)) for f in fields(noun)}


def plain(value: Any) -> Any:
    """A value as plain JSON. Sets are sorted, times are ISO 8601 in UTC; NaN and infinity, which JSON lacks, become text.

    Raises ValueError for a time without a zone, TypeError for a type without a JSON form."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return _encode_time(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, (frozenset, set)):
        return sorted(plain(v) for v in value)
    if is_dataclass(value):
        return encode(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def decode(noun: type[T], document: Mapping[str, Any]) -> T:
    """The dataclass that :func:`encode` wrote. Raises ValueError when the document is of another type."""
    return noun(**{name: read(document[name]) for name, read in _fields_of(noun, document)})


def decode_with(noun: type[T], document: Mapping[str, Any], **columns: Any) -> T:
    """As :func:`decode`, with the values of the columns that the database keeps apart in place of the document's."""
    read = {name: read(document[name]) for name, read in _fields_of(noun, document) if name not in columns}
    return noun(**read, **columns)


def decode_action(document: Mapping[str, Any]) -> Action:
    """Raises ValueError for an action that this release does not know."""
    name = str(document.get(_TYPE))
    if name not in ACTION_TYPES:
        raise ValueError(f"the store holds an action {name!r} that this release does not know")
    return decode(ACTION_TYPES[name], document)


def _fields_of(noun: type[Any], document: Mapping[str, Any]) -> list[tuple[str, Decoder]]:
    if document.get(_TYPE) != noun.__name__:
        raise ValueError(f"expected a document of type {noun.__name__}, found {document.get(_TYPE)!r}")
    return [(name, read) for name, read in _decoders(cast(Hashable, noun)) if name in document]


@cache
def _decoders(noun: Any) -> tuple[tuple[str, Decoder], ...]:
    hints = get_type_hints(noun)
    return tuple((f.name, _decoder(hints[f.name])) for f in fields(noun))


def _decoder(hint: Any) -> Decoder:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _union(tuple(a for a in get_args(hint) if a is not NoneType))
    if origin is tuple:
        item = _decoder(get_args(hint)[0])
        return lambda value: tuple(item(v) for v in value)
    if origin is frozenset:
        item = _decoder(get_args(hint)[0])
        return lambda value: frozenset(item(v) for v in value)
    if origin is not None and issubclass(origin, Mapping):
        item = _decoder(get_args(hint)[1])
        return lambda value: {k: item(v) for k, v in value.items()}
    return _decoder_of_class(hint)


def _union(members: tuple[Any, ...]) -> Decoder:
    if len(members) > 1:
        return _same  # Scalar: str | int | float | bool, all of them plain JSON
    inner = _decoder(members[0])
    return lambda value: None if value is None else inner(value)


def _decoder_of_class(hint: Any) -> Decoder:
    if hint is float:
        return lambda value: float(value) if isinstance(value, str) else value
    if hint is datetime:
        return datetime.fromisoformat
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: decode(hint, value)
    return _same


def _encode_time(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone cannot be stored: {moment!r}")
    return moment.astimezone(UTC).isoformat()


def _same(value: Any) -> Any:
    return value
