"""The Grafana dashboard: each of its queries returns data from a real Prometheus that scrapes a controller's ``/metrics``."""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from holdfast.api.app import create_app
from holdfast.api.callers.auth import hash_token
from holdfast.api.deps import ApiDeps
from holdfast.api.transport.connections import Bounds, Connections
from holdfast.controller.keeping.totals_keeper import TotalsKeeper
from holdfast.decisions.parts import Certificate
from holdfast.head.disk import disk_room
from holdfast.metrics.trouble import TroubleState
from holdfast.model.parts import NotifierState
from holdfast.model.policies.policy import SparePolicy
from holdfast.store import SqlStore, open_store
from support.serving import running, until
from support.simulated.site import POLICY, Site

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "lifecycle-scripts" / "grafana" / "holdfast.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(f"{p['title']} {t['refId']}", t["expr"]) for p in PANELS for t in p["targets"]]
VARIABLES = {"$cluster": "sim", "$__range": "10m", "$__rate_interval": "1m"}
SCRAPE = "250ms"


def filled(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    return query


def test_it_can_be_imported() -> None:
    """What Grafana's importer needs: a uid, variables for the data source and the cluster, panels that do not overlap."""
    assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("holdfast", "Holdfast")
    assert "id" not in DASHBOARD
    assert [v["name"] for v in DASHBOARD["templating"]["list"]] == ["datasource", "cluster"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in mine) < 24, panel["title"]
        assert not mine & cells, panel["title"]
        cells |= mine


def test_every_panel_asks_the_chosen_source_about_the_chosen_cluster() -> None:
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            selectors = re.findall(r"holdfast_[a-z_]+(\{[^}]*\})?", target["expr"])
            assert all('cluster="$cluster"' in selector for selector in selectors), (panel["title"], target["expr"])


def test_every_metric_of_it_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    named = {metric for _, query in QUERIES for metric in re.findall(r"holdfast_[a-z_]+", query)}
    plain = {re.sub(r"_(sum|count|bucket)$", "", metric) for metric in named}
    assert [metric for metric in sorted(plain) if f"`{metric}`" not in page] == []


def test_the_states_of_a_node_are_all_on_its_axis() -> None:
    (panel,) = [panel for panel in PANELS if panel["type"] == "state-timeline"]
    shown = re.findall(r'state="([a-z_]+)"} \* (\d+)', panel["targets"][0]["expr"])
    assert [state for state, _ in shown] == [state.value for state in reversed(TroubleState)]
    mapped = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    assert {number: text["text"] for number, text in mapped.items()} == {n: s.replace("_", " ") for s, n in shown}


# Against a real Prometheus


@dataclass
class Head:
    """A controller over a simulated site, whose API is served over HTTP."""

    site: Site
    keeper: TotalsKeeper
    store: SqlStore

    def fault_that_is_healed(self) -> None:
        """A job on two nodes loses one, comes back on another, and the node is replaced."""
        site = self.site
        job = site.slurm.submit(2, gpus=8)
        site.run(5)
        site.registers(job)
        node = site.slurm.jobs[job.job_id].nodes[0]
        site.fault(node)
        for _ in range(60):
            site.run(30)
            if not site.incident(node).open:
                break
        assert not site.incident(node).open, site.story()
        site.slurm.finish(site.slurm.jobs[job.job_id], "COMPLETED")
        site.run(5)
        self.count()

    def fault_in_hand(self) -> None:
        """One that is being repaired at the moment of the last scrape."""
        self.site.fault("n1")
        self.site.run(20)
        self.count()

    def count(self) -> None:
        while self.keeper.read_on():
            pass


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('dashboard')}/holdfast.db")
    site = Site(20, spares=("n20",), policy=replace(POLICY, spares=SparePolicy(wanted=1)))
    fence = site.loop.lease.fence if site.loop.lease is not None else None
    keeper = TotalsKeeper(site.store, site.clock, lambda: fence, "ec2")
    store.add_token("viewer", "prometheus", hash_token("token-prometheus"), site.clock.now())
    yield Head(site, keeper, store)
    store.close()


