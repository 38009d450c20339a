"""What one node's agent may send: far more than it needs, but never so much that other nodes' reports wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from holdfast.api.callers.auth import Principal, Role, hash_token
from holdfast.api.callers.quota import LIMITS, AgentQuota, Load, RateLimit
from holdfast.api.errors import ApiError

N1 = Principal("n1", Role.AGENT, "n1", token="a1")
ENVELOPE = {"version": 1, "node": "n1", "instance_id": "i-1", "boot_id": "b-1", "agent_version": "0.1"}


def finding(number: int) -> dict[str, Any]:
    return {
        "kind": "finding",
        "check": "host.x",
        "component": f"c{number}",
        "verdict": "degraded",
        "severity": "warning",
    }


def report(sequence: int, *items: dict[str, Any], node: str = "n1") -> dict[str, Any]:
    return {**ENVELOPE, "node": node, "outbox_id": "out-1", "sequence": sequence, "items": list(items)}


class TestBucket:
    def test_refills_as_time_passes(self) -> None:
        at_s = 0.0
        quota = AgentQuota(lambda: at_s, {Load.REPORTS: RateLimit(3, 0.5)})
        for _ in range(3):
            quota.take(N1, {Load.REPORTS: 1})
        with pytest.raises(ApiError) as refused:
            quota.take(N1, {Load.REPORTS: 1})
        assert refused.value.status == 429
        quota.take(replace(N1, token="b2"), {Load.REPORTS: 1})
        at_s = 2.0
        quota.take(N1, {Load.REPORTS: 1})

    def test_a_report_larger_than_the_bucket_is_taken_and_the_next_waits_for_it(self) -> None:
        at_s = 0.0
        quota = AgentQuota(lambda: at_s, {Load.FAULTS: RateLimit(10, 2)})
        quota.take(N1, {Load.FAULTS: 30})
        with pytest.raises(ApiError) as refused:
            quota.take(N1, {Load.FAULTS: 1})
        assert refused.value.retry_after_s == 10
        at_s = 10.5
        quota.take(N1, {Load.FAULTS: 1})

    def test_what_is_refused_is_not_counted(self) -> None:
        at_s = 0.0
        quota = AgentQuota(lambda: at_s, {Load.ITEMS: RateLimit(10, 1), Load.FAULTS: RateLimit(1, 1)})
        quota.take(N1, {Load.ITEMS: 1, Load.FAULTS: 1})
        for _ in range(50):
            with pytest.raises(ApiError):
                quota.take(N1, {Load.ITEMS: 9, Load.FAULTS: 1})
        quota.take(N1, {Load.ITEMS: 9})

    def test_an_outbox_that_is_full_fits(self) -> None:
        quota = AgentQuota(lambda: 0.0)
        for _ in range(20):
            quota.take(N1, {Load.REPORTS: 1, Load.BYTES: 900_000, Load.ITEMS: 500})


def test_one_node_that_floods_is_answered_429_and_the_others_are_heard(served: Any) -> None:
    async def flood(client: httpx.AsyncClient) -> None:
        statuses = []
        for n in range(4):
            answer = await client.post("/v1/reports", json=report(n + 1, *(finding(n * 500 + i) for i in range(500))))
            statuses.append(answer.status_code)
        assert statuses == [200, 200, 429, 429]
        assert answer.json()["error"]["code"] == "too_many"
        assert int(answer.headers["Retry-After"]) >= 1

    served.run(flood, "n1")
    assert served.call("POST", "/v1/reports", "n2", json=report(1, finding(1), node="n2")).status_code == 200
    assert served.call("POST", "/v1/heartbeats", "n1", json={**ENVELOPE, "interval_s": 10}).status_code == 200
    served.clock.passed_s += 30
    assert served.call("POST", "/v1/reports", "n1", json=report(9, finding(1))).status_code == 200


def test_two_tokens_of_one_node_have_a_quota_each(served: Any) -> None:
    """While its machine is replaced there are two, and one may be stolen."""
    served.store.add_token("agent", "n1", hash_token("token-n1-new"), served.clock.now())
    served.app.state.api.quota = AgentQuota(served.clock.monotonic_s, {**LIMITS, Load.HEARTBEATS: RateLimit(2, 0.1)})
    beat = {**ENVELOPE, "interval_s": 10}
    assert [served.call("POST", "/v1/heartbeats", "n1", json=beat).status_code for _ in range(3)] == [200, 200, 429]
    assert served.call("POST", "/v1/heartbeats", "n1-new", json=beat).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/reports"), ("POST", "/v1/heartbeats"), ("GET", "/v1/orders")]
)
def test_more_requests_than_an_agent_makes_are_refused_before_their_body_is_read(
    served: Any, method: str, path: str
) -> None:
    load = {"/v1/reports": Load.REPORTS, "/v1/heartbeats": Load.HEARTBEATS, "/v1/orders": Load.ORDERS}[path]

    async def flood(client: httpx.AsyncClient) -> None:
        statuses = [
            (await client.request(method, path, content=b"{")).status_code for _ in range(int(LIMITS[load].burst) + 5)
        ]
        assert statuses[-5:] == [429] * 5
        assert 429 not in statuses[:-5]

    served.run(flood, "n1")
