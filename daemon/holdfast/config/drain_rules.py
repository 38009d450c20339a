"""``[[drain_rules]]`` of the controller's settings."""

from __future__ import annotations

import re
from typing import Any

from holdfast.config import strict
from holdfast.model.errors import ConfigError
from holdfast.model.policies.drain_rules import DrainRule, may_hang

KEY = "drain_rules"
MOST = 100
"""Rules at most: each reason is compared with all of them."""
EXAMPLE = """
# What drains that others set are called in a node's history, one table for each rule; the first that matches counts. A rule only names
# and counts: no drain of another is taken over or taken back because of one (docs/node-history.md). None is set; for example:
# [[drain_rules]]
# pattern = '^NHC:'
# category = "node health check"
# score = true
#
# [[drain_rules]]
# pattern = '^Kill task failed'
# category = "tasks did not end"
#
# [[drain_rules]]
# pattern = '\\[HC\\]'
# category = "health check"
"""
"""Part of the example file: every line is a comment."""


def read(given: object, where: str) -> tuple[DrainRule, ...]:
    """The rules. Raises ConfigError in one line that names the rule and the key."""
    if not isinstance(given, list):
        raise ConfigError(f"{where}: {KEY}: expected tables [[{KEY}]], found {given!r}")
    if len(given) > MOST:
        raise ConfigError(f"{where}: {KEY}: {len(given)} rules; {MOST} at most")
    return tuple(_rule(each, f"{where}: {KEY}[{number}]") for number, each in enumerate(given))


def _rule(table: Any, where: str) -> DrainRule:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected a table [[{KEY}]], found {table!r}")
    rule = strict.build(table, DrainRule, where)
    try:
        re.compile(rule.pattern)
    except re.error as error:
        raise ConfigError(f"{where}: pattern: {rule.pattern!r} is no regular expression: {error}") from None
    if may_hang(rule.pattern):
        text = f"{rule.pattern!r} repeats what holds a repeat or a choice, or more than three parts: a reason could hold up all for hours"
        raise ConfigError(f"{where}: pattern: {text}; write it without, such as NHC: .* failed")
    if not rule.pattern or not rule.category.strip():
        raise ConfigError(f"{where}: neither pattern nor category may be empty: an empty pattern matches every reason")
    return rule
