"""Documents of releases in which a sentence carried the meaning: read into the field that carries it now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.decisions.common import consent
from holdfast.model.actions.action import Intent, IntentState, SetDown
from holdfast.model.agents.answers import Refusal, refusal_of
from holdfast.model.incidents.incident import Ground, Recovery
from holdfast.store.codec import decode, decode_action, decode_with, encode
from support.store_nouns import intent, order, recovery


def _of_before(consent: str) -> dict[str, Any]:
    document = encode(recovery(consent=consent))
    del document["ground"]
    return document


@pytest.mark.parametrize(
    ("consent", "ground", "stops"),
    [
        ("it failed by itself", Ground.FAILED, False),  # word: an earlier release's text
        ("it lost the node", Ground.NODE_LOST, False),
        ("registered checkpoint", Ground.CHECKPOINT, True),
        ("job option", Ground.OPT_IN, True),
        ("elastic job", Ground.ELASTIC, True),
        ("policy of partition gpu", Ground.PARTITION, True),
        ("policy of QOS long", Ground.QOS, True),
        ("", None, True),
        ("a ground that no release had", None, True),
    ],
)
def test_the_ground_of_a_recovery_was_a_sentence(consent: str, ground: Ground | None, stops: bool) -> None:
    read = decode(Recovery, _of_before(consent))
    assert (read.ground, read.consent, read.stops_running_job) == (ground, consent, stops)


@pytest.mark.parametrize("ground", [*Ground, None])
def test_a_ground_of_this_release_is_read_as_it_is_whatever_the_words(ground: Ground | None) -> None:
    kept = recovery(consent="it failed by itself", ground=ground)  # word: an earlier release's text
    assert decode(Recovery, encode(kept)) == kept


@pytest.mark.parametrize("over", [consent.FAILED, consent.NODE_LOST])
def test_a_run_that_is_over_is_not_stopped(over: consent.Consent) -> None:
    assert not recovery(ground=over.ground).stops_running_job


@pytest.mark.parametrize(
    ("reason", "dead"),
    [
        ("holdfast[0h3k5d2m8x1q]: node.dead: silent to the controller, and unreachable for peer n2", True),
        ("holdfast[0h3k5d2m8x1q]: gpu.xid 79 GPU-3: fell off the bus; tasks stuck", False),
    ],
)
def test_a_down_of_before_says_in_its_reason_whether_the_node_was_dead(reason: str, dead: bool) -> None:
    document = encode(SetDown("n1", reason, (7,)))
    del document["node_dead"]
    assert decode_action(document) == SetDown("n1", reason, (7,), node_dead=dead)


def test_a_down_of_this_release_is_read_as_it_is_whatever_the_words() -> None:
    for dead in (True, False):
        action = SetDown("n1", "holdfast[0h3k5d2m8x1q]: node.dead: silent", node_dead=dead)
        assert decode_action(encode(action)) == action


def _read(kept: Intent) -> Intent:
    document = encode(kept)
    return decode_with(Intent, document, action=decode_action(document["action"]))


def test_an_order_that_an_agent_of_before_did_not_know_has_the_word_for_it() -> None:
    text = "refused: unsupported verb 'run_checks'; this agent knows validate"
    settled: dict[str, Any] = {"state": IntentState.FAILED, "outcome": text}
    assert refusal_of(_read(replace(order(), **settled)).result) is Refusal.UNSUPPORTED_VERB
    assert _read(intent(**settled)).result == {}, "only agents refuse orders"
