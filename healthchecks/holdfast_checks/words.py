"""Unknown words: what each enum reads a word of another release as. Pure; standard library only.

Releases meet on the wire and in the store, so a word may come that this release does not know. It must end no process and lose no fault:
each enum that is stored or sent says once, by :func:`unknown_reads_as`, which of its values is safe then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import TypeVar

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Safe:
    """What an unknown word of one enum is read as."""

    word: str | None
    """A value of the enum; None: the field is left without a value."""
    effect: str
    """What follows from it, for the documentation."""


_SAFE: dict[type[StrEnum], Safe] = {}


def unknown_reads_as(word: str | None, effect: str) -> Callable[[type[E]], type[E]]:
    """Class decorator of an enum whose words are stored or sent. Raises ValueError for a word that the enum does not have."""

    def declare(kind: type[E]) -> type[E]:
        if word is not None:
            kind(word)
        _SAFE[kind] = Safe(word, effect)
        return kind

    return declare


def declared() -> Mapping[type[StrEnum], Safe]:
    """Every enum with a safe word that has been loaded."""
    return MappingProxyType(_SAFE)


def known(kind: type[E], said: object) -> E | None:
    """The enum's value; None: it has no such value."""
    return _by_value(kind).get(said) if isinstance(said, str) else None


@cache
def _by_value(kind: type[E]) -> Mapping[str, E]:
    """Looked up for every row that is read."""
    return {word.value: word for word in kind}


def safe(kind: type[E]) -> E | None:
    """What an unknown word is read as. Raises KeyError for an enum that declares none."""
    word = _SAFE[kind].word
    return None if word is None else kind(word)
