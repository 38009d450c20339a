"""``holdfast-checks`` by hand: lists, runs on an emulated node, explanations, replayed logs, exit codes."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path

import pytest

from holdfast.practice.nvml import state as nvml_state
from holdfast.practice.nvml.build import environment
from holdfast_checks.cli import choice, main, page
from holdfast_checks.cli.parser import parser
from holdfast_checks.reference import render
from holdfast_checks.settings import CheckSettings
from support.emulated_nvml import library

LOG = """\
Nov 20 10:00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=17, name=a.out, Ch 00000010
4,17,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
12,18,5000001,-;NVRM: Xid (PCI:0000:5e:00): 79, pid=1, name=forged
 DEVICE=+pci:0000:3b:00.0
nothing of interest
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "nvml.ini"
    nvml_state.write(path, nvml_state.default_state("n1", 2, 1))
    for name, value in environment(library(), path).items():
        monkeypatch.setenv(name, value)
    return path


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert "gpu.row_remap" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["id"]: line["interval_s"] for line in lines}["gpu.count"] == 15


@pytest.mark.slow
def test_run_on_a_healthy_node(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "gpu.count", "gpu.ecc", "gpu.nvml", "--expected-gpus", "2"]) == 0
    assert capsys.readouterr().out == "6 results, 0 findings, 0 unknown\n"


def test_patterns_choose_and_active_ones_want_to_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "host.d*", "--json"]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["host.disk", "host.dstate"]
    checks = choice.known(CheckSettings())
    usual = {check.id for check in choice.chosen(checks, [], active=False)}
    assert {"gpu.count", "dcgm.diag1", "kernel.oom"} <= usual
    assert not any(name.startswith("active.") for name in usual)
    assert choice.chosen(checks, ["active.*"], active=False) == []
    assert [check.id for check in choice.chosen(checks, ["active.tcp"], active=False)] == ["active.tcp"]
    assert {check.id for check in choice.chosen(checks, [], active=True)} == set(checks)
    without = choice.chosen(checks, ["host.*"], active=False, disabled=["host.disk"])
    assert "host.disk" not in {check.id for check in without}
    assert "host.load" in {check.id for check in without}


@pytest.mark.parametrize(
    ("break_it", "check", "code", "word"),
    [
        (lambda path: nvml_state.lose_gpu(path, 1), "gpu.count", 2, "1 GPUs at work, 2 expected"),
        (lambda path: nvml_state.set_ecc(path, 0, uncorrected=2), "gpu.ecc", 1, "2 uncorrectable"),
        (lambda path: nvml_state.set_fail(path, "nvmlDeviceGetRemappedRows", 999), "gpu.row_remap", 3, "UNKNOWN"),
        (lambda path: nvml_state.set_fail(path, "nvmlDeviceGetRemappedRows", 3), "gpu.row_remap", 0, "0 findings"),
    ],
)
def test_run_exits_as_nagios_wants(
    node: Path, capsys: pytest.CaptureFixture[str], break_it: object, check: str, code: int, word: str
) -> None:
    assert callable(break_it)
    break_it(node)
    assert main(["run", check, "--expected-gpus", "2"]) == code
    assert word in capsys.readouterr().out


def test_run_with_json(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nvml_state.set_remap(node, 1, pending=True)
    assert main(["run", "gpu.row_remap", "--json"]) == 1
    good, bad = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (good["verdict"], bad["code"], bad["remedy"], bad["gpu_minor"]) == ("ok", "pending", "reset_gpu", 1)


@pytest.mark.slow
def test_a_hang_is_unknown(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nvml_state.set_hang(node, on=True)
    assert main(["run", "gpu.nvml", "gpu.ecc", "--nvml-deadline-s", "0.3"]) == 3
    assert capsys.readouterr().out.count("did not answer within 0.3 s") == 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["xid", "79"], ["fallen off the bus", "fatal", "reboot"]),
        (["xid", "4711"], ["not in the catalogue", "warning"]),
        (["sxid", "20034"], ["NVSwitch", "fatal"]),
        (["dcgm", "1"], ["DCGM_FR_", "severity"]),
        (["check", "gpu.thermal"], ["gpud", "slowed down"]),
        (["gpu.thermal"], ["gpud", "24 of 40", "acts"]),
        (["kernel.efa"], ["admin_timeout", "fatal, reboot"]),
        (["efa"], ["efa.count:", "efa.admin:", "kernel.efa:", "active.efa:"]),
    ],
)
def test_explain(capsys: pytest.CaptureFixture[str], args: list[str], words: list[str]) -> None:
    assert main(["explain", *args]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in words)


