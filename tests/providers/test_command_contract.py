"""The arguments that a site's script gets and how its answer is read, as tables; and that the documentation says the same."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import (
    InsufficientCapacity,
    NotFound,
    NotPermitted,
    OutsideError,
    Rejected,
    Throttled,
    Unavailable,
)
from holdfast.providers.command.contract import (
    EXITS,
    Garbage,
    ScriptQuestion,
    ScriptVerb,
    failure,
    read_capabilities,
    read_machine,
    read_object,
    words_only,
)

DOCS = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
BY_NODE = ScriptQuestion(ScriptVerb.STATUS, "c", 60, node="n1")
WHOLE = {
    "instance_id": "asset-1",
    "node": "n1",
    "state": "running",
    "healthy": True,
    "launched_at": "2026-02-03T05:05:06+01:00",
    "address": "10.0.0.1",
    "incident": "inc",
    "token": "inc-1",
    "colour": "of no meaning to us",
}


def test_a_question_is_arguments_and_one_object() -> None:
    question = ScriptQuestion(ScriptVerb.REPLACE, "c", 60.0, "n1", "asset-1", "inc-1", "inc")
    assert question.argv() == ("replace", "n1", "asset-1", "inc-1", "inc")
    assert json.loads(question.body()) == {
        "contract": 1,
        "verb": "replace",
        "cluster": "c",
        "node": "n1",
        "instance_id": "asset-1",
        "token": "inc-1",
        "incident": "inc",
        "deadline_s": 60.0,
    }


def test_what_does_not_apply_is_empty() -> None:
    assert ScriptQuestion(ScriptVerb.STATUS, "", 60, token="inc-1").argv() == ("status", "", "", "inc-1", "")


def test_the_longest_question_fits_into_a_pipe_at_once() -> None:
    word = "x" * 128
    assert len(ScriptQuestion(ScriptVerb.REPLACE, word, 1 / 3, word, word, word, word).body()) < 4096


@pytest.mark.parametrize("value", ["", "-rf", "../x", "a/b", "a b", "a;b", "$(x)", "a\nb", "n1\n", "x" * 129, "ä"])
def test_what_could_be_more_than_a_word_is_not_passed(value: str) -> None:
    with pytest.raises(Rejected) as caught:
        words_only(instance_id=value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value", ["n1", "i-0abc", "4y3h7n", "IMC26-0042", "a.b_c:d@e+f", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"]
)
def test_words_are_passed(value: str) -> None:
    words_only(node=value)


def test_a_whole_machine_is_read() -> None:
    machine = read_machine({"machine": WHOLE}, BY_NODE)
    assert machine is not None
    shown = machine.instance
    assert (shown.instance_id, shown.node, shown.state, shown.healthy) == ("asset-1", "n1", "running", True)
    assert (shown.address, shown.incident, machine.token) == ("10.0.0.1", "inc", "inc-1")
    assert shown.launched_at == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_the_least_machine_is_read() -> None:
    machine = read_machine({"machine": {"instance_id": "asset-1", "state": "stopped", "node": "n1"}}, BY_NODE)
    assert machine is not None
    shown = machine.instance
    assert (shown.healthy, shown.launched_at, shown.address, shown.incident, machine.token) == (None, None, "", "", "")


def test_no_machine_is_none() -> None:
    assert read_machine({"machine": None}, BY_NODE) is None


def test_a_machine_that_is_gone_has_no_health() -> None:
    machine = read_machine({"machine": {**WHOLE, "state": "terminated"}}, BY_NODE)
    assert machine is not None
    assert machine.instance.healthy is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"instance_id": None}, "instance_id is '', not a word"),
        ({"instance_id": 7}, "machine.instance_id is 7, not a string"),
        ({"instance_id": "a b"}, "not a word"),
        ({"state": None}, "machine.state is '', none of pending, running"),
        ({"state": "on"}, "machine.state is 'on', none of"),
        ({"healthy": "yes"}, "machine.healthy is 'yes', not true, false or null"),
        ({"launched_at": "yesterday"}, "launched_at is 'yesterday', not a time with its offset"),
        ({"launched_at": "2026-02-03T05:05:06"}, "not a time with its offset"),
        ({"launched_at": 1770000000}, "not a time with its offset"),
        ({"address": ["10.0.0.1"]}, "machine.address is ['10.0.0.1'], not a string"),
        ({"node": "n2"}, "asked for node 'n1', it answers for 'n2'"),
    ],
)
def test_a_machine_that_is_none_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Garbage, match=re.escape(words)):
        read_machine({"machine": {**WHOLE, **changes}}, BY_NODE)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            ScriptQuestion(ScriptVerb.STATUS, "c", 60, instance_id="asset-2"),
            "asked for instance_id 'asset-2', it answers for 'asset-1'",
        ),
        (ScriptQuestion(ScriptVerb.STATUS, "c", 60, token="inc-2"), "asked for token 'inc-2', it answers for 'inc-1'"),
        (
            ScriptQuestion(ScriptVerb.LAUNCH, "c", 60, node="n1", token="inc-1", incident="other"),
            "asked for incident 'other'",
        ),
    ],
)
def test_another_machine_than_the_one_asked_for_is_refused(question: ScriptQuestion, words: str) -> None:
    with pytest.raises(Garbage, match=re.escape(words)):
        read_machine({"machine": WHOLE}, question)


def test_a_replacement_may_have_another_id() -> None:
    question = ScriptQuestion(
        ScriptVerb.REPLACE, "c", 60, node="n1", instance_id="asset-0", token="inc-1", incident="inc"
    )
    machine = read_machine({"machine": WHOLE}, question)
    assert machine is not None
    assert machine.instance.instance_id == "asset-1"


@pytest.mark.parametrize("answer", [{}, {"machine": "asset-1"}, {"machine": []}, {"machines": [WHOLE]}])
def test_an_answer_without_a_machine_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(Garbage, match="machine"):
        read_machine(answer, BY_NODE)


@pytest.mark.parametrize(
    "out",
    [
        b"",
        b"ok\n",
        b"[]",
        b"null",
        b'{"machine": null}\n{"machine": null}',
        b'WARN: x\n{"machine": null}',
        b"\xff\xfe",
        b"[" * 60000,
    ],
    ids=range(8),
)
def test_anything_but_one_object_is_refused_in_one_line(out: bytes) -> None:
    with pytest.raises(Garbage, match="standard output is not one JSON object") as caught:
        read_object(out)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_capabilities() -> None:
    known, strange = read_capabilities({"contract": 1, "verbs": ["status", "reboot", "levitate"]})
    assert (known.verbs, known.power_off_confirmed, strange) == (
        frozenset({ScriptVerb.STATUS, ScriptVerb.REBOOT}),
        False,
        ("levitate",),
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"verbs": ["status"]}, "contract is None, this Holdfast speaks 1"),
        ({"contract": 2, "verbs": ["status"]}, "contract is 2"),
        ({"contract": 1}, "verbs is None"),
        ({"contract": 1, "verbs": "status"}, "verbs is 'status'"),
        ({"contract": 1, "verbs": [["status"]]}, "not a list of strings"),
        ({"contract": 1, "verbs": ["reboot"]}, "verbs lacks status"),
        ({"contract": 1, "verbs": ["status", "launch"]}, "verbs lacks assign, terminate"),
        ({"contract": 1, "verbs": ["status"], "power_off_confirmed": "yes"}, "power_off_confirmed is 'yes'"),
    ],
)
def test_capabilities_that_make_no_sense_are_refused(answer: dict[str, Any], words: str) -> None:
    with pytest.raises(Garbage, match=re.escape(words)):
        read_capabilities(answer)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (110, Rejected),
        (111, NotFound),
        (112, NotPermitted),
        (113, InsufficientCapacity),
        (114, Throttled),
        (115, Unavailable),
        *[(other, Unavailable) for other in (1, 2, 3, 75, 77, 109, 116, 124, 126, 127, 137, -9, -15)],
    ],
)
def test_exit_status_is_the_error(status: int, kind: type[OutsideError]) -> None:
    assert type(failure(status, b'{"error": "rack 3 is dark"}', b"")) is kind


@pytest.mark.parametrize(
    ("out", "err", "text"),
    [
        (b'{"error": "rack 3\\nis dark"}', b"noise", "rack 3 is dark"),
        (b"", b"first\nlast words\n\n", "last words"),
        (b"not JSON", b"last words", "last words"),
        (b'{"error": 7}', b"last words", "last words"),
        (b"", b"\x1b[31mred\x07\n", "[31mred"),
        (b"", b"", "no message"),
        (b"", b"\xff" + b"x" * 5000, "\ufffd" + "x" * 299),
    ],
)
def test_the_scripts_own_words_are_one_line(out: bytes, err: bytes, text: str) -> None:
    assert str(failure(110, out, err)) == text


def test_an_unknown_end_says_so() -> None:
    assert str(failure(1, b"", b"oops")) == "oops (exit status 1: what was done is not known)"
    assert str(failure(-9, b"", b"")) == "no message (signal 9: what was done is not known)"


def test_the_documentation_has_every_verb_status_and_key() -> None:
    part = DOCS.partition("## A script of your own")[2].partition("\n## ")[0]
    for verb in ScriptVerb:
        assert f"| `{verb}`" in part
    for status, kind in EXITS.items():
        assert f"| {status} | {kind.__name__} |" in part
    for key in [*json.loads(BY_NODE.body()), *(key for key in WHOLE if key != "colour")]:
        assert f"`{key}`" in part
