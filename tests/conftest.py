"""Shared by all tests: their order, which cases of a product run, and how many examples Hypothesis tries."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from support import marks, sampling

pytest_plugins = ["support.practice", "support.postgres"]

_SIMULATED = "support.simulated"
_ORDER = ("loop", "slow", "aws", "postgresql", "slurm", "soak")

# The same examples each time and no deadline, so that a busy machine fails nothing; ./dev soak searches for new ones.
settings.register_profile(
    "normal",
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak",
    max_examples=20_000,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
_SOAKS = "HOLDFAST_SOAK_SEED" in os.environ
settings.load_profile("soak" if _SOAKS else "normal")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: to look for garbage in it, then and with each test, costs a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of which ``-m`` selects no test is not imported: that takes longer than many a test."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    return marks.selects_none(config.option.markexpr, marks.of_file(collection_path)) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first, so that a mistake shows in seconds; those that start servers after them, in their own order."""
    sampling.leave_to_the_soak(items, soaks=_SOAKS)
    for item in items:
        if marks.of_file(item.path).get("loop") or _simulates(getattr(item, "module", None)):
            item.add_marker("loop")
        wrong = marks.contradicted(marks.of_file(item.path), (mark.name for mark in item.iter_markers()))
        if wrong:
            raise pytest.UsageError(
                f"{item.nodeid}: {', '.join(wrong)}: not what the text of its file says (support/marks.py)"
            )
    items.sort(key=_rank)


@functools.cache
def _simulates(module: ModuleType | None) -> bool:
    """Whether its tests run the control loop over the simulated site, hours of it in a part of a second."""
    names = vars(module).values() if module is not None else ()
    return any(str(getattr(value, "__module__", "")).startswith(_SIMULATED) for value in names)


def _rank(item: pytest.Item) -> int:
    return max((_ORDER.index(mark.name) + 1 for mark in item.iter_markers() if mark.name in _ORDER), default=0)
