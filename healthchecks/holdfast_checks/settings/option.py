"""How a setting is declared: its default, its sentence for people, its limits. No I/O: the nouns of the daemon are declared so, too."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class Required:
    """Marks a key without a default."""


REQUIRED = Required()


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A table of a file: its name, and a sentence for people."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is said of a setting where it is declared, in addition to its type and its default."""

    doc: str
    low: float | None = None
    high: float | None = None
    """Both ends are allowed."""
    why: str = ""
    """Why the range ends there; the error says it."""
    one_of: tuple[str, ...] = ()
    """The words that it may be; for a list: that each of its items may be. Empty: any."""
    name: str = ""
    """Its key or table in the file; empty: the field's name."""
    table: TomlTable | None = None
    """Its table in the file where that is not the one of its dataclass."""


def option(
    default: T,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    why: str = "",
    one_of: Iterable[str] = (),
    name: str = "",
    table: TomlTable | None = None,
) -> T:
    """A dataclass field with its :class:`Declaration`. One whose default is a dataclass is a separate table."""
    metadata = {DECLARED: Declaration(doc, low, high, why, tuple(one_of), name, table)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: typing.cast("T", dict(default)), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def share(default: float, doc: str) -> float:
    """The same for a part of a whole, which is never given in percent."""
    return option(default, doc, low=0, high=1, why="a share, not percent")


def required(doc: str, *, low: float | None = None, high: float | None = None) -> Any:
    """The same without a default."""
    return dataclasses.field(metadata={DECLARED: Declaration(doc, low, high)})


DECLARED = "declared"
"""Key of a field's metadata."""
_UNSAID = Declaration("")


def declaration_of(field: dataclasses.Field[Any]) -> Declaration:
    """Empty for a field that is not declared."""
    found: Declaration = field.metadata.get(DECLARED, _UNSAID)
    return found


def is_declared(field: dataclasses.Field[Any]) -> bool:
    """Whether a file sets it; other fields are set by the program."""
    return DECLARED in field.metadata


def default_of(field: dataclasses.Field[Any]) -> Any:
    """:data:`REQUIRED` where there is none."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else REQUIRED
