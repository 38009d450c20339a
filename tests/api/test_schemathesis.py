"""Whatever a client of any role sends, within the OpenAPI description or outside of it, the server never answers with its own 5xx, and only
as the description says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
import pytest
import schemathesis
from pydantic import BaseModel
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.api.reads import reading
from holdfast.model.book import Book, World
from holdfast.model.policies.policy import Policy
from support.rooms import T0, MemoryRooms, four_groups, view_of

pytestmark = pytest.mark.slow

EXAMPLES = 5
"""Per operation, within and outside of the description: the whole test takes a few seconds."""
WHO = {"op": "operator", "eve": "viewer", "1001": "user", "n1": "agent"}
"""Whose tokens, and their roles: each request is sent with all, since making one up costs more than sending it."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

Answers = dict[str, Counter[int]]


@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(300, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_no_5xx(served: Any, examples: int) -> None:
    served.world = World(T0, Policy(), Book(), view_of(*four_groups()))
    served.deps.rooms = MemoryRooms()
    everything = _try_everything(served, examples)
    assert set(everything) == set(WHO)
    for who, answers in everything.items():
        assert answers[200] > (10 if who != "1001" else 0), who
        assert sum(count for status, count in answers.items() if 400 <= status < 500) > 10, who
        assert answers[422], who
        assert answers[403] > 10, who
        assert not answers[429], who


def test_a_bug_would_be_found(served: Any) -> None:
    served.deps.world = lambda: 1 / 0
    with pytest.raises((FailureGroup, ZeroDivisionError)):
        _try_everything(served, EXAMPLES, "/v1/nodes")


def test_an_answer_beside_its_description_would_be_found(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(BaseModel):
        nodes: str = "n1"

    monkeypatch.setattr(reading, "_nodes", lambda *_: Other())
    with pytest.raises(FailureGroup, match="Response violates schema"):
        _try_everything(served, EXAMPLES, "/v1/nodes$")


def _try_everything(served: Any, examples: int, only: str = ".") -> Answers:
    """A stream has no end that could be waited for here: ``test_stream.py``."""
    schema = schemathesis.openapi.from_dict(served.app.openapi())
    schema.app = served.app
    answers: Answers = {who: Counter() for who in WHO}
    for result in schema.include(path_regex=only).exclude(path="/v1/stream").get_all_operations():
        operation: Any = result
        described = operation.ok().definition.raw
        _try(served, operation.ok().as_strategy(generation_mode=GenerationMode.POSITIVE), examples, answers)
        if "parameters" in described or "requestBody" in described:
            _try(served, operation.ok().as_strategy(generation_mode=GenerationMode.NEGATIVE), examples, answers)
    return answers


def _try(served: Any, strategy: Any, examples: int, answers: Answers) -> None:
    @hypothesis.settings(max_examples=examples, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=strategy)
    def attempt(case: Any) -> None:
        _come_closer(case)
        served.refill()
        for who in WHO:
            headers = {"Authorization": f"Bearer token-{who}"}
            answer = case.call_and_validate(headers=headers, checks=CHECKS)
            answers[who][answer.status_code] += 1

    attempt()


def _come_closer(case: Any) -> None:
    """No long poll, and most reports are the agent's own: a guessed node would be refused first."""
    if "wait_s" in (case.query or {}):
        case.query["wait_s"] = 0
    if "node" in (case.query or {}):
        case.query["node"] = "n1"
    if isinstance(case.body, dict) and isinstance(case.body.get("node"), str):
        case.body.update(node="n1", version=1)
