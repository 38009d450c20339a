"""Lines of CloudWatch's Embedded Metric Format, against the fields that its specification requires."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast.config.sections import TelemetrySection
from holdfast.config.telemetry import check_telemetry
from holdfast.head import emf as writing
from holdfast.head.emf import EmfWriter
from holdfast.metrics.emf import MOST_METRICS, Growth, Measured, emf_documents, measured, unit_of
from holdfast.model.errors import ConfigError
from support.simulated.clock import SimClock

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
UNITS = {"Seconds", "Bytes", "Count"}


def conforms(line: str) -> dict[str, Any]:
    """As the specification's JSON schema has it: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/ (EMF, schema)."""
    document = json.loads(line)
    assert "\n" not in line
    meta = document["_aws"]
    assert set(meta) == {"Timestamp", "CloudWatchMetrics"}
    assert isinstance(meta["Timestamp"], int)
    assert len(meta["CloudWatchMetrics"]) >= 1
    for directive in meta["CloudWatchMetrics"]:
        assert set(directive) == {"Namespace", "Dimensions", "Metrics"}
        assert 1 <= len(directive["Namespace"]) <= 1024
        assert len(directive["Dimensions"]) >= 1
        for names in directive["Dimensions"]:
            assert 1 <= len(names) <= 30
            assert all(isinstance(document[name], str) and 1 <= len(document[name]) <= 1024 for name in names)
        assert 1 <= len(directive["Metrics"]) <= 100
        for metric in directive["Metrics"]:
            assert 1 <= len(metric["Name"]) <= 1024
            assert metric["Unit"] in UNITS
            assert isinstance(document[metric["Name"]], int | float)
    return dict(document)


def test_a_line_for_each_set_of_dimensions() -> None:
    values = [
        Measured("holdfast_agents", (("cluster", "c"), ("status", "heard")), 3.0),
        Measured("holdfast_lemons", (("cluster", "c"),), 1.0),
        Measured("holdfast_paused", (("cluster", "c"),), 0.0),
    ]
    first, second = [conforms(json.dumps(each)) for each in emf_documents(values, NOW)]
    assert (first["cluster"], first["holdfast_lemons"], first["holdfast_paused"]) == ("c", 1.0, 0.0)
    assert first["_aws"]["Timestamp"] == 1772366400000
    assert (second["status"], second["holdfast_agents"]) == ("heard", 3.0)


def test_nothing_is_written_without_a_dimension() -> None:
    assert list(emf_documents([Measured("m", (), 1.0)], NOW)) == []


def test_an_object_has_at_most_a_hundred_metrics() -> None:
    values = [Measured(f"m{k}", (("cluster", "c"),), 1.0) for k in range(MOST_METRICS + 1)]
    lines = [conforms(json.dumps(each)) for each in emf_documents(values, NOW)]
    assert [len(line["_aws"]["CloudWatchMetrics"][0]["Metrics"]) for line in lines] == [100, 1]


@pytest.mark.parametrize(
    ("labels", "value", "written"),
    [
        ({"cluster": "c"}, 1.0, True),
        ({"cluster": "c", "node": "n1"}, 1.0, False),
        ({"cluster": "c", "le": "0.1"}, 1.0, False),
        ({"cluster": "c"}, math.nan, False),
        ({"cluster": "c"}, math.inf, False),
    ],
)
def test_what_is_written(labels: dict[str, str], value: float, written: bool) -> None:
    assert (measured("m", labels, value) is not None) == written


def test_a_label_without_a_value_is_no_dimension() -> None:
    found = measured("m", {"provider": "", "cluster": "c"}, 1.0)
    assert found is not None
    assert found.labels == (("cluster", "c"),)


def test_counters_are_written_as_what_they_grew_by() -> None:
    growth, counter = Growth(), Measured("f_total", (("cluster", "c"),), 5.0, grows=True)
    assert growth.since_last([counter]) == [], "what it grew by is not known yet"
    assert [v.value for v in growth.since_last([Measured("f_total", counter.labels, 7.0, grows=True)])] == [2.0]
    assert [v.value for v in growth.since_last([Measured("f_total", counter.labels, 1.0, grows=True)])] == [1.0]


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("holdfast_time_to_detect_seconds_sum", "Seconds"),
        ("holdfast_time_to_detect_seconds_count", "Count"),
        ("holdfast_gpu_seconds_lost_total", "Seconds"),
        ("holdfast_store_bytes", "Bytes"),
        ("holdfast_faults_total", "Count"),
    ],
)
def test_units(name: str, unit: str) -> None:
    assert unit_of(name) == unit


class Cluster:
    """What a controller shows."""

    def __init__(self, file: str) -> None:
        self.count, self.leads = 1.0, True
        self.writer = EmfWriter(self.families, lambda: self.leads, SimClock(), file, 60.0)

    def families(self) -> list[Metric]:
        gauge = GaugeMetricFamily("holdfast_agents", "x", labels=["cluster", "status"])
        gauge.add_metric(["c", "heard"], 4.0)
        counter = CounterMetricFamily("holdfast_faults", "x", labels=["cluster", "node"])
        counter.add_metric(["c", "n1"], self.count)
        histogram = HistogramMetricFamily("holdfast_time_to_detect_seconds", "x", labels=["cluster"])
        histogram.add_metric(["c"], [("0.1", self.count), ("+Inf", self.count)], self.count / 10)
        return [gauge, counter, histogram]


def test_the_file(tmp_path: Path) -> None:
    file = tmp_path / "emf.jsonl"
    cluster = Cluster(str(file))
    assert cluster.writer.write() == 1
    cluster.count = 4.0
    assert cluster.writer.write() == 2
    lines = [conforms(line) for line in file.read_text().splitlines()]
    (grown,) = [line for line in lines if "holdfast_time_to_detect_seconds_count" in line]
    assert grown["holdfast_time_to_detect_seconds_count"] == 3.0
    assert grown["holdfast_time_to_detect_seconds_sum"] == pytest.approx(0.3)
    assert not any("node" in line for line in lines)


def test_a_standby_writes_nothing_and_counts_again_when_it_leads(tmp_path: Path) -> None:
    cluster = Cluster(str(tmp_path / "emf.jsonl"))
    cluster.writer.write()
    cluster.leads = False
    assert cluster.writer.write() == 0
    cluster.leads, cluster.count = True, 900.0
    assert cluster.writer.write() == 1, "the gauges alone: the growth of that time is another controller's"


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    Cluster("-").writer.write()
    conforms(capsys.readouterr().out.strip())


def test_the_file_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_BYTES", 100)
    file = tmp_path / "emf.jsonl"
    cluster = Cluster(str(file))
    for _ in range(5):
        cluster.writer.write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["emf.jsonl.1"]


@pytest.mark.parametrize(
    ("file", "fits"), [("", True), ("-", True), ("/var/lib/holdfast/emf.jsonl", True), ("emf", False)]
)
def test_the_setting(file: str, fits: bool) -> None:
    section = TelemetrySection(emf_file=file)
    if fits:
        check_telemetry(section, "telemetry")
        return
    with pytest.raises(ConfigError, match="no absolute path"):
        check_telemetry(section, "telemetry")
