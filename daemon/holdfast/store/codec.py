"""JSON encoding and decoding of the model's dataclasses. Pure, except for log lines about unknown values.

A document carries the name of its type. Encoding follows the value, decoding the type hints of the dataclass, so a new class
needs no code here. Decoding is tolerant: unknown fields are dropped, absent ones take their default, and an unknown value of
an enum becomes its safe value. A field of the wrong type is an error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from holdfast.model.actions.action import ACTION_TYPES, Action, SendOrder, UnknownAction, Verb
from holdfast.store.foreign import settled
from holdfast.store.upgrades import upgraded
from holdfast.unknown import read_word
from holdfast_checks.words import known

T = TypeVar("T")
Decoder = Callable[[Any], Any]

_TYPE = "type"
_SCALARS = (str, int, bool, NoneType)


def encode(noun: Any) -> dict[str, Any]:
    """A dataclass as a JSON document with its type's name. Raises TypeError for what JSON cannot hold."""
    if isinstance(noun, UnknownAction):
        return dict(noun.document)
    return {_TYPE: type(noun).__name__} | {f.name: plain(getattr(noun, f.name)) for f in fields(noun)}


def plain(value: Any) -> Any:
    """Convert a value to plain JSON. Sets are sorted, times are ISO 8601 in UTC; NaN and infinity, which JSON lacks, become text.

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


def parsed(text: str | bytes) -> Any:
    """Parse the JSON of a column or note; invalid text is returned unchanged, and decoding it fails later."""
    try:
        return _DECODER.decode(text) if isinstance(text, str) else json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text if isinstance(text, str) else text.decode(errors="replace")


def _no_constant(name: str) -> float:
    """Reject NaN and infinity, which are not JSON; :func:`plain` writes them as text."""
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Made once: ``json.loads`` makes one for each text."""
_UNFIT = re.compile("[\0\ud800-\udfff]")


def clean(text: str) -> str:
    """Text that both databases, Slurm and the wire accept: a NUL or lone surrogate becomes U+FFFD."""
    return text if text.isascii() and text.isprintable() else _UNFIT.sub("\ufffd", text)


class UnreadableDocument(ValueError):
    """The document cannot be decoded as this class: not an object, or a field is missing or of another type. One line, naming the field."""


def decode(noun: type[T], document: Mapping[str, Any]) -> T:
    """Decode a dataclass that :func:`encode` wrote. Raises UnreadableDocument, also when the document is of another type."""
    return decode_with(noun, document)


def decode_with(noun: type[T], document: Mapping[str, Any], **columns: Any) -> T:
    """As :func:`decode`, with values of separate columns replacing the document's."""
    if not isinstance(document, dict):
        raise UnreadableDocument(f"{noun.__name__}: expected an object, found {_shown(document)}")
    if document.get(_TYPE) != noun.__name__:
        raise UnreadableDocument(f"expected a document of type {noun.__name__}, found {_shown(document.get(_TYPE))}")
    try:
        document = settled(upgraded(document))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise UnreadableDocument(f"{noun.__name__}: {error}") from None
    values = dict(columns)
    name = ""
    try:
        for name, read in _decoders(cast(Hashable, noun)):
            if name in document and name not in values:
                values[name] = read(document[name])
    except (ValueError, TypeError) as error:
        raise UnreadableDocument(f"{noun.__name__}.{name}: {error}") from None
    try:
        return noun(**values)
    except TypeError:
        missing = sorted(_required(cast(Hashable, noun)) - values.keys())
        raise UnreadableDocument(f"{noun.__name__}: {', '.join(missing)} is missing") from None


def decode_action(document: Mapping[str, Any]) -> Action:
    """Raises UnreadableDocument, also for an action that this release does not know."""
    name = str(document.get(_TYPE)) if isinstance(document, dict) else ""
    if name not in ACTION_TYPES:
        raise UnreadableDocument(f"the store holds an action {name!r} that this release does not know")
    return decode(ACTION_TYPES[name], document)