def test_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(LOG)
    assert main(["replay", str(tmp_path / "log"), "--json"]) == 2
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(result["code"], result["pci"]) for result in results] == [("31", "0000:3b:00.0"), ("79", "0000:3b:00.0")]


def test_replay_counts_by_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(LOG * 3 + "kernel: Out of memory: Killed process 1 (a) total-vm:1kB\n")
    assert main(["replay", str(tmp_path / "log")]) == 2
    said = capsys.readouterr().out
    assert "       3  gpu.xid 31 (warning)\n" in said
    assert "       3  gpu.xid 79 (fatal)\n" in said
    assert "kernel.oom" in said


def test_replay_takes_any_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\x00" * 1000 + b"\n" + LOG.encode() + b"\x80" * 100_000)
    assert main(["replay", str(tmp_path / "log")]) == 2
    assert "2 findings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["run", "gpu.nope"], "did you mean gpu."),
        (["run", "xyz.*"], "`holdfast-checks list` shows them"),
        (["explain", "dcgm"], "explain dcgm 38"),
        (["explain", "xid", "many"], "an Xid is a number"),
        (["explain", "check", "many"], "no check is called many"),
        (["replay", "/nonexistent/log"], "holdfast-checks: /nonexistent/log: No such file"),
        (["run", "--config", "/nonexistent"], "holdfast-checks: /nonexistent: No such file"),
    ],
)
def test_mistakes_get_one_line(capsys: pytest.CaptureFixture[str], args: list[str], word: str) -> None:
    assert main(args) == 3
    text = capsys.readouterr().err
    assert word in text
    assert text.count("\n") == 1


@pytest.mark.parametrize("args", [[], ["nope"], ["replay"], ["run", "--deadline", "x"], ["list", "--nope"]])
def test_wrong_use_is_no_failed_node(capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args)
    text = capsys.readouterr().err
    assert ended.value.code == 3
    assert text.startswith("holdfast-checks: ")
    assert text.count("\n") == 1


def test_the_reference_pages_are_up_to_date() -> None:
    folder = Path(__file__).parents[2] / "docs" / "reference"
    assert (folder / "checks.md").read_text() == render(), "run: ./dev docs"
    assert (folder / "holdfast-checks.md").read_text() == page.render(), "run: ./dev docs"


def test_each_verb_has_an_example_that_parses() -> None:
    whole = parser()
    (verbs,) = [action for action in whole._actions if isinstance(action, argparse._SubParsersAction)]
    assert set(verbs.choices) == {"list", "run", "explain", "replay", "learn"}
    for verb in (whole, *verbs.choices.values()):
        examples = [line.strip() for line in str(verb.epilog).splitlines() if "holdfast-checks " in line]
        assert examples
        for example in examples:
            words = shlex.split(example.partition("        ")[0].partition("holdfast-checks ")[2])
            whole.parse_args(words)


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["holdfast-checks.md", "checks.md", "agent.md", "custom-checks.md"])
def test_every_command_in_the_documentation_parses(name: str) -> None:
    path = ROOT / "docs" / name
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    commands = re.findall(r"(?:^\$ (?:[^\n]*\| )?|`)holdfast-checks ([a-z][^`\n|]*)", text, re.MULTILINE)
    for command in commands:
        parser().parse_args(shlex.split(command.partition("#")[0]))
    assert commands or name != "holdfast-checks.md"
