"""Writes ``controller.toml`` with every key, its meaning and its default; the reference page is made from the same rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.config.controller import SECTIONS
from holdfast.config.profiles import PROFILES
from holdfast.providers.registry import KINDS, PROVIDERS
from holdfast_checks.settings.option import default_of
from holdfast_checks.settings.schema import toml

HEAD = """\
# Holdfast's controller: /etc/holdfast/controller.toml
# Every key with its default. An unknown key is an error. Check with: holdfast config check PATH
"""

_ABOUT = {
    "cluster": "The Slurm cluster.",
    "server": "Where agents and people reach the API.",
    "store": "The database.",
    "mode": "What Holdfast may do. Start with observe.",
    "control": "How findings join and steps are repeated.",
    "brakes": "Limits on what may be done automatically within a time; beyond them an operator is notified.",
    "death": "When a silent node is dead.",
    "jobs": "When jobs are stopped and how they are brought back.",
    "repair": "The ladder of repair.",
    "provider": "What can reboot or replace a machine.",
    "spares": "Validated nodes kept ready.",
    "history": "When a node that failed again and again counts as a lemon.",
    "planned": "Stops that the provider announces: spot interruption, maintenance, the end of a capacity block.",
    "suspects": "Nodes of a job that failed or hung without a finding: they are probed in pairs.",
    "hangs": "When a job that reports its steps hangs, and what is done about it.",
    "stragglers": "When a part of a job is slower than the others.",
    "elastic": "When jobs made of replica groups grow and shrink.",
    "maintenance": "When a node is in maintenance, so that Holdfast does not act on it.",
    "checks": "Which health checks act on all nodes. The agents get this with their heartbeats.",
    "notify": "Where notifications go.",
    "actor": "Limits that the actor enforces independently.",
    "run": "The controller's own processes.",
    "quorum": "Where the groups of elastic jobs meet.",
    "enrolment": "Tokens for nodes on EC2 by the identity of their machine.",
    "log": "The log on standard error.",
}


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
    for section, (kind, elsewhere) in SECTIONS.items():
        if section == "provider":
            yield from _provider_rows()
            continue
        for field in dataclasses.fields(kind):
            if field.name not in elsewhere:
                yield SettingRow(section, field.name, default_of(field), field.metadata["doc"])


def _provider_rows() -> Iterator[SettingRow]:
    """Keys of several kinds with the same meaning and default are one row."""
    about = f"{', '.join(PROVIDERS)}. Each other key is for the kinds that its text begins with."
    yield SettingRow("provider", "kind", "none", about)
    kinds: dict[tuple[str, str, str], list[str]] = {}
    defaults: dict[tuple[str, str, str], Any] = {}
    for kind, one in KINDS.items():
        if one.settings is None:
            continue
        for field in dataclasses.fields(one.settings):
            if field.name in one.options:
                same = (field.name, toml(default_of(field)), field.metadata["doc"])
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
            lines += ["", f"# {_ABOUT[section]}", f"[{section}]"]
        lines += [f"# {row.doc}", _line(row)]
    return "\n".join(lines) + "\n"


def _line(row: SettingRow) -> str:
    shown = toml(row.default)
    of_one_kind = row.section == "provider" and row.key != "kind"
    return f"# {row.key} = {shown}" if row.default is None or of_one_kind else f"{row.key} = {shown}"
