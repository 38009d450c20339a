"""Documents of another release with an unknown value on which other fields depend. Pure, except for a log line.

A field with an unknown value takes the enum's safe value (``docs/upgrade.md``); this module adjusts the fields that depend on it.
Documents of this release are not changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from holdfast.model.actions.action import IntentState
from holdfast.model.incidents.incident import IncidentKind, IncidentState, RecoveryPhase
from holdfast.unknown import read_word

_Document = Mapping[str, Any]


_WORDS: Mapping[type[StrEnum], frozenset[object]] = {
    kind: frozenset(word.value for word in kind) for kind in (IncidentState, IncidentKind, IntentState, RecoveryPhase)
}


def _incident(document: _Document) -> _Document:
    """Hold an incident until an operator closes it: this release knows neither its subject nor its progress. A closed one stays closed."""
    unknown = _unknown(document, "state", IncidentState) + _unknown(document, "kind", IncidentKind)
    if not unknown:
        return document
    if document.get("closed_at") is not None:
        return {**document, "state": IncidentState.CLOSED.value}
    return {
        **document,
        "state": IncidentState.AWAITING_HUMAN.value,
        "kind": IncidentKind.UNREADABLE.value,
        "note": _noted(document, unknown, "nothing is done about the node until an operator closes the incident"),
    }


def _intent(document: _Document) -> _Document:
    """Mark an intent as failed: it is never carried out and never repeated."""
    unknown = _unknown(document, "state", IntentState)
    if not unknown:
        return document
    said = f"{unknown[0]}: written by another release; counts as failed, is not repeated"
    return {**document, "state": IntentState.FAILED.value, "retryable": False, "outcome": said}


def _recovery(document: _Document) -> _Document:
    """Left to its owner."""
    unknown = _unknown(document, "phase", RecoveryPhase)
    if not unknown:
        return document
    note = _noted(document, unknown, "left to its owner")
    return {**document, "phase": RecoveryPhase.LEFT_ALONE.value, "note": note}


RULES: Mapping[str, Callable[[_Document], _Document]] = {
    "Incident": _incident,
    "Intent": _intent,
    "Recovery": _recovery,
}
"""By class name."""


def settled(document: _Document) -> _Document:
    """The document with unknown values replaced."""
    rule = RULES.get(str(document.get("type")))
    return rule(document) if rule is not None else document


def _unknown(document: _Document, field: str, kind: type[StrEnum]) -> list[str]:
    """The field and its value, if this release does not know the value. An absent or non-text field is left to the decoder."""
    word = document.get(field)
    if not isinstance(word, str) or word in _WORDS[kind]:
        return []
    read_word(kind, word, f"{document.get('type')}.{field}")
    return [f"{field} {word[:60]!r}"]


def _noted(document: _Document, unknown: list[str], effect: str) -> str:
    """The document's note, followed by what is unknown and the consequence."""
    return f"{document.get('note', '')} {' and '.join(unknown)} of another release: {effect}".strip()
