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

EXAMPLES = 4
"""Per operation, within and beside the description: the whole stays within a few seconds. More by hand: raise it."""


@pytest.mark.parametrize("who", ["op", "n1"])
def test_no_5xx(served: Any, who: str) -> None:
    answers = _try_everything(served, who)
    assert answers[200] > 10
    assert sum(count for status, count in answers.items() if 400 <= status < 500) > 10
    assert answers[422]


def test_a_bug_would_be_found(served: Any) -> None:
    served.deps.world = lambda: 1 / 0
    with pytest.raises((FailureGroup, ZeroDivisionError)):
        _try_everything(served, "op", "/v1/nodes")


def _try_everything(served: Any, who: str, only: str = ".") -> Counter[int]:
    schema = schemathesis.openapi.from_dict(served.app.openapi())
    schema.app = served.app
    answers: Counter[int] = Counter()
    for result in schema.include(path_regex=only).get_all_operations():
        operation: Any = result
        described = operation.ok().definition.raw
        _try(operation.ok().as_strategy(generation_mode=GenerationMode.POSITIVE), who, answers)
        if "parameters" in described or "requestBody" in described:
            _try(operation.ok().as_strategy(generation_mode=GenerationMode.NEGATIVE), who, answers)
    return answers


def _try(strategy: Any, who: str, answers: Counter[int]) -> None:
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=strategy)
    def attempt(case: Any) -> None:
        _come_closer(case)
        headers = {"Authorization": f"Bearer token-{who}"}
        answer = case.call_and_validate(headers=headers, checks=[not_a_server_error])
        answers[answer.status_code] += 1

    attempt()


def _come_closer(case: Any) -> None:
    """Nobody waits, and most reports are the agent's own: a guessed node would end at the first door."""
    if "wait_s" in (case.query or {}):
        case.query["wait_s"] = 0
    if "node" in (case.query or {}):
        case.query["node"] = "n1"
    if isinstance(case.body, dict) and isinstance(case.body.get("node"), str):
        case.body.update(node="n1", version=1)
