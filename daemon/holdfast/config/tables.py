"""The tables of ``controller.toml``, as the dataclasses that they fill declare them. Standard library only.

A declared field is a key of the table of its dataclass, or of the one that it names; a field whose default is a dataclass is
a separate table. A field that is not declared is set by the program."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.config import strict
from holdfast_checks.settings.option import TomlTable, declaration_of, default_of, is_declared

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileTable:
    """One table, and the fields of a dataclass that it fills."""

    name: str
    doc: str
    fills: type[Any]
    keys: MutableMapping[str, dataclasses.Field[Any]]


def tables_of(kind: type[Any], own: TomlTable | None = None) -> Iterator[FileTable]:
    """All tables that fill the dataclass and its parts, in the order of the file. ``own``: the table of the dataclass itself."""
    found: dict[str, FileTable] = {}
    for field in filter(is_declared, dataclasses.fields(kind)):
        part = _part(field)
        if part is not None:
            found |= {table.name: table for table in tables_of(*part)}
            continue
        declared = declaration_of(field)
        table = declared.table or own
        if table is None:
            raise TypeError(f"{kind.__name__}.{field.name} is in no table")
        found.setdefault(table.name, FileTable(table.name, table.doc, kind, {})).keys[declared.name or field.name] = (
            field
        )
    return iter(found.values())


def fill(
    kind: type[T], tables: Mapping[str, Mapping[str, Any]], where: str, own: TomlTable | None = None, **given: Any
) -> T:
    """The dataclass with its parts from the parsed tables. ``given``: what the program sets. Raises ConfigError."""
    values = dict(given)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        part = _part(field)
        if part is not None:
            values[field.name] = fill(part[0], tables, where, part[1])
    for table in tables_of(kind, own):
        if table.fills is kind and not {field.name for field in table.keys.values()} & given.keys():
            strict.refuse_unknown(tables[table.name], table.keys, f"{where}: {table.name}")
            values |= strict.values(tables[table.name], kind, f"{where}: {table.name}")
    return kind(**values)


def _part(field: dataclasses.Field[Any]) -> tuple[type[Any], TomlTable] | None:
    """Dataclass and table of a field that is a separate table."""
    default, declared = default_of(field), declaration_of(field)
    if not is_declared(field) or not dataclasses.is_dataclass(default):
        return None
    return type(default), TomlTable(declared.name or field.name, declared.doc)
