"""An operator's own checks through the real agent: their findings are reported, and their errors affect no other check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_checks.known import all_checks
from support.agent_bench import FakeController, Folder, Json

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

TABLE = 'interval_s = 0.5\nseverity = "degraded"\nremedy = "reboot"\ngive_up_after = 2\n'
SCRIPTS = {
    "scratch": 'test -e "$FLAG" && { echo scratch is read-only; exit 2; }; echo fine',
    "hangs": "sleep 60",
    "floods": "exec head -c 20000000 /dev/zero",
    "crashes": "kill -SEGV $$",
    "talks": r"printf '{\377\376\200 not text'",
}


class Node:
    """An agent with only the operator's check."""

    def __init__(self, path: Path) -> None:
        self.controller = FakeController()
        self.folder = Folder(path, self.controller.url)
        self.flag = path / "flag"
        tables = [
            f'[custom.scratch]\ncommand = ["{self.script("scratch")}"]\n{TABLE}deadline_s = 5\nenv = {{ FLAG = "{self.flag}" }}\n'
        ]
        tables += [
            f'[custom.{name}]\ncommand = ["{self.script(name)}"]\n{TABLE}deadline_s = {0.5 if name == "hangs" else 5}\n'
            for name in SCRIPTS
            if name != "scratch"
        ]
        self.folder.write_config(
            f'controllers = ["{self.controller.url}"]\ndisabled_checks = {list(all_checks())}\n' + "\n".join(tables)
        )
        self.process = self.folder.start()

    def script(self, name: str, text: str = "") -> Path:
        path = self.folder.path / f"{name}.sh"
        path.write_text(f"#!/bin/sh\n{text or SCRIPTS[name]}\n")
        path.chmod(0o755)
        return path

    def said(self, name: str, kind: str = "finding") -> list[Json]:
        return [item for item in self.controller.items(kind) if item["check"] == f"custom.{name}"]

    def finding(self, name: str) -> Json:
        self.controller.wait(lambda: bool(self.said(name)))
        return self.said(name)[-1]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    one = Node(tmp_path_factory.mktemp("custom"))
    try:
        one.controller.wait(lambda: len(one.controller.heartbeats) > 1, 10)
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        one.controller.close()
    assert "Traceback" not in one.folder.agent_log


def test_a_bad_word_is_a_finding_with_the_sites_severity_and_a_good_one_clears_it(node: Node) -> None:
    assert node.said("scratch") == []
    node.flag.touch()
    found = node.finding("scratch")
    assert (found["code"], found["component"], found["severity"], found["remedy"]) == (
        "failed",
        "node",
        "degraded",
        "reboot",
    )
    assert found["summary"] == "scratch is read-only"
    node.flag.unlink()
    node.controller.wait(lambda: bool(node.said("scratch", "clear")))


@pytest.mark.parametrize(
    ("name", "words"),
    [("hangs", "no answer within"), ("floods", "64 KiB"), ("crashes", "signal 11"), ("talks", "UTF-8")],
)
def test_one_that_misbehaves_is_disabled_with_a_warning_and_the_agent_goes_on(
    node: Node, name: str, words: str
) -> None:
    found = node.finding(name)
    assert (found["code"], found["severity"], found["remedy"]) == ("disabled", "warning", "none")
    assert words in found["summary"]
    assert f"event=custom_check_disabled check=custom.{name}" in node.folder.agent_log
    beats = len(node.controller.heartbeats)
    node.controller.wait(lambda: len(node.controller.heartbeats) > beats + 3)
    assert node.process.poll() is None


def test_one_that_is_repaired_runs_again(node: Node) -> None:
    node.finding("crashes")
    node.script("crashes", "echo repaired")
    node.controller.wait(lambda: bool(node.said("crashes", "clear")))


def test_a_table_that_makes_no_sense_keeps_the_agent_from_starting_and_names_the_key(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "http://127.0.0.1:1")
    folder.write_config('controllers = ["http://127.0.0.1:1"]\n[custom.x]\ncommand = ["/bin/true"]\nseverity = "awful"')
    assert folder.start().wait(30) == 78
    assert "custom.x.severity: 'awful' is none of fatal, degraded, warning" in folder.agent_log
