"""Whatever a client sends within and beside the OpenAPI description, the server never answers with a 5xx of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup

from holdfast.model.book import Book, World
from holdfast.model.policy import Policy
from support.rooms import T0, MemoryRooms, four_groups, view_of

pytestmark = pytest.mark.slow

EXAMPLES = 4
"""Per operation, within and beside the description: the whole stays within a few seconds."""
WHO = ("op", "n1")
"""Whose tokens: each request is sent with both, since making one up costs more than sending it."""

Answers = dict[str, Counter[int]]


@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(300, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_no_5xx(served: Any, examples: int) -> None:
    served.world = World(T0, Policy(), Book(), view_of(*four_groups()))
    served.deps.rooms = MemoryRooms()
    for answers in _try_everything(served, examples).values():
        assert answers[200] > 10
        assert sum(count for status, count in answers.items() if 400 <= status < 500) > 10
        assert answers[422]


def test_a_bug_would_be_found(served: Any) -> None:
    served.deps.world = lambda: 1 / 0
    with pytest.raises((FailureGroup, ZeroDivisionError)):
        _try_everything(served, EXAMPLES, "/v1/nodes")


def _try_everything(served: Any, examples: int, only: str = ".") -> Answers:
    schema = schemathesis.openapi.from_dict(served.app.openapi())
    schema.app = served.app
    answers: Answers = {who: Counter() for who in WHO}
    for result in schema.include(path_regex=only).get_all_operations():
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
            answer = case.call_and_validate(headers=headers, checks=[not_a_server_error])
            answers[who][answer.status_code] += 1

    attempt()


def _come_closer(case: Any) -> None:
    """Nobody waits, and most reports are the agent's own: a guessed node would end at the first door."""
    if "wait_s" in (case.query or {}):
        case.query["wait_s"] = 0
    if "node" in (case.query or {}):
        case.query["node"] = "n1"
    if isinstance(case.body, dict) and isinstance(case.body.get("node"), str):
        case.body.update(node="n1", version=1)