def read_action(document: Any) -> Action:
    """As :func:`decode_action`; an action, or an order's verb, that this release does not know becomes an UnknownAction.

    Raises UnreadableDocument for one that it does know and cannot read."""
    if not isinstance(document, dict):
        raise UnreadableDocument(f"action: expected an object, found {_shown(document)}")
    name, verb = str(document.get(_TYPE)), document.get("verb")
    if name not in ACTION_TYPES or (name == SendOrder.__name__ and known(Verb, verb) is None):
        return UnknownAction(name, document)
    return decode_action(document)


@cache
def _decoders(noun: Any) -> tuple[tuple[str, Decoder], ...]:
    hints = get_type_hints(noun)
    return tuple((f.name, _decoder(hints[f.name], f"{noun.__name__}.{f.name}")) for f in fields(noun))


@cache
def _required(noun: Any) -> frozenset[str]:
    return frozenset(f.name for f in fields(noun) if f.default is MISSING and f.default_factory is MISSING)


def _decoder(hint: Any, where: str) -> Decoder:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _union(tuple(a for a in get_args(hint) if a is not NoneType), where)
    if origin in (tuple, frozenset):
        item = _decoder(get_args(hint)[0], where)
        return lambda value: origin(item(v) for v in _of_type(value, list, "a list"))
    if origin is not None and issubclass(origin, Mapping):
        item = _decoder(get_args(hint)[1], where)
        return lambda value: {k: item(v) for k, v in _of_type(value, dict, "an object").items()}
    return _decoder_of_class(hint, where)


def _union(members: tuple[Any, ...], where: str) -> Decoder:
    if len(members) > 1:
        return _scalar
    inner = _word(members[0], where) if _is_enum(members[0]) else _decoder(members[0], where)
    return lambda value: None if value is None else inner(value)


def _decoder_of_class(hint: Any, where: str) -> Decoder:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if _is_enum(hint):
        return _given(_word(hint, where))
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: decode(hint, value)
    return _same


def _word(kind: type[StrEnum], where: str) -> Decoder:
    """Decode an enum's value; an unknown one becomes the safe value, or None."""
    words = {word.value: word for word in kind}

    def read(value: Any) -> StrEnum | None:
        if not isinstance(value, str):
            raise UnreadableDocument(f"expected a word, found {_shown(value)}")
        return words.get(value) or read_word(kind, value, where)

    return read


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, StrEnum)


def _given(read_optional: Decoder) -> Decoder:
    """As the decoder; fails where the enum has no safe value."""

    def read(value: Any) -> Any:
        word = read_optional(value)
        if word is None:
            raise UnreadableDocument(f"unknown word {_shown(value)}")
        return word

    return read


def _of_type(value: Any, kind: type | UnionType, named: str) -> Any:
    if not isinstance(value, kind):
        raise UnreadableDocument(f"expected {named}, found {_shown(value)}")
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise UnreadableDocument(f"expected text, found {_shown(value)}")


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise UnreadableDocument(f"expected a whole number, found {_shown(value)}")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, str) and not math.isfinite(number := float(value)):
        return number  # NaN and infinity are text
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UnreadableDocument(f"expected a number, found {_shown(value)}")
    return value


def finite(value: Any) -> Any:
    """JSON that can be encoded again: infinity, which 1e999 is parsed as, becomes text; so does what is nested too deeply."""
    try:
        return _finite(value)
    except RecursionError:
        return "nested too deeply"


def _finite(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {clean(k): _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list) else value


def _scalar(value: Any) -> Any:
    """Decode ``str | int | float | bool``. Infinity (JSON's 1e999) is rejected: it could not be encoded again."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _of_type(value, int | float, "text or a number")


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    if moment.tzinfo is None:
        raise UnreadableDocument(f"expected a time with its zone, found {_shown(value)}")
    return moment


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _encode_time(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone cannot be stored: {moment!r}")
    return moment.astimezone(UTC).isoformat()


def _same(value: Any) -> Any:
    return value


_PLAIN: Mapping[Any, Decoder] = {
    str: _text,
    int: _whole,
    bool: lambda value: _of_type(value, bool, "yes or no"),
    float: _number,
    datetime: _moment,
}
