"""The demo's scenarios with each provider: every claim is verified where it happened, and the exit status says whether all are true."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]
SHOWS = {
    "same hardware": ("--provider", "hyperpod", "--same-hardware"),
    "watched": ("--provider", "hyperpod", "--hyperpod-repairs"),
    "three failures": ("--provider", "command", "--fail-replacements", "3"),
    "no spare": ("--provider", "ec2", "--spares", "0"),
}
Shown = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """The output of a demo that ended normally with everything true. All run at once: each waits most of its time."""
    folder: Path = tmp_path_factory.mktemp("shows")
    env = {**os.environ, "COLUMNS": "300"}
    running: dict[str, subprocess.Popen[bytes]] = {}
    for name, options in SHOWS.items():
        command = [sys.executable, "-m", "holdfast.practice.demo.scenario", *options]
        with (folder / name).open("wb") as out:
            running[name] = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)

    def lines(name: str) -> list[str]:
        status = running[name].wait(280)
        said = (folder / name).read_text()
        assert status == 0, said
        assert "✗" not in said
        return said.splitlines()

    yield lines
    for process in running.values():
        process.send_signal(signal.SIGINT)  # it takes its cluster down
    for process in running.values():
        process.wait(60)


def said(lines: list[str], words: str) -> bool:
    return any(words in line for line in lines)


def test_hyperpod_gives_the_same_hardware_and_is_asked_once_more(shown: Shown) -> None:
    lines = shown("same hardware")
    assert said(lines, "✓ HyperPod: BatchReplaceClusterNodes, once each, for i-")
    assert said(lines, "✓ The same GPUs came back under the replacement: seen, and replaced once more")
    assert said(lines, "✓ Slurm: it left gpu-2, kept gpu-1, gpu-3, and got the spare gpu-5")


def test_where_hyperpod_repairs_holdfast_watches_and_validates(shown: Shown) -> None:
    lines = shown("watched")
    assert said(lines, "is gpu-2 now, by its own decision; Holdfast sent no order")
    assert said(lines, "✓ Holdfast: the new machine was validated before it served")


def test_a_script_whose_replacements_fail_three_times_ends_at_one_human(shown: Shown) -> None:
    lines = shown("three failures")
    assert said(lines, "✓ The site's script: 3 orders to exchange rack1-u2 in place")
    assert said(lines, "✓ It ran again before the first replacement had failed")
    assert said(lines, "✓ An operator was notified, once: demo: n2 needs an operator")


def test_without_a_spare_the_job_waits_for_its_node(shown: Shown) -> None:
    lines = shown("no spare")
    assert said(lines, "✓ No spare: it waited until n2 was back, and runs on n1, n2, n3 again")
    assert said(lines, "✓ EC2: a new machine (i-")
