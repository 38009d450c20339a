"""An order's outcome is in its detail; for earlier releases, in its summary."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.agent.orders.orders import OrderResult, ReceivedOrder, refusal
from holdfast.agent.sending.sender import SenderIdentity
from holdfast.model.agents import answers
from holdfast.model.agents.answers import CheckWord, PairWord, Refusal

ME = SenderIdentity("n1", "i-1", "boot-1")


def _order(**changed: Any) -> ReceivedOrder:
    raw = {"id": "o1", "verb": "note", "boot_id": "boot-1", "instance_id": "i-1", "expires_s": 30.0, **changed}
    return ReceivedOrder.from_wire(raw, 0.0)


REFUSED = [
    ({"boot_id": "boot-0"}, Refusal.ANOTHER_BOOT),
    ({"instance_id": "i-0"}, Refusal.ANOTHER_INSTANCE),
    ({"expires_s": 0}, Refusal.EXPIRED),
    ({"verb": "reset_gpu"}, Refusal.UNSUPPORTED_VERB),
]


def _refused(changed: dict[str, Any]) -> OrderResult:
    done = refusal(_order(**changed), ME, {"note": lambda _order: OrderResult(True, "")}, 1.0)
    assert done is not None
    assert not done.ok
    return done


@pytest.mark.parametrize(("changed", "word"), REFUSED)
def test_an_agent_says_why_it_did_not_begin(changed: dict[str, Any], word: Refusal) -> None:
    assert answers.refusal_of(_refused(changed).detail) is word


@pytest.mark.parametrize(("changed", "word"), REFUSED)
def test_an_agent_of_before_said_so_in_its_summary_alone(changed: dict[str, Any], word: Refusal) -> None:
    read = answers.with_refusal({"n": 1}, _refused(changed).summary)
    assert answers.refusal_of(read) is word
    assert read["n"] == 1


@pytest.mark.parametrize(
    "summary", ["", "deep check failed: dcgm.diag", "the agent refused: expired", "Rejected: expired"]
)
def test_any_other_summary_says_nothing(summary: str) -> None:
    assert answers.with_refusal({}, summary) == {}


def test_the_word_counts_and_not_the_summary() -> None:
    read = answers.with_refusal({"refused": "expired"}, "refused: unsupported verb 'x'")
    assert answers.refusal_of(read) is Refusal.EXPIRED


@pytest.mark.parametrize("nonsense", [None, "", "maybe", 1, ["done"], {"done": 1}])
def test_a_word_that_makes_no_sense_says_nothing(nonsense: Any) -> None:
    detail = {"refused": nonsense, "said": nonsense, "outcome": nonsense, "errno": str(nonsense), "gpu_uuids": nonsense}
    assert answers.refusal_of(detail) is None
    assert answers.pair_word(detail) is None
    assert answers.check_word(detail) is None
    assert answers.unreached_errno(detail) is None
    assert answers.gpu_uuids(detail) <= {"done"}


def test_what_makes_sense_is_read() -> None:
    assert [answers.pair_word({"said": w}) for w in ("done", "failed", "unknown")] == list(PairWord)
    assert [answers.check_word({"outcome": w}) for w in ("ok", "bad", "unknown", "held")] == list(CheckWord)
    assert answers.pair_gigabytes_s({"gigabytes_s": 3}) == 3.0
    assert answers.pair_gigabytes_s({"gigabytes_s": True}) is None
    assert answers.unreached_errno({"errno": 113}) == 113
    assert answers.gpu_uuids({"gpu_uuids": ["GPU-1", 2]}) == {"GPU-1"}
