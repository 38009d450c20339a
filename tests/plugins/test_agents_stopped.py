"""With every agent stopped, jobs start and end as on a cluster without Holdfast: measured in turns on one of each."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.practice import Practice
from support.practice import eventually
from support.slurm_plugins import PLUGINS

pytestmark = pytest.mark.slurm
TURNS = 3
MORE_AT_MOST_S = 1.5
"""Of the medians, on a machine that runs other tests too. A plug-in that waited for its agent would take its whole second in the
Prolog, the Epilog and the batch step: three."""


def _script(folder: Path, name: str, helper: Path) -> Path:
    """Prolog or Epilog as shipped, with this test's helper, and a socket where no agent is."""
    path = folder / name
    path.write_text(
        f'#!/bin/sh\nexport HOLDFAST_ASK="{helper}" HOLDFAST_AGENT_SOCKET="{folder}/agent.sock"\nexec "{PLUGINS}/{name}.sh"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def clusters(short_folder: Path, plugin: Path, helper: Path) -> Iterator[tuple[Practice, Practice]]:
    """With all of the plug-ins and no agent; with nothing of Holdfast's."""
    folder = Path(tempfile.mkdtemp(prefix="s", dir=short_folder))
    folder.chmod(0o755)
    prolog, epilog = (_script(folder, name, helper) for name in ("prolog", "epilog"))
    conf = f"JobSubmitPlugins=lua\nProlog={prolog}\nEpilog={epilog}\n"
    having = Practice.create(folder / "w", nodes=1, gpus=1, extra_slurm_conf=conf)
    plain = Practice.create(folder / "o", nodes=1, gpus=1)
    example = (PLUGINS / "lua" / "job_submit.lua.example").read_text()
    glue = example.replace("/usr/local/share/holdfast/slurm-plugins", str(PLUGINS))
    (having.folder / "etc" / "job_submit.lua").write_text(glue)
    stack = f"optional {plugin} socket={folder}/agent.sock\n"
    (having.folder / "etc" / "plugstack.conf").write_text(stack)
    try:
        having.up()
        plain.up()
        yield having, plain
    finally:
        having.remove()
        plain.remove()


def _one_job(practice: Practice, *options: str) -> tuple[float, float]:
    """Seconds from the submission to the script's first line, and from its last to the end of the job in Slurm."""
    begun_s = time.time()
    job = practice.sbatch("date +%s.%N; date +%s.%N", *options)
    out = practice.folder / "jobs" / f"{job}.out"

    def done() -> bool:
        return (
            not practice.command("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T")
            .strip()
            .startswith(("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"))
        )

    eventually(done, within_s=30, why=lambda: practice.command("squeue", "-t", "all"))
    ended_s = time.time()
    shown = practice.command("scontrol", "-o", "show", "job", str(job))
    assert "JobState=COMPLETED" in shown, shown
    first, last = (float(line) for line in out.read_text().split())
    return first - begun_s, ended_s - last


def test_jobs_start_and_end_as_without_it(clusters: tuple[Practice, Practice]) -> None:
    having, plain = clusters
    for practice in clusters:
        _one_job(practice)  # the first is slower everywhere
    times: dict[str, list[tuple[float, float]]] = {"with": [], "opted in": [], "without": []}
    for _ in range(TURNS):
        times["with"].append(_one_job(having))
        times["opted in"].append(_one_job(having, "--holdfast=/ckpt"))
        times["without"].append(_one_job(plain))
    medians = {
        name: tuple(statistics.median(part) for part in zip(*all_of, strict=True)) for name, all_of in times.items()
    }
    print(medians)  # noqa: T201 - shown by pytest -rP
    for name in ("with", "opted in"):
        for mine, theirs in zip(medians[name], medians["without"], strict=True):
            assert mine - theirs < MORE_AT_MOST_S, medians
    assert "drain" not in having.command("sinfo", "-h", "-o", "%T"), "no Prolog has failed"
