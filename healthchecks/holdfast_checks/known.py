"""All checks of this release, found in ``checks/``. Standard library only."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import holdfast_checks.checks as package
from holdfast_checks.registry import Check


@cache
def all_checks() -> dict[str, Check]:
    """Every check by its id."""
    found = (import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__))
    checks = [check for module in found for check in (*_one(module), *getattr(module, "CHECKS", ()))]
    by_id = {check.id: check for check in sorted(checks, key=lambda check: check.id)}
    if len(by_id) != len(checks):
        raise ValueError("two checks have the same id")
    return by_id


def _one(module: ModuleType) -> tuple[Check, ...]:
    return (module.CHECK,) if hasattr(module, "CHECK") else ()
