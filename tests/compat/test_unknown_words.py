"""An unknown value of another release in a stored document is read as the declared safe one, whatever the noun and the field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from holdfast.model.actions.action import ACTION_TYPES, Intent, IntentState, SendOrder, UnknownAction, Verb
from holdfast.model.agents.report import Finding, Inventory
from holdfast.model.book import Brake, CheckpointRecord, NodeMark, NodeRecord
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState, Recovery, RecoveryPhase
from holdfast.model.machine import ProviderView
from holdfast.model.operators.suppression import Suppression
from holdfast.store.codec import UnreadableDocument, decode, encode, read_action
from holdfast.store.rows import _intent
from holdfast_checks.words import declared, safe
from support.store_nouns import NOW, incident, intent, order, recovery

STORED: tuple[type[Any], ...] = (
    *(Incident, Recovery, Intent, Finding, NodeMark, NodeRecord, CheckpointRecord, Brake, Suppression, Inventory),
    *(ProviderView, *ACTION_TYPES.values()),
)
"""Every noun that has a document in the store."""
WORD = "of-another-release"
_SIMPLE: dict[Any, Any] = {str: "x", int: 1, float: 1.5, bool: False, datetime: NOW, Any: 1}


def example(hint: Any) -> Any:
    """A value of that type with every field set, also those that may be absent."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    inner = [a for a in get_args(hint) if a not in (NoneType, Ellipsis)]
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return example(inner[0])
    if origin in (tuple, frozenset):
        return origin([example(inner[0])])
    if origin is not None:
        return {"k": example(inner[1])}
    if issubclass(hint, StrEnum):
        return next(iter(hint))
    hints = get_type_hints(hint)
    return hint(**{f.name: example(hints[f.name]) for f in fields(hint)})


def enum_fields(noun: type[Any], seen: frozenset[type[Any]] = frozenset()) -> Iterator[tuple[str, ...]]:
    """Ways to each field of an enum's type, also inside other nouns; ``*``: an entry of a list."""
    hints = get_type_hints(noun)
    for field in fields(noun):
        yield from _enums_of(hints[field.name], (field.name,), seen | {noun})


def _enums_of(hint: Any, way: tuple[str, ...], seen: frozenset[type[Any]]) -> Iterator[tuple[str, ...]]:
    inner = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        for each in inner:
            if each is not NoneType and each not in ACTION_TYPES.values():
                yield from _enums_of(each, way, seen)
    elif get_origin(hint) is not None:
        for each in inner:
            yield from _enums_of(each, (*way, "*"), seen)
    elif isinstance(hint, type) and issubclass(hint, StrEnum):
        yield way
    elif isinstance(hint, type) and is_dataclass(hint) and hint not in seen and hint is not UnknownAction:
        yield from ((*way, *rest) for rest in enum_fields(hint, seen))


def enum_of(noun: type[Any], way: tuple[str, ...]) -> type[StrEnum]:
    hint: Any = noun
    for name in way:
        if name == "*":
            hint = get_args(hint)[-1] if get_args(hint)[-1] is not Ellipsis else get_args(hint)[0]
        else:
            hint = get_type_hints(hint)[name]
        if get_origin(hint) in (Union, UnionType):
            hint = next(a for a in get_args(hint) if a is not NoneType)
    kind: type[StrEnum] = hint
    return kind


WAYS = [(noun, way) for noun in STORED for way in enum_fields(noun)]
NOT_HERE = {(SendOrder, ("verb",))}
"""Has its own rule: the order as a whole is an unknown action."""


def test_the_fields_are_found() -> None:
    found = {(noun.__name__, ".".join(way)) for noun, way in WAYS}
    assert found >= {
        *(("Incident", name) for name in ("state", "kind", "severity", "remedy")),
        *(("Recovery", name) for name in ("phase", "ground")),
        *(("Finding", name) for name in ("severity", "remedy", "would_severity")),
        *(("Intent", "state"), ("SendOrder", "verb"), ("Brake", "kind"), ("ProviderView", "notices.*.kind")),
    }


@pytest.mark.parametrize(("noun", "way"), WAYS, ids=lambda v: v.__name__ if isinstance(v, type) else ".".join(v))
def test_every_stored_enum_declares_what_an_unknown_word_is_read_as(noun: type[Any], way: tuple[str, ...]) -> None:
    kind = enum_of(noun, way)
    assert kind in declared(), f"{kind.__name__}: decorate it with @unknown_reads_as(word, what follows)"
    assert declared()[kind].effect


@pytest.mark.parametrize(
    ("noun", "way"),
    [w for w in WAYS if w not in NOT_HERE],
    ids=lambda v: v.__name__ if isinstance(v, type) else ".".join(v),
)
def test_an_unknown_word_is_read_as_the_safe_one(noun: type[Any], way: tuple[str, ...]) -> None:
    document = json.loads(json.dumps(encode(example(noun))))
    document.pop("closed_at", None)
    assert _put(document, way)
    read = _read(noun, document)
    values = _values(read, way)
    kind = enum_of(noun, way)
    assert set(values) == {safe(kind)}
    assert json.loads(json.dumps(encode(read))) == json.loads(json.dumps(encode(_read(noun, encode(read)))))


