from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.actions.action import ACTION_TYPES, Action, Intent, Notify, SendOrder
from holdfast.model.agents.report import Finding
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.store.codec import decode, decode_action, decode_with, encode, plain
from support.store_nouns import finding, incident, intent, recovery

moments = st.datetimes(timezones=st.just(UTC))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
st.register_type_strategy(datetime, moments)
actions = st.one_of(
    *(st.from_type(a) for a in ACTION_TYPES.values() if a is not SendOrder),
    st.builds(
        SendOrder, expires_s=st.floats(allow_nan=False), args=st.dictionaries(st.text(), json_values, max_size=3)
    ),
)


@given(actions)
def test_every_action_comes_back_exactly(action: Action) -> None:
    stored = json.loads(json.dumps(encode(action), allow_nan=False))
    assert stored["type"] == type(action).__name__
    assert decode_action(stored) == action
    assert type(decode_action(stored)) is type(action)


@given(st.builds(Incident), st.builds(Recovery))
def test_incident_and_recovery_come_back_exactly(one: Incident, other: Recovery) -> None:
    assert decode(Incident, json.loads(json.dumps(encode(one)))) == one
    assert decode(Recovery, json.loads(json.dumps(encode(other)))) == other


def test_an_intent_carries_its_action() -> None:
    stored = json.loads(json.dumps(encode(intent(result={"instance": "i-2"}))))
    assert decode_with(Intent, stored, action=decode_action(stored["action"])) == intent(result={"instance": "i-2"})


def test_unknown_fields_are_dropped_and_absent_ones_take_their_default() -> None:
    stored = encode(finding()) | {"from_a_newer_release": 1}
    del stored["sticky"]
    assert decode(Finding, stored) == finding()


@pytest.mark.parametrize("noun", [incident(), recovery()])
def test_a_document_of_another_type_is_refused(noun: Incident | Recovery) -> None:
    with pytest.raises(ValueError, match="expected a document of type Finding"):
        decode(Finding, encode(noun))


def test_an_action_of_a_newer_release_is_named() -> None:
    with pytest.raises(ValueError, match="'Teleport'"):
        decode_action({"type": "Teleport"})


def test_time_is_kept_in_utc_and_never_without_a_zone() -> None:
    berlin = datetime(2026, 3, 1, 13, 0, tzinfo=timezone(timedelta(hours=1)))
    assert plain(berlin) == "2026-03-01T12:00:00+00:00"
    with pytest.raises(ValueError, match="without a zone"):
        plain(datetime(2026, 3, 1))  # noqa: DTZ001 - the mistake under test


def test_what_json_lacks_becomes_text_or_is_refused() -> None:
    assert plain({"a": float("nan"), "b": float("-inf"), "c": (1, 2)}) == {"a": "nan", "b": "-inf", "c": [1, 2]}
    with pytest.raises(TypeError, match="object has no JSON form"):
        encode(Notify("s", object()))  # type: ignore[arg-type]
