"""The command line of this release with a controller of another one: older, newer, or another program."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.client import ApiClient
from holdfast.cli.app import run
from recording import answers
from recording.releases import document, releases

VERBS: tuple[tuple[str, ...], ...] = (
    ("nodes",),
    ("nodes", "n1"),
    ("spares",),
    ("incidents",),
    ("incident", "show", "INCIDENT"),
    ("incident", "show", "INCIDENT", "--all"),
    ("jobs",),
    ("metrics",),
    ("suppressions",),
    ("suppress", "--node", "n7", "--for", "3d", "-r", "fan on order"),
    ("incident", "ack", "INCIDENT"),
    ("incident", "close", "INCIDENT"),
)
SHOWS = {
    "nodes": "n1",
    "spares": "holdfast-spares",
    "incidents": "gpu.xid",
    "incident": "n1",
    "jobs": "RUNNING",
    "metrics": "MTTD",
    "suppressions": "gpu.thermal",
    "suppress": "holds until",
}
MAPPINGS = frozenset({"detail", "evidence", "phases", "unreadable"})
"""Fields that are mappings: their keys are no fields."""
Answers = dict[str, Any]
Shown = tuple[int, str, str]


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return answers.record(tmp_path_factory.mktemp("answers") / "site")


@pytest.fixture
def holdfast(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Answers, tuple[str, ...]], Shown]:
    """``holdfast VERB`` with a controller that gives these answers."""
    monkeypatch.setenv("HOLDFAST_TOKEN", "t")

    def call(given: Answers, verb: tuple[str, ...]) -> Shown:
        monkeypatch.setattr(
            ApiClient, "_call", lambda _self, method, path, _body, *_more: given[f"{method} {path.split('?')[0]}"]
        )
        capsys.readouterr()
        status = run(verb)
        out, err = capsys.readouterr()
        return status, out, err

    return call


def the_answer(verb: tuple[str, ...]) -> str:
    """Which answer a verb shows."""
    known = {"nodes": "nodes", "spares": "spares", "incidents": "incidents", "jobs": "jobs", "metrics": "metrics"}
    if verb[0] == "suppress":
        return "POST /v1/suppressions"
    if verb[:2] == ("nodes", "n1"):
        return "GET /v1/nodes/n1"
    if verb[0] == "incident":
        word = {"ack": "/acknowledge", "close": "/close"}.get(verb[1], "")
        return f"{'POST' if word else 'GET'} /v1/incidents/INCIDENT{word}"
    return f"GET /v1/{known.get(verb[0], verb[0])}"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each field of an answer is; of a list the first element stands for all."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from places(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def without(answer: Any, path: tuple[Any, ...]) -> Any:
    """The answer without one field, in every element of its lists."""
    if len(path) == 1:
        return {key: inner for key, inner in answer.items() if key != path[0]}
    if isinstance(answer, list):
        return [without(each, path[1:]) if _has(each, path[1:]) else each for each in answer]
    return {**answer, path[0]: without(answer[path[0]], path[1:])}


def _has(value: Any, path: tuple[Any, ...]) -> bool:
    for key in path:
        if isinstance(value, list):
            return any(_has(each, path[1:]) for each in value)
        if not isinstance(value, dict) or key not in value:
            return False
        value, path = value[key], path[1:]
    return True


def newer(value: Any) -> Any:
    """With a field in every object that this release does not know."""
    if isinstance(value, dict):
        inner = {key: each if key in MAPPINGS else newer(each) for key, each in value.items()}
        return {**inner, "from_a_newer_release": {"x": [1]}}
    return [newer(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.parametrize("release", releases())
def test_an_older_controller_is_shown(holdfast: Any, release: str, verb: tuple[str, ...]) -> None:
    status, out, err = holdfast(document(release, "answers"), verb)
    assert (status, err) == (0, "")
    assert SHOWS[verb[0]] in out or verb[:2] in (("incident", "ack"), ("incident", "close"))


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_fields_of_a_newer_controller_change_nothing(holdfast: Any, today: Answers, verb: tuple[str, ...]) -> None:
    assert holdfast(newer(today), verb) == holdfast(today, verb)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_field_that_is_missing_is_empty_or_named_in_one_line(
    holdfast: Any, today: Answers, verb: tuple[str, ...]
) -> None:
    name = the_answer(verb)
    shown = 0
    for path in places(today[name]):
        if MAPPINGS & set(path[:-1]):
            continue
        status, out, err = holdfast({**today, name: without(today[name], path)}, verb)
        shown += status == 0
        if status != 0:
            assert (status, out, err.count("\n")) == (3, "", 1), (path, err)
            assert err.startswith("holdfast: the controller's answer has no ")
            assert str(path[-1]) in err
    assert shown > 0


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.parametrize("odd", [{}, [], None, 3, "no", {"detail": "Not Found"}])
def test_what_is_no_answer_of_ours_is_one_clear_line(
    holdfast: Any, today: Answers, verb: tuple[str, ...], odd: Any
) -> None:
    status, out, err = holdfast({**today, the_answer(verb): odd}, verb)
    if verb[:2] in (("incident", "ack"), ("incident", "close")) and isinstance(odd, dict):
        assert (status, err) == (0, "")  # the order is done: there is nothing more to show
        return
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert re.match(r"holdfast: the controller's answer has no [\w.]+ that this command understands", err)


def test_words_of_a_newer_controller_are_shown_as_they_are(holdfast: Any, today: Answers) -> None:
    given = copy.deepcopy(today)
    story = given["GET /v1/incidents/INCIDENT"]
    story["incident"] |= {"state": "quarantined", "severity": "grave", "remedy": "relocate", "kind": "weather"}
    story["findings"][0] |= {"severity": "grave", "remedy": "relocate", "verdict": "doomed"}
    story["timeline"][0]["kind"] = "incident.foreseen"
    story["recoveries"][0]["phase"] = "migrating"
    status, out, err = holdfast(given, ("incident", "show", "INCIDENT"))
    assert (status, err) == (0, "")
    for word in ("quarantined", "grave", "relocate", "incident.foreseen", "migrating"):
        assert word in out


@pytest.mark.parametrize("verb", [v for v in VERBS if v[0] not in ("suppress", "incident")] + [VERBS[4]], ids=" ".join)
def test_json_is_what_the_server_sent(holdfast: Any, today: Answers, verb: tuple[str, ...]) -> None:
    sent = newer(today)
    sent[the_answer(verb)] |= {"state": 3, "nodes": None}
    status, out, err = holdfast(sent, (*verb, "--json"))
    assert (status, err) == (0, "")
    assert json.loads(out) == sent[the_answer(verb)]
    assert list(json.loads(out)) == list(sent[the_answer(verb)])


def test_the_recorded_answers_are_those_of_all_verbs(today: Answers, tmp_path: Path) -> None:
    assert {the_answer(verb) for verb in VERBS} == set(today)
    for release in releases():
        assert set(document(release, "answers")) <= set(today)
