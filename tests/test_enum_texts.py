"""Every table of texts keyed by an enum has a text for each member: a new member without one would raise, or read as nothing, at 3 am."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any

import pytest

import holdfast
import holdfast_checks
from holdfast.api.shown import history
from holdfast.decisions import overview
from holdfast.decisions.elastic import ledger
from holdfast.decisions.nodes import foreign_drains
from holdfast.decisions.nodes.hands_off import Hands, HandsOff
from holdfast.decisions.probing.suspects import CHECKS
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import ABOUT_JOBS, IncidentState
from support.rooms import T0

_NOT_READ = (".migrations", ".__main__", ".practice", ".cli.")
"""What a module of these would load is not worth it: they have no such table."""
PARTIAL: Collection[tuple[Mapping[Any, str], Collection[Enum]]] = (
    (CHECKS, ABOUT_JOBS),
    (
        overview._AT_WORK,
        set(IncidentState) - {IncidentState.WATCHING, IncidentState.AWAITING_HUMAN, IncidentState.CLOSED},
    ),
    (
        foreign_drains._WORDS,
        {EventKind.NODE_DRAINED_BY_OTHERS, EventKind.NODE_DOWN, EventKind.NODE_RESUMED_BY_OTHERS},
    ),
    (history._ENDS, {EventKind.ACTION_DONE, EventKind.ACTION_FAILED, EventKind.ACTION_REFUSED}),
    (
        ledger._WORDS,
        set(ledger._KINDS.values()) - {EventKind.QUORUM_FORMED, EventKind.QUORUM_OMITTED, EventKind.QUORUM_CLOSED},
    ),
)
"""Tables that are only asked for these members."""


def _tables() -> Iterator[tuple[str, Mapping[Enum, str]]]:
    for package in (holdfast, holdfast_checks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if any(part in f"{module.name}." for part in _NOT_READ):
                continue
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, Mapping) and value and all(map(_names_a_text, *zip(*value.items(), strict=True))):
                    yield f"{module.name}.{name}", value


def _names_a_text(key: object, text: object) -> bool:
    return isinstance(key, Enum) and isinstance(text, str) and not isinstance(text, Enum)


def test_each_member_has_a_text() -> None:
    found = dict(_tables())
    assert "holdfast.decisions.nodes.hands_off._TEXT" in found, "the walk finds the tables"
    for name, table in found.items():
        wanted = next((members for some, members in PARTIAL if some is table), type(next(iter(table))))
        missing = [member for member in wanted if not table.get(member)]
        assert not missing, f"{name}: no text for {missing}"


@pytest.mark.parametrize("hands", [each for each in Hands if each is not Hands.REBOOT_WAITS])
@pytest.mark.parametrize("until", [None, T0])
def test_why_nothing_is_done_reads_well_for_all_hands(hands: Hands, until: object) -> None:
    text = HandsOff(hands, "vendor", until).text  # type: ignore[arg-type]
    assert text.startswith("hands off: ")
    assert text.endswith("; recorded, nothing is done")
    assert not any(wrong in text for wrong in ("{", "}", "None", "  ", " ;", "()", "ended until"))