def _read(noun: type[Any], document: dict[str, Any]) -> Any:
    return _intent(document) if noun is Intent else decode(noun, document)


def _put(document: Any, way: tuple[str, ...]) -> bool:
    """Whether the value is there now; of a list in its first entry."""
    name, *rest = way
    place = 0 if name == "*" else name
    if not rest:
        document[place] = WORD
        return True
    inner = document[place]
    return bool(inner) and _put(inner, tuple(rest))


def _values(read: Any, way: tuple[str, ...]) -> list[Any]:
    found = [read]
    for name in way:
        found = [each for one in found for each in one] if name == "*" else [getattr(one, name) for one in found]
    return found


def test_an_incident_with_an_unknown_word_is_held_and_says_why() -> None:
    for field in ("state", "kind"):
        document = {**encode(incident(state=IncidentState.REPAIRING, note="second try")), field: WORD}
        read = decode(Incident, document)
        assert (read.state, read.kind) == (IncidentState.AWAITING_HUMAN, IncidentKind.UNREADABLE)
        assert read.note.startswith("second try ")
        assert repr(WORD) in read.note
        closed = decode(Incident, {**document, "closed_at": encode(incident())["opened_at"]})
        assert not closed.open


def test_a_step_in_an_unknown_state_is_neither_done_nor_repeated() -> None:
    document = json.loads(json.dumps({**encode(intent(retryable=True)), "state": WORD}))
    read = _intent(document)
    assert (read.state, read.settled, read.retryable) == (IntentState.FAILED, True, False)
    assert repr(WORD) in read.outcome


def test_a_recovery_in_an_unknown_phase_is_left_alone() -> None:
    read = decode(Recovery, {**encode(recovery()), "phase": WORD})
    assert (read.phase, read.final) == (RecoveryPhase.LEFT_ALONE, True)


@pytest.mark.parametrize("state", [IntentState.PLANNED, IntentState.DONE])
def test_an_unknown_action_keeps_its_name_and_its_document(state: IntentState) -> None:
    document = json.loads(json.dumps(encode(intent(state=state))))
    document["action"] = {"type": "Teleport", "node": "n7", "to": {"rack": 3}}
    read = _intent(document)
    assert (read.kind, read.action.target.node, read.state) == ("Teleport", "n7", state)
    assert json.loads(json.dumps(encode(read))) == document


def test_an_order_with_an_unknown_verb_is_an_unknown_action() -> None:
    document = json.loads(json.dumps(encode(order())))
    document["action"]["verb"] = WORD
    read = _intent(document)
    assert (read.kind, type(read.action)) == ("SendOrder", UnknownAction)
    assert encode(read)["action"]["verb"] == WORD


def test_a_verb_that_is_known_is_an_order() -> None:
    assert isinstance(read_action(encode(order().action)), SendOrder)
    assert {verb.value for verb in Verb}


def test_each_word_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    document = {**encode(incident()), "severity": "catastrophic-42"}
    for _ in range(3):
        decode(Incident, document)
    (line,) = [r.getMessage() for r in caplog.records if "catastrophic-42" in r.getMessage()]
    assert line == "event=unknown_word kind=Severity word='catastrophic-42' where=Incident.severity read_as=degraded"


def _broken(noun: Any) -> Iterator[tuple[str, Any]]:
    document = json.loads(json.dumps(encode(noun)))
    yield "not an object", [document]
    yield "text", "{"
    for name, value in document.items():
        if name == "type":
            yield "another type", {**document, "type": "Other"}
            continue
        if value is not None:
            yield f"{name} of another type", {**document, name: [{"x": 1}] if not isinstance(value, list) else 7}


@pytest.mark.parametrize("noun", [incident(), recovery(), intent()], ids=lambda n: type(n).__name__)
def test_what_cannot_be_read_says_which_field(noun: Any) -> None:
    for what, document in _broken(noun):
        if "of another type" in what and what.split()[0] in ("args", "result"):
            continue
        with pytest.raises(UnreadableDocument) as caught:
            _read(type(noun), document)
        if "of another type" in what:
            assert what.split()[0] in str(caught.value), what
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("noun", [n for n in STORED if n is not Finding], ids=lambda n: n.__name__)
def test_a_missing_field_is_named(noun: type[Any]) -> None:
    document = encode(example(noun))
    required = [f.name for f in fields(noun) if f.default is MISSING and f.default_factory is MISSING]
    for name in set(required) - {"action"}:
        with pytest.raises(UnreadableDocument, match=f"{name} is missing"):
            _read(noun, {k: v for k, v in document.items() if k != name})
