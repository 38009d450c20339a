"""How a setting is declared: its default, its sentence for people, its limits. No I/O: the nouns of the daemon are declared so, too."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, TypeVar

T = TypeVar("T")


class Required:
    """Marks a key without a default."""


REQUIRED = Required()


def option(default: T, doc: str, *, low: float | None = None, high: float | None = None) -> T:
    """A dataclass field with one sentence for people and, for numbers, the allowed range (both ends included)."""
    metadata = {"doc": doc, "low": low, "high": high}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: typing.cast("T", dict(default)), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def required(doc: str, *, low: float | None = None, high: float | None = None) -> Any:
    """The same without a default."""
    return dataclasses.field(metadata={"doc": doc, "low": low, "high": high})


def default_of(field: dataclasses.Field[Any]) -> Any:
    """:data:`REQUIRED` where there is none."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else REQUIRED
