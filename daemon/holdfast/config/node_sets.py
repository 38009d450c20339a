"""``[[nodes]]``: what the tables may say beyond types, words and ranges."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from holdfast.config import strict
from holdfast.config.check_ids import check_ids, check_thresholds
from holdfast.model.errors import ConfigError, Rejected
from holdfast.model.policies.node_sets import SET_BRAKES, SET_BUDGETS, NodeSet
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.hostlist import expand
from holdfast_checks.acting import ALL

NODES = "nodes"
"""Key of the ``[[nodes]]`` tables."""
ABOUT = "Less for some nodes: any number of these tables. The most restrictive one that matches a node wins."
_MOST_SETS = 200
_MOST_CHARS = 64
_MOST_LIMIT = 1_000_000
_TYPED = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def read_sets(value: object, where: str) -> tuple[NodeSet, ...]:
    """The ``[[nodes]]`` tables. Raises ConfigError in one line that names table and key."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ConfigError(f"{where}: nodes: expected tables [[nodes]], found {value!r}")
    if len(value) > _MOST_SETS:
        raise ConfigError(f"{where}: nodes: {len(value)} tables, {_MOST_SETS} at most")
    sets = tuple(_read_set(table, f"{where}: nodes[{index}]") for index, table in enumerate(value, 1))
    names = [each.name for each in sets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where}: nodes: two tables have the name {twice!r}")
    return sets


def check_narrowing(sets: Iterable[NodeSet], acting: Collection[str], where: str) -> None:
    """A set takes checks away from those that act, it adds none. Raises ConfigError for one that would not act for all that."""
    for index, each in enumerate(sets, 1):
        others = [check for check in each.act_on if ALL not in acting and check not in (*acting, ALL)]
        if others:
            raise ConfigError(
                f"{where}: nodes[{index}].act_on: {others[0]!r} is not in [checks] act_on: a set only takes checks away, so name it in both"
            )


def _check_limits(found: NodeSet, where: str) -> None:
    """The set's own brakes and budgets: its name becomes a part of theirs (``drains@SET``), which operators type."""
    for key, given, valid in (("brakes", found.brakes, SET_BRAKES), ("budgets", found.budgets, SET_BUDGETS)):
        strict.refuse_unknown(given, valid, f"{where}.{key}")
        wrong = next((name for name, most in given.items() if not 0 <= most < _MOST_LIMIT), None)
        if wrong is not None:
            raise ConfigError(f"{where}.{key}.{wrong}: {given[wrong]} is not between 0 and {_MOST_LIMIT - 1}")
    if (found.brakes or found.budgets) and not _TYPED.fullmatch(found.name):
        raise ConfigError(
            f"{where}.name: {found.name!r} cannot name a brake (drains@NAME): letters, digits, dot, - and _ only"
        )


def _read_set(table: Mapping[str, Any], where: str) -> NodeSet:
    strict.refuse_unknown(table, [f.name for f in dataclasses.fields(NodeSet)], where)
    found = strict.build(table, NodeSet, where)
    if not found.name.strip() or not found.name.isprintable() or len(found.name) > _MOST_CHARS:
        raise ConfigError(f"{where}.name: give the set a name of up to {_MOST_CHARS} characters")
    if not (found.partitions or found.features or found.nodes):
        raise ConfigError(f"{where}: it selects no nodes: give it partitions, features or nodes")
    if found.steps and found.mode not in ("", Mode.PROPOSE):
        raise ConfigError(f'{where}.steps: steps wait for an accept only with mode = "propose", not {found.mode!r}')
    check_ids(found.observe_only, f"{where}.observe_only")
    check_ids(found.checks_off, f"{where}.checks_off")
    check_ids(found.act_on, f"{where}.act_on", (ALL,))
    check_thresholds(found.thresholds, f"{where}.thresholds")
    _check_limits(found, where)
    try:
        expand(found.nodes) if found.nodes else None
    except Rejected as error:
        raise ConfigError(f"{where}.nodes: {error}") from None
    return found
