"""What Prometheus scrapes of one head node and of two, and the names of it all."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.api.figures import gauges
from holdfast.metrics.tally import Tally
from holdfast.metrics.totals import Totals
from holdfast.model.book import Book, Brake, BrakeKind, World
from holdfast.model.event import EventKind
from holdfast.model.parts import NotifierState
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from support.whole_recovery import WHOLE

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SERIES = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")


def world(*nodes: Node) -> World:
    return World(NOW, Policy(), Book(), ClusterView("c1", NOW, {n.name: n for n in nodes}, {}, {}))


def drained(name: str) -> Node:
    return Node(name, "IDLE", frozenset({"DRAIN"}), reason="ann: fan", reason_user="ann", reason_time=NOW)


def scraped(served: Any, path: str = "/metrics") -> dict[str, float]:
    """Name with labels → value."""
    lines = served.call("GET", path).text.splitlines()
    found = (SERIES.fullmatch(line) for line in lines if not line.startswith("#"))
    return {f"{m[1]}{{{m[2] or ''}}}": float(m[3]) for m in found if m is not None}


def names(found: dict[str, float]) -> set[str]:
    return {series.partition("{")[0] for series in found}


def test_every_sample_names_the_cluster(served: Any) -> None:
    served.world = world(drained("n1"))
    found = scraped(served)
    assert found['holdfast_node_state{cluster="c1",node="n1",state="drained_by_operator"}'] == 1
    assert [series for series in found if 'cluster="c1"' not in series] == []


def test_the_configured_name_of_the_cluster_comes_first(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served.world = world()
    monkeypatch.setattr(served.deps, "cluster_name", lambda: 'a"b')
    assert scraped(served)[r'holdfast_leader{cluster="a\"b"}'] == 1


class TestTwoHeads:
    """Both are scraped; each series of the cluster comes from the one that leads."""

    def test_a_standby_shows_its_own_process_alone(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        served.world = world(drained("n1"))
        leads = scraped(served)
        monkeypatch.setattr(served.deps, "leader", lambda: False)
        stands_by = scraped(served)
        assert stands_by['holdfast_leader{cluster="c1"}'] == 0
        assert {"holdfast_loop_age_seconds", "holdfast_part_condition", "holdfast_heartbeats_total"} <= names(stands_by)
        assert "process_resident_memory_bytes" in names(stands_by)
        gone = names(leads) - names(stands_by)
        assert {"holdfast_agents", "holdfast_open_incidents", "holdfast_node_state", "holdfast_brake_tripped"} <= gone
        assert gone == names(leads) - (names(leads) & names(stands_by))

    def test_what_only_the_leader_knows_is_503_elsewhere(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        served.world = world(drained("n1"))
        of_cluster = names(scraped(served, "/metrics/cluster"))
        assert "holdfast_agents" in of_cluster
        assert "holdfast_leader" not in of_cluster
        monkeypatch.setattr(served.deps, "leader", lambda: False)
        monkeypatch.setattr(served.deps, "led_by", lambda: "head2/ab")
        answer = served.call("GET", "/metrics/cluster")
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "this controller is a standby: head2/ab leads"

    def test_no_series_of_the_cluster_comes_from_both(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        served.world = world(drained("n1"))
        of_cluster = names(scraped(served, "/metrics/cluster"))
        monkeypatch.setattr(served.deps, "leader", lambda: False)
        assert not of_cluster & names(scraped(served))


def test_series_of_nodes_are_bounded(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "MOST_NODES", 3)
    served.world = world(*(drained(f"n{k}") for k in range(8)))
    found = scraped(served)
    assert sum(series.startswith("holdfast_node_state{") for series in found) == 3
    assert sum(series.startswith("holdfast_node_info{") for series in found) == 3
    assert found['holdfast_node_state_left_out{cluster="c1"}'] == 5
    assert found['holdfast_nodes{cluster="c1",state="drained_by_operator"}'] == 8


def test_each_brake_that_may_trip_has_a_series_and_one_of_a_lost_set_too(served: Any) -> None:
    served.deps.policy = Policy(
        nodes=(NodeSet("prod", nodes="n1", brakes={"drains_60min": 1}), NodeSet("x", nodes="n2"))
    )
    held = Brake(BrakeKind.DRAINS, NOW, "many", None, "gone", "n3")
    served.world = replace(world(drained("n1")), book=Book(brakes={held.name: held}))
    tripped = {
        series: value for series, value in scraped(served).items() if series.startswith("holdfast_brake_tripped")
    }
    assert tripped == {
        f'holdfast_brake_tripped{{cluster="c1",kind="{kind}{of}"}}': 0.0 for kind in BrakeKind for of in ("", "@prod")
    } | {'holdfast_brake_tripped{cluster="c1",kind="drains@gone"}': 1.0}


def test_a_healthy_cluster_has_no_series_of_a_node(served: Any) -> None:
    served.world = world(Node("n1", "IDLE", frozenset()))
    assert not {"holdfast_node_state", "holdfast_node_info"} & names(scraped(served))


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        (NotifierState(1), 0.0),
        (NotifierState(1, "refused", NOW.replace(minute=0, hour=11)), 3600.0),
        (NotifierState(1, "refused"), 0.0),
        (None, None),
    ],
)
def test_failing_delivery_of_notices(
    served: Any, monkeypatch: pytest.MonkeyPatch, state: NotifierState | None, seconds: float | None
) -> None:
    monkeypatch.setattr(served.deps, "notifier", lambda: state)
    assert scraped(served).get("holdfast_notices_failing_seconds{}") == seconds


def test_a_label_cannot_break_out_of_its_line(served: Any) -> None:
    served.world = world(replace(drained('n1"} 7\nx 1'), gres='gpu:a"b:8'))
    found = scraped(served)
    assert not any(series.startswith("x{") for series in found)


def a_tally() -> Tally:
    totals = Totals("ec2")
    for number, event in enumerate((*WHOLE, replace(WHOLE[-1], kind=EventKind.INCIDENT_CLOSED)), 1):
        totals.add(replace(event, id=number))
    return totals.tally


def test_totals_of_the_record_come_from_the_leader_alone(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(series.startswith("holdfast_faults_total") for series in scraped(served)), "not read yet"
    monkeypatch.setattr(served.deps, "totals", a_tally)
    found = scraped(served)
    assert found["holdfast_time_to_recovery_seconds_count{}"] == 1
    assert found['holdfast_time_to_recovery_seconds_bucket{le="2.5"}'] == 0
    assert found['holdfast_time_to_recovery_seconds_bucket{le="5.0"}'] == 1
    assert found['holdfast_faults_total{check="unknown",node="n1"}'] == 1
    monkeypatch.setattr(served.deps, "leader", lambda: False)
    assert not any(series.startswith("holdfast_faults_total") for series in scraped(served))


class TestNames:
    """https://prometheus.io/docs/practices/naming/, by a test of our own and by promtool."""

    OLD = frozenset({"holdfast_unexpected_errors", "holdfast_unreadable_documents"})
    """From before the convention; names stay."""

    @pytest.fixture(autouse=True)
    def _a_record(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(served.deps, "totals", a_tally)

    def _families(self, served: Any) -> list[Any]:
        served.world = world(drained("n1"))
        return list(text_string_to_metric_families(served.call("GET", "/metrics").text))

    def test_follow_the_convention(self, served: Any) -> None:
        for family in self._families(served):
            assert re.fullmatch(r"(holdfast|process)_[a-z][a-z0-9_]*", family.name), family.name
            assert family.documentation.endswith((".", ")")), family.name
            for sample in family.samples:
                assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in sample.labels), sample
            if family.type == "gauge":
                assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
            if family.type == "counter":
                assert all(s.name.endswith(("_total", "_created")) for s in family.samples), family.name
            assert not re.search(r"_(ms|minutes|hours|days|kb|mb|mib|gb|gib|percent)(_|$)", family.name), family.name

    def test_are_all_in_the_reference(self, served: Any) -> None:
        page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
        shown = {f.name + ("_total" if f.type == "counter" else "") for f in self._families(served)}
        ours = {name for name in shown if name.startswith("holdfast_") and not name.endswith("_created")}
        assert [name for name in sorted(ours) if f"`{name}`" not in page] == []

    def test_promtool_finds_nothing(self, served: Any) -> None:
        """``./dev setup`` installs it (Debian's package prometheus)."""
        served.world = world(drained("n1"))
        text = served.call("GET", "/metrics").text
        checked = subprocess.run(
            ["promtool", "check", "metrics"], check=False, input=text, capture_output=True, text=True, timeout=60
        )
        complaints = [line for line in checked.stderr.splitlines() if line and "no help text" not in line]
        assert (checked.returncode, complaints) == (0, [])
