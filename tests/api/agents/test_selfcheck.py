"""What an agent reads about itself: only its own node, and the request is no sign of life."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.model.agents.report import WIRE_VERSION


def test_it_says_whose_token_it_is_and_when_the_agent_was_last_heard(served: Any) -> None:
    first = served.call("GET", "/v1/agent/self", "n1").json()
    assert (first["node"], first["leader"], first["last_heard_s"]) == ("n1", True, None)
    assert WIRE_VERSION in first["wire_versions"]
    assert datetime.fromisoformat(first["time"]).tzinfo is not None
    beat = {"version": 1, "node": "n1", "boot_id": "b", "agent_version": "1", "authorities": ["3a3f2a8068448822"]}
    assert served.call("POST", "/v1/heartbeats", "n1", json=beat).status_code == 200
    served.clock.passed_s += 7.0
    assert served.call("GET", "/v1/agent/self", "n1").json()["last_heard_s"] == 7.0
    shown = served.call("GET", "/v1/nodes/n1").json()
    assert shown["node"]["agents"][0]["authorities"] == ["3a3f2a8068448822"]


def test_an_agent_of_an_older_version_says_nothing_of_its_authorities(served: Any) -> None:
    beat = {"version": 1, "node": "n1", "boot_id": "b", "authorities": "nonsense"}
    assert served.call("POST", "/v1/heartbeats", "n1", json=beat).status_code == 200
    assert served.call("GET", "/v1/nodes/n1").json()["node"]["agents"][0]["authorities"] is None
