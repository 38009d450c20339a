"""The verbs about proposals, against answers as the API gives them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.answers.node_shapes import NodeShape
from holdfast.api.answers.proposal_shapes import NodePolicyShape, ProposalShape
from holdfast.api.answers.status_shapes import StatusShape
from holdfast.cli.common.restraints import held_lines
from holdfast.cli.nodes.spares import policy_line
from holdfast.cli.orders import proposing
from holdfast.cli.views.reading import proposal_line

ID = "0h3k5d2m8x1q.2"
SHOWN = {
    "id": ID,
    "incident_id": "0h3k5d2m8x1q",
    "state": "open",
    "step": "reboot",
    "what": "reboot n1 (machine i-1)",
    "reason": "reboot of n1, attempt 1",
    "node": "n1",
    "since": "2026-03-01T12:00:00Z",
    "until": "2026-03-02T12:00:00Z",
}


class Controller:
    """Stands in for the client; remembers what was posted."""

    posted: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012 - one for all of a test's clients
    shown: list[dict[str, Any]] = [SHOWN]  # noqa: RUF012

    def __init__(self, _url: str | None) -> None:
        pass

    def get(self, _path: str, **_query: Any) -> Any:
        return {"proposals": self.shown}

    def post(self, path: str, body: dict[str, Any]) -> Any:
        self.posted.append((path, body))
        state = {"accept": "accepted", "dismiss": "dismissed", "snooze": "snoozed"}.get(
            path.rsplit("/", 1)[1], "reopened"
        )
        return {**SHOWN, "state": state, "by": "op", "until": "2026-03-01T16:00:00Z"}


@pytest.fixture(autouse=True)
def controller(monkeypatch: pytest.MonkeyPatch) -> type[Controller]:
    monkeypatch.setattr(proposing, "ApiClient", Controller)
    monkeypatch.setattr(Controller, "posted", [])
    return Controller


def test_the_list_says_what_to_do(holdfast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    out = holdfast("proposals").out
    assert all(column in out for column in proposing.COLUMNS)
    assert "2026-03-02 12:00" in out
    assert f"holdfast accept {ID}" in out
    assert f"{ID}: reboot n1 (machine i-1)" in out
    monkeypatch.setattr(Controller, "shown", [])
    assert "no step waits for an operator" in holdfast("proposals").out


@pytest.mark.parametrize(
    ("argv", "path", "body", "said"),
    [
        (("accept", ID, "--reason", "ok"), "accept", {"reason": "ok"}, "may be begun until 2026-03-01 16:00 UTC"),
        (("dismiss", ID, "-r", "no"), "dismiss", {"reason": "no"}, f"holdfast reopen {ID}"),
        (("snooze", ID, "--for", "2h"), "snooze", {"hours": 2.0, "reason": ""}, "asked again at 2026-03-01 16:00"),
        (("reopen", ID), "reopen", {"reason": ""}, "under a new id"),
    ],
)
def test_an_answer(holdfast: Any, argv: tuple[str, ...], path: str, body: dict[str, Any], said: str) -> None:
    done = holdfast(*argv)
    assert (done.status, said in " ".join(done.out.split())) == (0, True), done
    assert Controller.posted == [(f"/v1/proposals/{ID}/{path}", body)]


def test_several_at_once_and_a_wrong_id_before_the_first_call(holdfast: Any) -> None:
    assert holdfast("accept", ID, "0h3k5d2m8x1r.1").status == 0
    assert len(Controller.posted) == 2
    refused = holdfast("accept", ID, "n1")
    assert (refused.status, "'n1' is no proposal's id" in refused.err) == (2, True)
    assert len(Controller.posted) == 2
    assert holdfast("snooze", ID, "--for", "9d").status == 2


def test_every_state_has_a_next_step_in_words() -> None:
    for state, word in (("open", "accept"), ("expired", "reopen"), ("snoozed", "accept"), ("dismissed", "by op: no")):
        shape = ProposalShape.read({**SHOWN, "state": state, "by": "op", "why": "no"})
        assert word in proposing.next_step(shape)
        assert f"proposal {ID} ({state}" in proposal_line(shape)


def test_status_and_a_node_say_it() -> None:
    got = StatusShape.read({"leader": True, "proposals_open": 2, "parts": []})
    assert "2 steps wait for an operator's accept: holdfast proposals" in held_lines(got)
    plain = {"mode": "propose", "why": "node set 'prod': mode = 'propose'", "asks": ["reboot"], "rungs": ["reboot"]}
    policy = NodePolicyShape.read({**plain, "sets": ["prod"]})
    assert policy_line(policy) == (
        "mode propose (node set 'prod': mode = 'propose'); asks before reboot; rungs reboot; node sets: prod"
    )
    assert policy_line(NodePolicyShape.read({**plain, "never_touch": True})).startswith("never touched (")
    assert NodeShape.read({"name": "n1"}).policy is None, "a controller of an earlier release"
