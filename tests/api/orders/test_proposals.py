"""Proposals through the API: listed, answered once, refused where the situation has changed, and counted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api.conftest import T0
from holdfast.model.book import Book, Change, World
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.operators.proposals import ProposalRecord, ProposalState, Question, StepKind
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast_checks.result import Severity
from support.store_nouns import incident

ID = "0h3k5d2m8x1q"


def a_record(number: int = 1, **changed: Any) -> ProposalRecord:
    plain = {
        "number": number,
        "question": Question(StepKind.REBOOT, "n1.0", "i-1", "b-1"),
        "status": ProposalState.OPEN,
        "what": "reboot n1 (machine i-1)",
        "reason": "reboot of n1, attempt 1",
        "opened_at": T0,
        "asked_at": T0,
        "until": T0 + timedelta(hours=24),
        "node": "n1",
        "severity": Severity.FATAL,
    }
    return ProposalRecord(**{**plain, **changed})


@pytest.fixture
def asked(served: Any) -> Any:
    """An incident with proposal 2, which took the place of 1."""
    served.commit(Change(incidents=(incident(ID, state=IncidentState.REPAIRING, proposals=(a_record(2, was=1),)),)))
    return served


def test_an_accept_is_recorded_with_who_and_why(asked: Any) -> None:
    (shown,) = asked.call("GET", "/v1/proposals").json()["proposals"]
    assert (shown["id"], shown["state"], shown["step"], shown["was"]) == (f"{ID}.2", "open", "reboot", f"{ID}.1")
    answer = asked.call("POST", f"/v1/proposals/{ID}.2/accept", json={"reason": "seen it"})
    assert (answer.status_code, answer.json()["state"], answer.json()["by"], answer.json()["why"]) == (
        200,
        "accepted",
        "op",
        "seen it",
    )
    assert answer.json()["until"] == "2026-03-01T16:00:00Z"
    assert asked.woken
    (event,) = asked.call("GET", f"/v1/events?incident={ID}&kind=operator").json()["events"]
    assert (event["detail"]["who"], event["detail"]["proposal"], event["detail"]["step"]) == ("op", f"{ID}.2", "reboot")
    assert "reboot n1" in event["text"]
    assert asked.call("GET", "/v1/proposals").json()["proposals"] == []
    assert asked.call("GET", f"/v1/incidents/{ID}").json()["proposals"][0]["state"] == "accepted"


def test_the_second_of_two_operators_gets_409(asked: Any) -> None:
    assert asked.call("POST", f"/v1/proposals/{ID}.2/dismiss").status_code == 200
    answer = asked.call("POST", f"/v1/proposals/{ID}.2/accept")
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        409,
        f"proposal {ID}.2 is no longer open: dismissed by op",
    )


@pytest.mark.parametrize(
    ("name", "verb", "status", "text"),
    [
        (f"{ID}.1", "accept", 409, f"has changed since: it is {ID}.2 now, to reboot n1"),
        (f"{ID}.3", "accept", 404, "there is no proposal"),
        ("0zzzzzzzzzzz.1", "accept", 404, "there is no incident"),
        (f"{ID}.2", "reopen", 409, "only a dismissed or expired one is proposed again"),
    ],
)
def test_what_does_not_fit(asked: Any, name: str, verb: str, status: int, text: str) -> None:
    answer = asked.call("POST", f"/v1/proposals/{name}/{verb}")
    assert answer.status_code == status
    assert text in answer.json()["error"]["message"]


def test_an_old_or_closed_one_is_not_accepted(asked: Any) -> None:
    asked.clock.passed_s = 25 * 3600.0
    answer = asked.call("POST", f"/v1/proposals/{ID}.2/accept")
    assert (answer.status_code, "has expired" in answer.json()["error"]["message"]) == (409, True)
    asked.call("POST", f"/v1/incidents/{ID}/close")
    answer = asked.call("POST", f"/v1/proposals/{ID}.2/accept")
    assert (answer.status_code, "closed already" in answer.json()["error"]["message"]) == (409, True)


def test_a_snooze_says_until_when(asked: Any) -> None:
    answer = asked.call("POST", f"/v1/proposals/{ID}.2/snooze", json={"hours": 2})
    assert (answer.json()["state"], answer.json()["until"]) == ("snoozed", "2026-03-01T14:00:00Z")
    assert asked.call("POST", f"/v1/proposals/{ID}.2/snooze", json={"hours": 0}).status_code == 422


def test_status_metrics_and_the_node_say_what_waits_and_what_holds(asked: Any) -> None:
    policy = Policy(mode=Mode.ACT, nodes=(NodeSet(name="prod", partitions=("a",), mode="propose", steps=("reboot",)),))
    node = Node("n1", "IDLE", frozenset(), partitions=("a",))
    book = Book(incidents={ID: asked.store.incident(ID)})
    asked.world = World(T0, policy, book, ClusterView("c", T0, {"n1": node}, {}, {}))
    assert asked.call("GET", "/v1/status").json()["proposals_open"] == 1
    assert 'holdfast_proposals_open{cluster="c"} 1.0' in asked.call("GET", "/metrics").text
    shown = asked.call("GET", "/v1/nodes/n1").json()["node"]["policy"]
    assert (shown["mode"], shown["asks"], shown["sets"]) == ("propose", ["reboot"], ["prod"])
    assert shown["why"] == "node set 'prod': mode = 'propose'"
