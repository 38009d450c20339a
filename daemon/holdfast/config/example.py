"""Writes ``controller.toml`` with every key, its meaning and its default; the reference page is made from the same rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.config import drain_rules
from holdfast.config.controller import SECTIONS
from holdfast.config.node_sets import ABOUT, NODES
from holdfast.config.profiles import PROFILES
from holdfast.model.policies.node_sets import NodeSet
from holdfast.providers.registry import KINDS
from holdfast_checks.settings.option import declaration_of, default_of
from holdfast_checks.settings.schema import toml

HEAD = """\
# Holdfast's controller: /etc/holdfast/controller.toml
# Every key with its default. An unknown key is an error. Check with: holdfast config check PATH
"""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One key of the file."""

    section: str
    key: str
    default: Any
    """None: unset; :data:`REQUIRED` when it has no default."""
    doc: str


def rows() -> Iterator[SettingRow]:
    """All keys, in the order of the file."""
    yield SettingRow("", "profile", None, f"A shipped set of other defaults: {', '.join(PROFILES)}.")
    for name, table in SECTIONS.items():
        for key, field in table.keys.items():
            yield SettingRow(name, key, default_of(field), declaration_of(field).doc)
        if name == "provider":
            yield from _provider_rows()
        if name == "propose":
            yield from (
                SettingRow(NODES, f.name, default_of(f), declaration_of(f).doc) for f in dataclasses.fields(NodeSet)
            )


def _provider_rows() -> Iterator[SettingRow]:
    """Keys of several kinds with the same meaning and default are one row."""
    kinds: dict[tuple[str, str, str], list[str]] = {}
    defaults: dict[tuple[str, str, str], Any] = {}
    for kind, one in KINDS.items():
        if one.settings is None:
            continue
        for field in dataclasses.fields(one.settings):
            if field.name in one.options:
                same = (field.name, toml(default_of(field)), declaration_of(field).doc)
                kinds.setdefault(same, []).append(kind)
                defaults[same] = default_of(field)
    for same, of in kinds.items():
        yield SettingRow("provider", same[0], defaults[same], f"{', '.join(of)}: {same[2]}")


def example() -> str:
    """The commented file; it loads as it is."""
    lines = [HEAD]
    section = ""
    for row in rows():
        if row.section != section:
            section = row.section
            lines += ["", *_head(section)]
        lines += [f"# {row.doc}", _line(row)]
    return "\n".join(lines) + "\n" + drain_rules.EXAMPLE


def _head(section: str) -> list[str]:
    """The example has none of the ``[[nodes]]`` tables: what they would say is a comment."""
    return [f"# {ABOUT}", "# [[nodes]]"] if section == NODES else [f"# {SECTIONS[section].doc}", f"[{section}]"]


def _line(row: SettingRow) -> str:
    shown = toml(row.default)
    of_one_kind = row.section == "provider" and row.key != "kind"
    optional = row.default is None or of_one_kind or row.section == NODES
    return f"# {row.key} = {shown}" if optional else f"{row.key} = {shown}"
