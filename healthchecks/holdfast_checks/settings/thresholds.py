"""Thresholds that a site sets in one place for many nodes: read by the declarations of their tables, and applied to a node's settings."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from holdfast_checks.acting import THRESHOLDS, mildest
from holdfast_checks.settings import CheckTables, schema
from holdfast_checks.settings.option import default_of

T = TypeVar("T", bound=CheckTables)


def read(given: Mapping[str, Any], where: str, *, others_too: bool = False) -> dict[str, float]:
    """``TABLE.KEY`` → value, of the type and in the range that the option declares. ``others_too``: names of another release are passed
    over. Raises WrongSetting in one line that names the key."""
    found: dict[str, float] = {}
    for name, value in given.items():
        if name in THRESHOLDS:
            found[name] = _typed(name, value, where)
        elif not others_too:
            raise schema.WrongSetting(f"{where}: {name!r} cannot be set here; {_hint(name)}")
    return found


def with_thresholds(settings: T, given: Mapping[str, float]) -> T:
    """The node's settings with the site's thresholds. Where the node's file has another value than the default, the milder one counts."""
    tables: dict[str, dict[str, float]] = {}
    for name, value in given.items():
        table, _, key = name.partition(".")
        own = getattr(getattr(settings, table), key)
        said = (value,) if own == _field(name).default else (own, value)
        tables.setdefault(table, {})[key] = mildest(name, said)
    parts = {table: dataclasses.replace(getattr(settings, table), **keys) for table, keys in tables.items()}
    return dataclasses.replace(settings, **parts)


def _typed(name: str, value: object, where: str) -> float:
    table, _, key = name.partition(".")
    kind = _kind(table)
    if isinstance(value, float) and value.is_integer() and typing.get_type_hints(kind)[key] is int:
        value = int(value)
    number: float = schema.values({key: value}, kind, f"{where}: {table}")[key]
    return number


def _kind(table: str) -> type[Any]:
    field = next(each for each in dataclasses.fields(CheckTables) if each.name == table)
    return type(default_of(field))


def _field(name: str) -> dataclasses.Field[Any]:
    table, _, key = name.partition(".")
    return next(each for each in dataclasses.fields(_kind(table)) if each.name == key)


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, THRESHOLDS, n=1, cutoff=0.7)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"a controller may set {', '.join(THRESHOLDS)}; the rest belongs in the nodes' agent.toml"
