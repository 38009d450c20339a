"""Which cases of a product of parameters ``./dev test`` runs: enough that each value appears; ``./dev soak`` runs them all.

A test says so by the mark ``sampled``: ``@pytest.mark.sampled`` for each value of each parameter at least once,
``@pytest.mark.sampled(pairs=True)`` for each pair of values of two parameters, ``@pytest.mark.sampled(of=function)`` for
whatever else a case has to show: the function gets the case's parameters by name and returns what it covers. The others get
the mark ``soak``. The choice depends on the names of the cases alone, so that each run and each process makes the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import cast
from zlib import crc32

import pytest

from support.marks import SAMPLED

Covered = frozenset[Hashable]


def leave_to_the_soak(items: Iterable[pytest.Item], *, soaks: bool) -> None:
    """Mark with ``soak`` the cases of sampled tests that are in no sample. ``soaks``: all of them, this is the soak."""
    tests: dict[str, dict[str, pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker(SAMPLED) is not None:
            tests.setdefault(item.nodeid.partition("[")[0], {})[item.nodeid] = item
    for cases in tests.values():
        sample = set() if soaks else sample_of({name: _covered(item) for name, item in cases.items()})
        for name in cases.keys() - sample:
            cases[name].add_marker("soak")


def sample_of(cases: Mapping[str, Covered]) -> set[str]:
    """Names of few cases that cover together what all do."""
    left = frozenset[Hashable]().union(*cases.values())
    drawn = sorted(cases, key=lambda name: (crc32(name.encode()), name))
    sample = set[str]()
    while left:
        best = max(drawn, key=lambda name: len(cases[name] & left))
        sample.add(best)
        left -= cases[best]
    return sample


def values(ids: Sequence[str], *, pairs: bool = False) -> Covered:
    """What a case covers where its test names nothing else. ``ids``: of the values that it has, one of each ``parametrize``."""
    each = list(enumerate(ids))
    return frozenset(combinations(each, 2)) if pairs and len(each) > 1 else frozenset(each)


def _covered(item: pytest.Function) -> Covered:
    mark = item.get_closest_marker(SAMPLED)
    assert mark is not None
    if not hasattr(item, "callspec"):
        raise pytest.UsageError(f"{item.nodeid}: marked {SAMPLED}, and has no parameters")
    if (of := mark.kwargs.get("of")) is not None:
        return frozenset(cast(Iterable[Hashable], of(**item.callspec.params)))
    return values(item.callspec._idlist, pairs=bool(mark.kwargs.get("pairs")))
