"""The settings library (:mod:`holdfast_checks.settings.schema`) with the daemon's own error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from holdfast.model.errors import ConfigError
from holdfast_checks.settings import schema

T = TypeVar("T")


@contextmanager
def wrong_settings() -> Iterator[None]:
    """What is wrong with a file is a ConfigError."""
    try:
        yield
    except schema.WrongSetting as error:
        raise ConfigError(str(error)) from error


def load(path: Path) -> dict[str, Any]:
    """A TOML file, parsed. Raises ConfigError in one line."""
    try:
        with wrong_settings():
            return schema.load(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def build(table: Mapping[str, Any], kind: type[T], where: str) -> T:
    """A parsed table as a dataclass; ``where`` begins every error. Raises ConfigError."""
    with wrong_settings():
        return schema.build(table, kind, where)


def values(table: Mapping[str, Any], kind: type[Any], where: str) -> dict[str, Any]:
    """The same for a part of its fields, as a mapping. Raises ConfigError."""
    with wrong_settings():
        return schema.values(table, kind, where)


def refuse_unknown(table: Iterable[str], valid: Iterable[str], where: str) -> None:
    """Raises ConfigError."""
    with wrong_settings():
        schema.refuse_unknown(table, valid, where)


def refuse_other(word: object, valid: tuple[str, ...], where: str) -> None:
    """Raises ConfigError for what is none of these words."""
    with wrong_settings():
        schema.refuse_other(word, valid, where)
