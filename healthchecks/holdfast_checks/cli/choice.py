"""Choice of the checks that a command runs or prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from holdfast_checks.custom import custom_checks
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Check, Cost
from holdfast_checks.settings import CheckSettings


def known(settings: CheckSettings) -> dict[str, Check]:
    """Every check that there is here, the operator's own among them. Raises ValueError for a table ``[custom.NAME]`` that is wrong."""
    return dict(sorted({**all_checks(), **custom_checks(settings)}.items()))


def matching(checks: Mapping[str, Check], patterns: Sequence[str]) -> list[Check]:
    """In the order of the patterns, each once. Raises ValueError for one that fits no check."""
    found: dict[str, Check] = {}
    for pattern in patterns:
        fits = {name: check for name, check in checks.items() if fnmatchcase(name, pattern)}
        if not fits:
            raise ValueError(f"no check is called {pattern}{meant(pattern, checks)}")
        found |= fits
    return list(found.values())


def meant(name: str, checks: Iterable[str]) -> str:
    """The end of a message about a name that no check has."""
    near = get_close_matches(name, list(checks), n=3)
    return f"; did you mean {' or '.join(near)}?" if near else "; `holdfast-checks list` shows them"


def chosen(
    checks: Mapping[str, Check], patterns: Sequence[str], *, active: bool, disabled: Sequence[str] = ()
) -> list[Check]:
    """What a run runs. Without ``active`` no check that needs an idle node, unless its full id is asked for; ``disabled`` ones run only
    when their full id is asked for."""
    wanted = matching(checks, patterns) if patterns else list(checks.values())
    return [
        check
        for check in wanted
        if check.id in patterns or ((active or check.cost is not Cost.ACTIVE) and check.id not in disabled)
    ]
