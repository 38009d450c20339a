"""The alerting rules: they fire for what they are for, and alert, runbook and notice name each other."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "lifecycle-scripts" / "prometheus" / "holdfast.rules.yml"
TESTS = Path(__file__).with_name("holdfast.rules.test.yml")
RUNBOOKS = ROOT / "docs" / "runbooks"
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}


def promtool(*arguments: str, folder: Path = ROOT) -> tuple[int, str]:
    """``./dev setup`` installs it (Debian's package prometheus)."""
    done = subprocess.run(
        ["promtool", *arguments], check=False, cwd=folder, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def test_the_rules_are_valid() -> None:
    code, said = promtool("check", "rules", str(RULES))
    assert code == 0, said


@pytest.mark.slow
def test_each_alert_fires_for_what_it_is_for_and_not_for_what_it_is_not() -> None:
    code, said = promtool("test", "rules", str(TESTS))
    assert code == 0, said


@pytest.mark.slow
def test_a_rule_that_never_fires_would_be_found(tmp_path: Path) -> None:
    text = RULES.read_text(encoding="utf-8")
    for rule in ALERTS.values():
        assert isinstance(rule["expr"], str)
    silent = yaml.safe_load(text)
    for group in silent["groups"]:
        for rule in group["rules"]:
            rule["expr"] = "vector(0) == 1"
    (tmp_path / "silent.yml").write_text(yaml.safe_dump(silent), encoding="utf-8")
    tests = TESTS.read_text(encoding="utf-8").replace(
        "../../lifecycle-scripts/prometheus/holdfast.rules.yml", "silent.yml"
    )
    (tmp_path / "tests.yml").write_text(tests, encoding="utf-8")
    code, said = promtool("test", "rules", "tests.yml", folder=tmp_path)
    assert code != 0
    assert [name for name in ALERTS if f"alertname: {name}" not in said] == []


@pytest.mark.parametrize("name", ALERTS)
class TestAnAlert:
    def test_says_how_urgent_it_is_and_what_to_do(self, name: str) -> None:
        alert = ALERTS[name]
        assert re.fullmatch(r"Holdfast([A-Z][a-z]+)+", name)
        assert alert["labels"] == {"severity": alert["labels"]["severity"]}
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert {"summary", "description", "runbook_url"} <= set(alert["annotations"])
        assert alert["annotations"]["description"].endswith(".")

    def test_and_its_runbook_name_each_other(self, name: str) -> None:
        page = ROOT / ALERTS[name]["annotations"]["runbook_url"]
        assert page.parent == RUNBOOKS
        assert f"`{name}`" in page.read_text(encoding="utf-8")

    def test_is_in_the_table_of_runbooks(self, name: str) -> None:
        page = Path(ALERTS[name]["annotations"]["runbook_url"]).name
        table = (RUNBOOKS / "README.md").read_text(encoding="utf-8").partition("## Alerts")[2]
        (row,) = [line for line in table.splitlines() if f"`{name}`" in line]
        assert f"({page})" in row

    def test_is_about_metrics_that_exist(self, name: str) -> None:
        named = set(re.findall(r"\bholdfast_[a-z_]+", ALERTS[name]["expr"]))
        assert named
        assert [metric for metric in named if f"`{metric}`" not in REFERENCE] == []

    def test_and_the_notice_about_the_same_have_one_runbook(self, name: str) -> None:
        """The notice's topic, where releases have topics; else a message of the table of runbooks."""
        annotations = ALERTS[name]["annotations"]
        page = Path(annotations["runbook_url"]).name
        if "topic" in annotations and importlib.util.find_spec("holdfast.model.notice") is not None:
            notice = importlib.import_module("holdfast.model.notice")
            assert notice.RUNBOOKS[notice.Topic(annotations["topic"])] == f"runbooks/{page}"
        messages = (RUNBOOKS / "README.md").read_text(encoding="utf-8").partition("## Alerts")[0]
        assert f"({page})" in messages or name in WITHOUT_NOTICE


WITHOUT_NOTICE = {"HoldfastFaultInService"}
"""An operator did it, or set observe mode: no message is sent about one's own step."""


def test_alerts_that_pages_name_exist() -> None:
    pages = [*RUNBOOKS.glob("*.md"), ROOT / "docs" / "metrics.md"]
    named = {name for page in pages for name in re.findall(r"`(Holdfast[A-Z]\w+)`", page.read_text(encoding="utf-8"))}
    assert named - set(ALERTS) == set()


def test_recording_rules_have_the_usual_names() -> None:
    records = [rule["record"] for rule in rules() if "record" in rule]
    assert records
    assert all(re.fullmatch(r"cluster:holdfast_[a-z_]+:[a-z0-9_]+", record) for record in records)
    named = {metric for rule in rules() if "record" in rule for metric in re.findall(r"holdfast_[a-z_]+", rule["expr"])}
    plain = {re.sub(r"_(sum|count|bucket)$", "", metric) for metric in named}
    assert [metric for metric in sorted(plain) if f"`{metric}`" not in REFERENCE] == []
