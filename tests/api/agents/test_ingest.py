"""Reports, heartbeats and orders: what is kept, what is refused, and with which one clear line."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import httpx
import pytest

from holdfast.agent.sending import answers
from holdfast.api.callers.auth import hash_token
from holdfast.api.requests.wire import MAX_EVIDENCE, clean
from holdfast.model.actions.action import Drain, Intent, IntentState, SendOrder, Verb
from holdfast.model.book import Book, Change, World
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Node
from holdfast_checks.acting import CheckPolicy, Lists
from holdfast_checks.result import Remedy, Severity, Verdict
from support.store_nouns import incident

ENVELOPE: dict[str, Any] = {
    "version": 1,
    "node": "n1",
    "instance_id": "i-1",
    "boot_id": "boot-1",
    "agent_version": "0.1.0",
}
FINDING: dict[str, Any] = {
    "kind": "finding",
    "check": "gpu.xid",
    "component": "GPU-3",
    "code": "79",
    "verdict": "failed",
    "severity": "fatal",
    "remedy": "reboot",
    "summary": "fell off\x00the\nbus",
    "age_s": 2.5,
    "monotonic_s": 12.5,
    "wall_time": "2031-01-01T00:00:00Z",
    "gpu_minor": 3,
    "pci": "0000:3B:00.0",
    "evidence": {"xid": 79},
    "from_a_newer_agent": {"x": 1},
}

LEADER: dict[str, Any] = {"leader": True, "checks": {"act_on": [], "observe_only": []}}


def report(*items: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**ENVELOPE, "outbox_id": "out-1", "sequence": 1, "items": list(items), **changes}


def heartbeat(**changes: Any) -> dict[str, Any]:
    return {**ENVELOPE, "interval_s": 10, "wall_time": "2026-03-01T12:00:03Z", "all_ok": True, "failing": [], **changes}


def order(node: str = "n1", boot_id: str = "boot-1") -> Intent:
    action = SendOrder(node, "i-1", boot_id, Verb.VALIDATE, 60.0, {"expect_no_job": True})
    at = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    return Intent(f"inc/SendOrder/validate/{node}/1", "inc", action, "because", 1, IntentState.PLANNED, at)


def test_a_finding_is_stored_in_the_cores_words(served: Any) -> None:
    answer = served.call("POST", "/v1/reports", "n1", json=report(FINDING))
    assert (answer.status_code, answer.json()) == (200, {"accepted": True, "duplicate": False, "out_of_order": False})
    (stored,) = served.store.reports
    (finding,) = stored.findings
    assert (finding.node, finding.instance_id, finding.boot_id) == ("n1", "i-1", "boot-1")
    assert (finding.verdict, finding.severity, finding.remedy) == (Verdict.FAILED, Severity.FATAL, Remedy.REBOOT)
    assert finding.fault_at == served.clock.now() - timedelta(seconds=2.5)
    assert finding.received_at == served.clock.now()
    assert finding.summary == "fell off the bus"
    assert (finding.gpu_minor, finding.pci) == (3, "0000:3b:00.0")
    assert finding.evidence == {"xid": 79, "wall_time": "2031-01-01T00:00:00Z", "monotonic_s": 12.5}
    assert served.woken == 1
    assert served.agents.views()["n1"][0].boot_id == "boot-1"


def test_all_kinds_of_items(served: Any) -> None:
    items: list[dict[str, Any]] = [
        {"kind": "clear", "check": "gpu.count", "age_s": 1},
        {
            "kind": "statement",
            "statement": "checkpoint.saved",
            "job_id": 7,
            "uid": 1001,
            "restarts": 1,
            "step": 40,
            "path": "/c",
        },
        {"kind": "inventory", "gpus": {"GPU-3": {"minor": 3, "pci": "0000:3b:00.0"}}, "driver_version": "550"},
        {
            "kind": "order_outcome",
            "order_id": "inc/SendOrder/validate/n1/1",
            "ok": True,
            "summary": "ok",
            "detail": {"a": [1]},
        },
        {"kind": "from.the.future", "x": 1},
    ]
    assert served.call("POST", "/v1/reports", "n1", json=report(*items)).status_code == 200
    (stored,) = served.store.reports
    assert (stored.clears[0].check, stored.clears[0].component) == ("gpu.count", "node")
    assert (stored.statements[0].kind, stored.statements[0].step) == ("checkpoint.saved", 40)
    assert stored.inventory.gpus == {"GPU-3": {"minor": 3, "pci": "0000:3b:00.0"}}
    assert (stored.outcomes[0].ok, stored.outcomes[0].detail) == (True, {"a": [1]})


def test_the_refusal_of_an_agent_of_before_gets_its_word(served: Any) -> None:
    refused = {"kind": "order_outcome", "order_id": "inc/SendOrder/deep/n1.0/1", "ok": False}
    text = "refused: unsupported verb 'run_checks'; this agent knows validate"
    assert served.call("POST", "/v1/reports", "n1", json=report({**refused, "summary": text})).status_code == 200
    assert served.store.reports[0].outcomes[0].detail == {"refused": "unsupported_verb"}


@pytest.mark.parametrize(
    "change", [{"history": True}, {"verdict": "ok"}, {"verdict": "unknown"}, {"verdict": "skipped"}]
)
def test_what_is_noted_and_never_acted_upon(served: Any, change: dict[str, Any]) -> None:
    assert served.call("POST", "/v1/reports", "n1", json=report({**FINDING, **change})).status_code == 200
    assert served.store.reports[0].findings == ()


def test_a_finding_without_severity_is_only_a_warning(served: Any) -> None:
    bare = {"kind": "finding", "check": "site.custom", "verdict": "failed"}
    assert served.call("POST", "/v1/reports", "n1", json=report(bare)).status_code == 200
    finding = served.store.reports[0].findings[0]
    assert (finding.severity, finding.remedy, finding.component) == (Severity.WARNING, Remedy.NONE, "node")


@pytest.mark.parametrize(("age_s", "placed_s"), [(-30.0, 0.0), (30 * 86400.0, 7 * 86400.0), (None, 0.0), (60, 60.0)])
def test_ages_are_clamped(served: Any, age_s: float | None, placed_s: float) -> None:
    assert served.call("POST", "/v1/reports", "n1", json=report({**FINDING, "age_s": age_s})).status_code == 200
    assert served.store.reports[0].findings[0].fault_at == served.clock.now() - timedelta(seconds=placed_s)


def test_the_same_again_changes_nothing_and_out_of_order_is_kept(served: Any) -> None:
    for sequence, duplicate, out_of_order in ((5, False, False), (5, True, False), (3, False, True), (6, False, False)):
        answer = served.call("POST", "/v1/reports", "n1", json=report(FINDING, sequence=sequence)).json()
        assert (answer["duplicate"], answer["out_of_order"]) == (duplicate, out_of_order)
    assert [r.sequence for r in served.store.reports] == [5, 3, 6]
    assert served.woken == 3


BAD_REPORTS: list[tuple[str, Any, int, str, str | None]] = [
    ("not JSON", b"{", 400, "malformed", None),
    ("not an object", b"[]", 400, "malformed", None),
    ("not UTF-8", b"\xff\xfe", 400, "malformed", None),
    ("too deep", b"[" * 100_000, 400, "malformed", None),
    ("not a number", b'{"version": NaN}', 400, "malformed", None),
    ("lone surrogate", b'{"node": "\\ud800"}', 400, "malformed", None),
    ("no version", {"node": "n1"}, 422, "invalid", "version"),
    ("version of tomorrow", report(version=2, node=5), 422, "unsupported_version", "version"),
    ("version zero", report(version=0), 422, "unsupported_version", "version"),
    ("another node", report(FINDING, node="n2"), 403, "wrong_node", "node"),
    ("node is no name", report(node="n1; rm -rf /"), 422, "invalid", "node"),
    ("node is missing", {k: v for k, v in report().items() if k != "node"}, 422, "invalid", "node"),
    ("boot is missing", report(boot_id=""), 422, "invalid", "boot_id"),
    ("boot is a novel", report(boot_id="b" * 300), 422, "invalid", "boot_id"),
    ("sequence below zero", report(sequence=-1), 422, "invalid", "sequence"),
    ("sequence beyond the database", report(sequence=2**63), 422, "invalid", "sequence"),
    ("items is no list", report(items={"a": 1}), 422, "invalid", "items"),
    ("item is no object", report(items=[1]), 422, "invalid", "items.0"),
    ("item without kind", report({"check": "x"}), 422, "invalid", "items.0.kind"),
    ("too many items", report(*[{"kind": "clear", "check": "x"}] * 1001), 422, "invalid", "items"),
    ("finding without verdict", report({"kind": "finding", "check": "x"}), 422, "invalid", "items.0.verdict"),
    ("severity is no word", report({**FINDING, "severity": 7}), 422, "invalid", "items.0.severity"),
    ("infinite age", json.dumps(report(FINDING)).replace("2.5", "1e999", 1).encode(), 422, "invalid", "items.0.age_s"),
    ("GPU below zero", report({**FINDING, "gpu_minor": -1}), 422, "invalid", "items.0.gpu_minor"),
    ("evidence is no object", report({**FINDING, "evidence": [1]}), 422, "invalid", "items.0.evidence"),
    (
        "statement of nobody",  # word: a test's id
        report({"kind": "statement", "statement": "progress", "job_id": 1}),
        422,
        "invalid",
        "items.0.uid",
    ),
    (
        "path with NUL",
        report({"kind": "statement", "statement": "progress", "job_id": 1, "uid": 1, "path": "a\0b"}),
        422,
        "invalid",
        "items.0.path",
    ),
]


@pytest.mark.parametrize(
    ("body", "status", "code", "field"), [b[1:] for b in BAD_REPORTS], ids=[b[0] for b in BAD_REPORTS]
)
def test_bad_reports_get_one_clear_line(untouched: Any, body: Any, status: int, code: str, field: str | None) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = untouched.call("POST", "/v1/reports", "n1", content=content)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["field"]) == (status, code, field)
    assert error["message"]
    assert "\n" not in error["message"]
    assert untouched.store.reports == []


def test_hostile_values_are_made_harmless(served: Any) -> None:
    evidence = {
        "a\0": "x\x1b[2J" + "y" * 9000,
        "big": 10**400,
        "deep": {"b": [1]},
        "none": None,
        **{str(i): i for i in range(999)},
    }
    assert served.call("POST", "/v1/reports", "n1", json=report({**FINDING, "evidence": evidence})).status_code == 200
    kept = served.store.reports[0].findings[0].evidence
    assert len(kept) <= 258
    assert all(isinstance(v, str | int | float) for v in kept.values())
    assert len(kept["a"]) <= 2000
    assert "\x1b" not in kept["a"]


def test_evidence_is_bounded_in_all(served: Any) -> None:
    evidence = {f"k{n}": "x" * 1900 for n in range(250)}
    assert served.call("POST", "/v1/reports", "n1", json=report({**FINDING, "evidence": evidence})).status_code == 200
    kept = served.store.reports[0].findings[0].evidence
    assert 0 < sum(map(len, map(str, kept.values()))) <= MAX_EVIDENCE


@pytest.mark.parametrize("letter", ["x", "ß"])
def test_the_names_of_evidence_count_as_they_are_stored(served: Any, letter: str) -> None:
    evidence = {f"{n}{letter * 96}": letter * 1900 for n in range(250)}
    assert served.call("POST", "/v1/reports", "n1", json=report({**FINDING, "evidence": evidence})).status_code == 200
    kept = served.store.reports[0].findings[0].evidence
    assert MAX_EVIDENCE / 2 < len(json.dumps(kept, separators=("", ""))) < MAX_EVIDENCE * 1.1
    assert len(kept) >= 250


class TestSize:
    def test_declared(self, served: Any) -> None:
        answer = served.call("POST", "/v1/reports", "n1", content=b"x" * (1 << 20) + b"x")
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")

    def test_refused_while_reading_without_a_declared_length(self, served: Any) -> None:
        sent = 0

        async def endless() -> Any:
            nonlocal sent
            while sent < 64 << 20:
                sent += 1 << 16
                yield b" " * (1 << 16)

        answer = served.call("POST", "/v1/reports", "n1", content=endless())
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        assert sent < 2 << 20


AUTH: list[tuple[str, dict[str, str], int, str]] = [
    ("nothing", {}, 401, "unauthenticated"),
    ("another scheme", {"Authorization": "Basic dG9rZW4="}, 401, "unauthenticated"),
    ("empty", {"Authorization": "Bearer "}, 401, "unauthenticated"),
    ("wrong", {"Authorization": "Bearer nope"}, 401, "unauthenticated"),
    ("very long", {"Authorization": "Bearer " + "x" * 5000}, 401, "unauthenticated"),
    ("an operator is no agent", {"Authorization": "Bearer token-op"}, 403, "forbidden"),
    ("a user is no agent", {"Authorization": "Bearer token-1001"}, 403, "forbidden"),
]


@pytest.mark.parametrize("path", ["/v1/reports", "/v1/heartbeats"])
@pytest.mark.parametrize(("headers", "status", "code"), [a[1:] for a in AUTH], ids=[a[0] for a in AUTH])
def test_who_may_report(untouched: Any, path: str, headers: dict[str, str], status: int, code: str) -> None:
    answer = untouched.call("POST", path, None, json=report(FINDING), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert untouched.store.reports == []
    assert untouched.agents.views() == {}


class TestHeartbeats:
    def test_touch_memory_only(self, served: Any) -> None:
        assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat(failing=["gpu.thermal"])).json() == LEADER
        (view,) = served.agents.views()["n1"]
        assert (view.failing, view.all_ok, view.clock_offset_s) == (("gpu.thermal",), True, 3.0)
        assert served.store.reports == []

    def test_wake_the_loop_only_with_news(self, served: Any) -> None:
        for body, woken in (
            (heartbeat(), 1),
            (heartbeat(), 1),
            (heartbeat(failing=["gpu.xid"]), 2),
            (heartbeat(failing=["gpu.xid"]), 2),
            (heartbeat(boot_id="boot-2"), 3),
        ):
            served.call("POST", "/v1/heartbeats", "n1", json=body)
            assert served.woken == woken

    def test_go_on_while_the_database_is_away(self, served: Any) -> None:
        assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).status_code == 200
        served.store.away = True
        served.clock.passed_s = 300.0
        assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).status_code == 200
        assert served.agents.views()["n1"][0].last_heard == served.clock.now()

    def test_a_revoked_token_ends_within_a_minute(self, served: Any) -> None:
        assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).status_code == 200
        assert served.store.revoke_token(hash_token("token-n1"))
        served.clock.passed_s = 61.0
        assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).status_code == 401

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            (heartbeat(node="n2"), 403, "wrong_node"),
            (heartbeat(interval_s=0), 422, "invalid"),
            (heartbeat(failing="all"), 422, "invalid"),
            (heartbeat(version=9), 422, "unsupported_version"),
        ],
    )
    def test_bad(self, untouched: Any, body: dict[str, Any], status: int, code: str) -> None:
        answer = untouched.call("POST", "/v1/heartbeats", "n1", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert untouched.agents.views() == {}

    def test_an_unreadable_clock_is_no_reason_to_refuse(self, served: Any) -> None:
        assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat(wall_time="yesterday")).status_code == 200

    @pytest.mark.parametrize(
        ("silent_s", "known_s"),
        [(12.5, 12.5), (0, 0), (None, None), (-1, None), ("long", None), (True, None), (1e300, None)],
    )
    def test_say_how_long_the_fabric_has_been_silent(
        self, served: Any, silent_s: object, known_s: float | None
    ) -> None:
        assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat(fabric_silent_s=silent_s)).status_code == 200
        (view,) = served.agents.views()["n1"]
        moved_at = None if known_s is None else served.clock.now() - timedelta(seconds=known_s)
        assert view.fabric_moved_at == moved_at


def test_store_away_is_503_with_retry_after(served: Any) -> None:
    served.call("POST", "/v1/heartbeats", "n1", json=heartbeat())
    served.store.away = True
    answer = served.call("POST", "/v1/reports", "n1", json=report(FINDING))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) >= 1


class TestOrders:
    QUERY = "/v1/orders?node=n1&instance_id=i-1&boot_id=boot-1"

    def test_at_once_when_there_is_one(self, served: Any) -> None:
        served.commit(Change(intents=(order(),)))
        served.clock.passed_s = 20.0
        (got,) = served.call("GET", f"{self.QUERY}&wait_s=25", "n1").json()["orders"]
        assert (got["id"], got["verb"], got["args"]) == (
            "inc/SendOrder/validate/n1/1",
            "validate",
            {"expect_no_job": True},
        )
        assert got["expires_s"] == 40.0

    def test_empty_after_the_wait(self, served: Any) -> None:
        assert served.call("GET", self.QUERY, "n1").json() == {"orders": []}

    @pytest.mark.slow
    def test_no_names_of_users_files_make_an_answer_longer_than_an_agent_reads(self, served: Any) -> None:
        """As after a fault on a node with many small jobs. What does not fit comes with the next answer, every order once."""
        args = {"job_id": 1, "uid": 1000, "restarts": 0, "dir": "/" + "\U0001f4be" * 2_000}
        action = SendOrder("n1", "i-1", "boot-1", Verb.SURVEY, 60.0, args)
        planned = [replace(order(), key=f"inc/SendOrder/survey/n1/{n}.0/1", action=action) for n in range(200)]
        served.commit(Change(intents=tuple(planned)))
        came: list[str] = []
        while len(came) < 200:
            answer = served.call("GET", self.QUERY, "n1")
            assert len(answer.content) < answers.MOST_BYTES
            orders = answer.json()["orders"]
            assert orders
            came += [order["id"] for order in orders]
        assert sorted(came) == sorted(each.key for each in planned)

    def test_a_waiting_poll_wakes_when_orders_are_committed(self, served: Any) -> None:
        async def work(client: httpx.AsyncClient) -> None:
            answers: list[httpx.Response] = []

            async def poll() -> None:
                answers.append(await client.get(f"{self.QUERY}&wait_s=50"))

            with anyio.fail_after(5):
                async with anyio.create_task_group() as group:
                    group.start_soon(poll)
                    while not served.hub.waiting():
                        await anyio.sleep(0.001)
                    served.commit(Change(intents=(order(),)))
                    await anyio.to_thread.run_sync(served.hub.notify, "n1")
            assert len(answers[0].json()["orders"]) == 1

        served.run(work, "n1")

    def test_a_stopping_server_answers_waiting_polls(self, served: Any) -> None:
        async def work(client: httpx.AsyncClient) -> None:
            with anyio.fail_after(5):
                async with anyio.create_task_group() as group:
                    group.start_soon(client.get, f"{self.QUERY}&wait_s=50")
                    while not served.hub.waiting():
                        await anyio.sleep(0.001)
                    served.hub.close()

        served.run(work, "n1")

    def test_a_poll_without_news_costs_no_query_but_another_boot_has_its_own(self, served: Any) -> None:
        for _ in range(3):
            served.call("GET", self.QUERY, "n1")
        assert served.store.order_lookups == 1
        served.commit(Change(intents=(order(boot_id="boot-2"),)))
        assert len(served.call("GET", self.QUERY.replace("boot-1", "boot-2"), "n1").json()["orders"]) == 1

    def test_an_order_is_handed_out_again_but_not_at_once(self, served: Any) -> None:
        served.commit(Change(intents=(order(),)))
        counts = []
        for passed_s in (0.0, 1.0, 6.0):
            served.clock.passed_s = passed_s
            counts.append(len(served.call("GET", self.QUERY, "n1").json()["orders"]))
        assert counts == [1, 0, 1]

    @pytest.mark.parametrize(
        ("query", "status", "code"),
        [
            ("node=n2&boot_id=b", 403, "wrong_node"),
            ("node=n1", 422, "invalid"),
            ("boot_id=b", 422, "invalid"),
            ("node=n1&boot_id=b&wait_s=soon", 422, "invalid"),
            ("node=n1&boot_id=b&wait_s=nan", 422, "invalid"),
        ],
    )
    def test_bad(self, untouched: Any, query: str, status: int, code: str) -> None:
        answer = untouched.call("GET", f"/v1/orders?{query}", "n1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(("mode", "kept_off"), [(Mode.OBSERVE, False), (Mode.ACT, True)])
def test_the_answer_to_a_heartbeat_says_whether_jobs_are_kept_off(served: Any, mode: Mode, kept_off: bool) -> None:
    now = served.clock.now()
    drain = Intent("inc1/x/1", "inc1", Drain("n1", "drill"), "drill", 1, IntentState.DONE, now)
    book = Book(incidents={"inc1": incident(state=IncidentState.OPEN)}, intents={drain.key: drain})
    served.world = World(now, replace(Policy(), mode=Mode.ACT, prolog=mode), book, None)
    answer = served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).json()
    assert answer == (LEADER | {"keep_off": "inc1"} if kept_off else LEADER)
    served.deps.leader = lambda: False
    assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).json() == {"leader": False}


def test_the_answer_to_a_heartbeat_names_neighbours_and_says_older_agents_where_they_are(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seventh = Node("n7", "IDLE", frozenset(), address="10.2.3.4", port=6818)
    monkeypatch.setattr(served.deps, "neighbours", lambda _node: (seventh,))
    answer = served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).json()
    assert answer == LEADER | {"neighbour_nodes": ["n7"], "neighbours": [["10.2.3.4", 6818]]}


def test_the_answer_to_a_heartbeat_gives_the_interval_of_the_next_ones(served: Any) -> None:
    """Not that of a standby: it knows no fleet."""
    assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).json() == LEADER
    served.deps.heartbeat_s = lambda: 4.0
    assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).json() == LEADER | {"interval_s": 4.0}
    served.deps.leader = lambda: False
    assert served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).json() == {"leader": False}


def test_the_answer_to_a_heartbeat_says_which_checks_act_and_the_api_where_that_is_otherwise(served: Any) -> None:
    lists = Lists(("gpu.nvlink",), ("gpu.ecc",))
    served.deps.policy = Policy(mode=Mode.ACT, checks=CheckPolicy(lists))
    told = served.call("POST", "/v1/heartbeats", "n1", json=heartbeat()).json()["checks"]
    assert told == {"act_on": ["gpu.nvlink"], "observe_only": ["gpu.ecc"]}
    shown = served.call("GET", "/v1/checks", "eve").json()
    assert [(o["node"], o["says"]) for o in shown["others"]] == [("n1", False)], "an older agent says nothing"
    served.call("POST", "/v1/heartbeats", "n1", json=heartbeat(act_on=["efa.count"], observe_only=[]))
    (other,) = served.call("GET", "/v1/checks", "eve").json()["others"]
    assert other == {"node": "n1", "act_on": ["efa.count"], "observe_only": [], "says": True}
    served.call("POST", "/v1/heartbeats", "n1", json=heartbeat(act_on=lists.act_on, observe_only=lists.observe_only))
    shown = served.call("GET", "/v1/checks", "eve").json()
    acts = {c["id"]: (c["acts"], c["proven"]) for c in shown["checks"]}
    assert shown["others"] == []
    assert {acts[check] for check in ("gpu.nvlink",)} == {(True, False)}
    assert (acts["gpu.ecc"], acts["gpu.xid"], acts["efa.count"]) == ((False, True), (True, True), (False, False))


def test_in_observe_no_order_is_handed_out(served: Any) -> None:
    served.commit(Change(intents=(order(),)))
    served.deps.mode = Mode.OBSERVE
    path = "/v1/orders?node=n1&instance_id=i-1&boot_id=boot-1"
    assert served.call("GET", path, "n1").json() == {"orders": []}


def test_no_text_of_an_agent_reverses_what_is_read() -> None:
    """Neither in Alertmanager's annotations, nor in a dashboard."""
    assert clean("a\u202e b\u2066c\x1b[31m\u2028d") == "a  b c [31m d"