def api_of(head: Head) -> ApiDeps:
    site, store = head.site, head.store
    return ApiDeps(
        store=store,
        agents=site.agents.registry,
        clock=site.clock,
        wake=lambda: None,
        world=lambda: site.loop.world,
        orders=site.loop.hub,
        loop_turned_at=site.clock.monotonic_s,
        totals=lambda: head.keeper.shown,
        disk=lambda: disk_room(store.path),
        notifier=lambda: NotifierState(1),
        certificate=lambda: Certificate(site.clock.now()),
        connections=Connections(Bounds(100), site.clock.monotonic_s),
    )


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Prometheus:
    """Debian's, with its own folder, on loopback."""

    url: str

    def query(self, query: str) -> list[dict[str, Any]]:
        got = httpx.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=30).json()
        assert got["status"] == "success", (query, got)
        return list(got["data"]["result"])

    def scrapes(self) -> int:
        found = self.query("count_over_time(holdfast_leader[10m])")
        return int(float(found[0]["value"][1])) if found else 0

    def scraped_again(self, times: int = 3) -> None:
        until_s, before = time.monotonic() + 60, self.scrapes()
        until(lambda: self.scrapes() >= before + times or time.monotonic() > until_s, 70)


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    settings = {
        "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "lifecycle-scripts" / "prometheus" / "holdfast.rules.yml")],
        "scrape_configs": [
            {
                "job_name": "holdfast",
                "authorization": {"credentials": "token-prometheus"},
                "static_configs": [{"targets": [target]}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: answers(f"{url}/-/ready"), 60)
            yield Prometheus(url)
        finally:
            process.terminate()
            process.wait(30)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def scraping(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    head.fault_that_is_healed()
    app = create_app(api_of(head))
    app.state.api.counters.reports.labels("accepted").inc()  # the simulated agents report to the store, not over HTTP
    with (
        running(app, Bounds(200, 200)) as server,
        prometheus(tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{server.port}") as found,
    ):
        found.scraped_again()
        head.fault_that_is_healed()
        head.fault_in_hand()
        found.scraped_again()
        yield found


@pytest.mark.slow
@pytest.mark.loop
class TestAgainstPrometheus:
    @pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
    def test_a_query_returns_data(self, scraping: Prometheus, title: str, query: str) -> None:
        found = scraping.query(filled(query))
        assert found, query
        assert any(math.isfinite(float(each["value"][1])) for each in found), (title, found)

    def test_the_time_to_recovery_is_a_number_of_seconds(self, scraping: Prometheus) -> None:
        (query,) = [query for title, query in QUERIES if title == "MTTR A"]
        (found,) = scraping.query(filled(query))
        assert 0 < float(found["value"][1]) < 3600

    def test_the_clusters_are_offered(self, scraping: Prometheus) -> None:
        got = httpx.get(
            f"{scraping.url}/api/v1/label/cluster/values", params={"match[]": "holdfast_leader"}, timeout=30
        )
        assert got.json()["data"] == [VARIABLES["$cluster"]]

    def test_the_rules_are_loaded_and_evaluated(self, scraping: Prometheus) -> None:
        def rules() -> list[dict[str, Any]]:
            groups = httpx.get(f"{scraping.url}/api/v1/rules", timeout=30).json()["data"]["groups"]
            return [rule for group in groups for rule in group["rules"]]

        alerts = [rule for rule in rules() if rule["type"] == "alerting"]
        assert len(alerts) == 13
        assert [rule["name"] for rule in rules() if rule["health"] == "err"] == []

    def test_failovers_are_marked(self, scraping: Prometheus) -> None:
        (mark,) = DASHBOARD["annotations"]["list"]
        assert scraping.query(filled(mark["expr"])) == []
