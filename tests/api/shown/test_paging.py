"""Cursors and pages: every row once, whatever is added meanwhile; and what a cursor that was tampered with can do."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from holdfast.api.errors import ApiError
from holdfast.api.shown.paging import BATCH, SCANNED, cursor_of, digest_of, page, place_of, sliced
from holdfast.model.actions.action import Drain, Intent, IntentState
from holdfast.model.book import Book, Change, World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast_checks.result import Remedy, Severity

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DIGEST = digest_of({"node": "n1"})


def test_a_place_comes_back_as_it_was() -> None:
    key = (T0, 7, "0h3k5d2m8x1q/Drain/n1/1")
    assert place_of(cursor_of("actions", DIGEST, key), "actions", DIGEST, datetime, int, str) == key
    assert place_of(None, "actions", DIGEST, datetime) is None
    assert place_of("", "actions", DIGEST, datetime) is None


def forged(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("cursor", "says"),
    [
        ("!!!", "cannot be read"),
        ("AAAA", "cannot be read"),
        ("ü", "cannot be read"),
        (base64.b64encode(b"[" * 700).decode(), "cannot be read"),
        (forged(), "no cursor of this list"),
        (forged(2, "incidents", DIGEST, T0.isoformat(), "x"), "no cursor of this list"),
        (forged(1, "actions", DIGEST, T0.isoformat(), "x"), "no cursor of this list"),
        (forged(1, "incidents", DIGEST, T0.isoformat()), "no cursor of this list"),
        (forged(1, "incidents", "0" * 12, T0.isoformat(), "x"), "other filters"),
        (forged(1, "incidents", DIGEST, "yesterday", "x"), "cannot be read"),
        (forged(1, "incidents", DIGEST, "0001-01-01T00:00:00+23:59", "x"), "cannot be read"),
        (forged(1, "incidents", DIGEST, 7, "x"), "cannot be read"),
        (forged(1, "incidents", DIGEST, T0.isoformat(), {"$ne": 1}), "cannot be read"),
        (forged(1, "incidents", DIGEST, T0.isoformat(), "x\0"), "cannot be read"),
    ],
)
def test_one_that_was_tampered_with_is_refused(cursor: str, says: str) -> None:
    with pytest.raises(ApiError, match=says) as refused:
        place_of(cursor, "incidents", DIGEST, datetime, str)
    assert (refused.value.status, refused.value.field) == (422, "cursor")


@pytest.mark.parametrize("number", [True, 1.5, 2**63, -(2**64), "1"])
def test_a_number_is_one_that_the_store_can_hold(number: Any) -> None:
    with pytest.raises(ApiError):
        place_of(forged(1, "events", DIGEST, number), "events", DIGEST, int)


class TestPage:
    ROWS: ClassVar = list(range(1, 1001))

    def fetch(self, after: Any, most: int) -> list[int]:
        return [n for n in self.ROWS if after is None or n > after[0]][:most]

    @pytest.mark.parametrize("limit", [1, 7, 199, 200, 999, 1000, 1001])
    @pytest.mark.parametrize("step", [1, 3, 400, 5000])
    def test_pages_hold_every_row_that_passes_once(self, limit: int, step: int) -> None:
        found: list[int] = []
        place: Any = None
        for _ in range(1001):
            some, place = page(self.fetch, lambda n: n % step == 0, lambda n: (n,), place, limit)
            assert len(some) <= limit
            found += some
            if place is None:
                break
        assert found == [n for n in self.ROWS if n % step == 0]

    def test_a_filter_that_lets_nothing_through_ends_a_page_early(self) -> None:
        asked = [0]

        def fetch(after: Any, most: int) -> list[int]:
            asked[0] += most
            first = after[0] if after else 0
            return list(range(first + 1, first + most + 1))

        found, place = page(fetch, lambda _: False, lambda n: (n,), None, 10)
        assert (found, place) == ([], (SCANNED,))
        assert asked[0] <= SCANNED + BATCH

    def test_of_rows_at_hand(self) -> None:
        assert sliced([1, 2, 3], lambda n: (n,), None, None) == ([1, 2, 3], None)
        assert sliced([1, 2, 3], lambda n: (n,), None, 2) == ([1, 2], (2,))
        assert sliced([1, 2, 3], lambda n: (n,), (2,), 2) == ([3], None)


def incident(number: int, **fields: Any) -> Incident:
    given = {"check": "gpu.xid", "state": IncidentState.SUSPECTED, **fields}
    return Incident(
        id=f"{number:012d}",
        node=f"n{number % 3}",
        instance_id="i-1",
        boot_id="b",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        headline="h",
        fault_at=T0,
        opened_at=T0 + timedelta(seconds=number // 2),  # two at a time: the id decides
        **given,
    )


def world_of(*names: str) -> World:
    nodes = {name: Node(name, "IDLE", frozenset(), partitions=("gpu" if name == "n0" else "cpu",)) for name in names}
    return World(T0, Policy(), Book(), ClusterView(cluster="c", read_at=T0, nodes=nodes, jobs={}, reservations={}))


def walk(served: Any, path: str, what: str, who: str = "eve") -> list[Any]:
    """All pages of a list."""
    found: list[Any] = []
    cursor = ""
    for _ in range(100):
        got = served.call("GET", f"{path}{'&cursor=' + cursor if cursor else ''}", who).json()
        found += got[what]
        cursor = got["next_cursor"]
        if cursor is None:
            return found
    raise AssertionError("no end")


class TestLists:
    def test_incidents(self, served: Any) -> None:
        kinds = [incident(n, check="gpu.xid" if n % 2 else "gpu.ecc") for n in range(25)]
        served.commit(Change(incidents=tuple(kinds)))
        every = [i["id"] for i in served.call("GET", "/v1/incidents").json()["incidents"]]
        assert len(every) == 25
        assert [i["id"] for i in walk(served, "/v1/incidents?limit=4", "incidents")] == every
        some = walk(served, "/v1/incidents?limit=3&check=gpu.ecc", "incidents")
        assert [i["id"] for i in some] == [
            i["id"] for i in (served.call("GET", "/v1/incidents").json()["incidents"]) if i["check"] == "gpu.ecc"
        ]
        until = (T0 + timedelta(seconds=5)).isoformat().replace("+", "%2B")
        assert len(walk(served, f"/v1/incidents?limit=100&until={until}", "incidents")) == 10
        assert walk(served, "/v1/incidents?limit=100&state=closed", "incidents") == []
        served.world = world_of("n0", "n1", "n2")
        assert {i["node"] for i in walk(served, "/v1/incidents?limit=2&partition=gpu", "incidents")} == {"n0"}

    def test_rows_that_are_added_meanwhile_move_none(self, served: Any) -> None:
        served.commit(Change(incidents=tuple(incident(n) for n in range(6))))
        first = served.call("GET", "/v1/incidents?limit=3").json()
        served.commit(Change(incidents=tuple(incident(n) for n in range(6, 9))))
        rest = walk(served, f"/v1/incidents?limit=3&cursor={first['next_cursor']}", "incidents")
        assert [i["id"] for i in [*first["incidents"], *rest]] == [f"{n:012d}" for n in range(5, -1, -1)]

    def test_actions_lead_to_older_ones(self, served: Any) -> None:
        intents = [
            Intent(f"{n}/Drain/n1/1", f"{n}", Drain(f"n{n % 2}", "r"), "r", 1, IntentState.PLANNED, T0, order=n)
            for n in range(7)
        ]
        served.commit(Change(incidents=(), intents=tuple(intents)))
        first = served.call("GET", "/v1/actions?limit=3").json()
        assert [a["key"][0] for a in first["actions"]] == ["4", "5", "6"]
        second = served.call("GET", f"/v1/actions?limit=3&cursor={first['next_cursor']}").json()
        assert [a["key"][0] for a in second["actions"]] == ["1", "2", "3"]
        assert [a["key"][0] for a in walk(served, "/v1/actions?limit=2&node=n0&kind=Drain&state=planned", "actions")] == [
            "4", "6", "0", "2",
        ]  # fmt: skip

    def test_events_by_either_cursor(self, served: Any) -> None:
        events = tuple(
            Event(T0 + timedelta(seconds=n), EventKind.PAUSED, node=f"n{n % 3}", text=str(n)) for n in range(10)
        )
        served.commit(Change(events=events))
        texts = [e["text"] for e in walk(served, "/v1/events?limit=3&kind=paused", "events")]
        assert texts == [str(n) for n in range(10)]
        assert [e["text"] for e in walk(served, "/v1/events?limit=2&node=n1", "events")] == ["1", "4", "7"]
        served.world = world_of("n0", "n1", "n2")
        assert [e["text"] for e in walk(served, "/v1/events?limit=2&partition=gpu", "events")] == ["0", "3", "6", "9"]
        old = served.call("GET", "/v1/events?limit=4&kind=paused").json()
        more = served.call("GET", f"/v1/events?limit=9&kind=paused&after_id={old['next_after_id']}").json()
        assert [e["text"] for e in more["events"]] == ["4", "5", "6", "7", "8", "9"]

    def test_the_newest_events_first(self, served: Any) -> None:
        events = tuple(
            Event(T0 + timedelta(seconds=n), EventKind.PAUSED, node=f"n{n % 3}", text=str(n)) for n in range(10)
        )
        served.commit(Change(events=events))
        asked = "/v1/events?limit=3&kind=paused&newest_first=true"
        assert [e["text"] for e in walk(served, asked, "events")] == [str(n) for n in reversed(range(10))]
        first = served.call("GET", asked).json()
        served.commit(Change(events=(Event(T0 + timedelta(seconds=10), EventKind.PAUSED, text="10"),)))
        older = served.call("GET", f"{asked}&cursor={first['next_cursor']}").json()
        assert [e["text"] for e in older["events"]] == ["6", "5", "4"]
        came = served.call("GET", f"/v1/events?kind=paused&after_id={first['next_after_id']}").json()
        assert [e["text"] for e in came["events"]] == ["10"]
        wrong = served.call("GET", f"/v1/events?limit=3&kind=paused&cursor={first['next_cursor']}")
        assert (wrong.status_code, "other filters" in wrong.text) == (422, True)

    def test_nodes(self, served: Any) -> None:
        served.world = world_of("n0", "n1", "n2", "n3")
        assert [n["name"] for n in walk(served, "/v1/nodes?limit=3", "nodes")] == ["n0", "n1", "n2", "n3"]
        assert [n["name"] for n in walk(served, "/v1/nodes?partition=cpu&state=idle", "nodes")] == ["n1", "n2", "n3"]
        assert walk(served, "/v1/nodes?state=drain", "nodes") == []
        assert walk(served, "/v1/nodes?check=gpu.xid", "nodes") == []
        assert served.call("GET", "/v1/nodes").json()["next_cursor"] is None, "without a limit: all, as ever"

    def test_a_cursor_of_others_jobs_shows_a_user_only_their_own(self, served: Any) -> None:
        cursor = cursor_of("jobs", digest_of({}), (0,))
        got = served.call("GET", f"/v1/jobs?cursor={cursor}", "1001")
        assert (got.status_code, got.json()["jobs"]) == (200, [])

    @pytest.mark.parametrize("path", ["nodes", "incidents", "actions", "events", "jobs"])
    def test_a_wrong_cursor_is_one_clear_answer(self, served: Any, path: str) -> None:
        got = served.call("GET", f"/v1/{path}?cursor=nonsense")
        assert (got.status_code, got.json()["error"]["field"]) == (422, "cursor")
