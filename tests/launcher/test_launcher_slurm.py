"""Elastic jobs on a real Slurm: two arrays, groups that are preempted and come back, groups of several nodes. No agent, no torch."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.elastic_jobs.elastic import parse_comment
from holdfast.model.errors import Rejected
from holdfast.practice import Practice
from support.launching import AWARE, SHOW, shown_in
from support.practice import end_jobs, eventually, said

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
TEMPLATE = Path(__file__).parents[2] / "slurm-plugins" / "templates" / "elastic.sbatch"
ROOM = {"HOLDFAST_QUORUM": "http://127.0.0.1:9", "HOLDFAST_QUORUM_TOKEN": "t", "HOLDFAST_AGENT_SOCKET": "/nope"}
"""Named in the environment, as on a cluster without the daemon."""


@pytest.fixture
def slurm(elastic_cluster: Practice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Practice]:
    for name, value in {**elastic_cluster.command_env(), **ROOM}.items():
        monkeypatch.setenv(name, value)
    yield elastic_cluster
    end_jobs(elastic_cluster)


def script(slurm: Practice, body: str, name: str = "job.sbatch") -> Path:
    path = slurm.folder / "jobs" / name
    path.write_text(f"#!/bin/sh\n#SBATCH --output={slurm.folder}/jobs/%A_%a.out\n#SBATCH --comment=team=a\n{body}\n")
    return path


def elements(slurm: Practice, *arrays: int | str) -> dict[int, dict[str, str]]:
    """Index → what Slurm shows of the element of these arrays; waiting ones separately, too."""
    jobs = ("-j", ",".join(map(str, arrays)))
    lines = slurm.command("squeue", "-h", "-a", "-r", *jobs, "-t", "all", "-o", "%K|%A|%F|%T|%P|%k|%r").splitlines()
    names = ("job", "array", "state", "partition", "comment", "reason")
    rows = [line.split("|") for line in lines if line.split("|")[0].isdigit()]
    return {int(row[0]): dict(zip(names, row[1:], strict=True)) for row in rows}


def states(slurm: Practice, *arrays: int | str) -> dict[int, str]:
    return {index: shown["state"] for index, shown in elements(slurm, *arrays).items()}


def wait_for(slurm: Practice, wanted: dict[int, str], *arrays: int | str) -> None:
    def why() -> str:
        return f"{states(slurm, *arrays)}\n{said(slurm)}"

    eventually(lambda: states(slurm, *arrays) == wanted, within_s=60, every_s=0.2, why=why)


def output(slurm: Practice, array: int | str, index: int) -> str:
    file = slurm.folder / "jobs" / f"{array}_{index}.out"
    return file.read_text(errors="replace") if file.exists() else ""


def submit(slurm: Practice, *argv: str) -> dict[str, Any]:
    answer = slurm.command(HOLDFAST, "submit", "--json", *argv)
    return dict(json.loads(answer))


def test_a_preempted_group_comes_back_and_a_cancelled_job_does_not(slurm: Practice) -> None:
    (slurm.folder / "jobs" / "train.py").write_text(AWARE)
    body = f"exec srun {HOLDFAST} run {sys.executable} {slurm.folder}/jobs/train.py"
    ids = submit(
        slurm, "--elastic", "2:4:2", "--base-partition", "train", "--flex-partition", "flex", "--exclusive", str(script(slurm, body))
    )  # fmt: skip
    arrays = (ids["base"], ids["flexible"])
    wait_for(slurm, dict.fromkeys(range(4), "RUNNING"), *arrays)
    shown = elements(slurm, *arrays)
    assert [(s["partition"], s["array"]) for _, s in sorted(shown.items())] == [
        *[("train", str(ids["base"]))] * 2,
        *[("flex", str(ids["flexible"]))] * 2,
    ]
    base, flexible = (parse_comment(shown[index]["comment"]) for index in (0, 3))
    assert base is not None
    assert flexible is not None
    assert (tuple(base.sizes.legal), base.of, tuple(flexible.sizes.legal), flexible.of) == (
        (2, 4),
        None,
        (2, 4),
        ids["base"],
    )
    assert shown[0]["comment"].endswith(" team=a")
    array = ids["flexible"]
    eventually(lambda: all("step" in output(slurm, array, index) for index in (2, 3)), within_s=30)

    urgent = slurm.sbatch("sleep 300", "--partition=train", "--exclusive", "--job-name=urgent")
    eventually(
        lambda: "RUNNING" in slurm.command("squeue", "-h", "-j", str(urgent), "-o", "%T"),
        within_s=30,
        why=lambda: said(slurm),
    )
    eventually(lambda: "PENDING" in states(slurm, *arrays).values(), within_s=30, why=lambda: said(slurm))
    (left,) = [index for index, state in states(slurm, *arrays).items() if state == "PENDING"]
    assert left in (2, 3)
    assert "Restarts=1" in slurm.command("scontrol", "show", "job", f"{array}_{left}")
    assert "left " in output(slurm, array, left)
    assert '"reason":"SIGTERM"' in output(slurm, array, left)

    slurm.command("scancel", str(ids["base"]), str(array))
    eventually(
        lambda: set(states(slurm, *arrays).values()) <= {"CANCELLED"}, within_s=40, every_s=0.2, why=lambda: said(slurm)
    )  # 85 after a scancel is no reason to come back


def test_a_refused_second_array_takes_the_first_back(slurm: Practice) -> None:
    with pytest.raises(Rejected) as error:
        submit(
            slurm,
            "--elastic",
            "2:4",
            "--base-partition",
            "train",
            "--flex-partition",
            "nope",
            "--hold",
            str(script(slurm, "true")),
        )
    line = str(error.value)
    assert "the flexible array: sbatch:" in line
    assert "nope" in line
    assert line.endswith("is cancelled")
    assert "\n" not in line
    (array,) = re.findall(r"array (\d+) is cancelled", line)
    assert states(slurm, array) == {0: "CANCELLED", 1: "CANCELLED"}


def test_a_group_of_two_nodes_is_one_group(slurm: Practice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOWN", str(tmp_path))
    body = f"srun --ntasks-per-node=1 {HOLDFAST} run --nproc 2 {sys.executable} -c '{SHOW}'\nexec srun -n4 {HOLDFAST} run true"
    base = submit(slurm, "--elastic", "1:1", "-N2", "--exclusive", str(script(slurm, body)))["base"]
    wait_for(slurm, {0: "FAILED"}, base)
    ranks = shown_in(tmp_path)
    assert sorted(env["RANK"] for env in ranks) == ["0", "1", "2", "3"]
    assert {env["WORLD_SIZE"] for env in ranks} == {"4"}
    assert len({(env["MASTER_ADDR"], env["MASTER_PORT"], env["HOLDFAST_INCARNATION"]) for env in ranks}) == 1
    assert {env["RANK"]: env["SLURM_NODEID"] for env in ranks} == {"0": "0", "1": "0", "2": "1", "3": "1"}
    assert ranks[0]["MASTER_ADDR"] in slurm.nodes
    assert "srun started 4 launchers on 2 nodes: start one on each" in output(slurm, base, 0)


def test_a_crash_on_one_of_two_nodes_is_no_leave(slurm: Practice) -> None:
    shell = 'if test "$RANK" -eq 0; then exit 3; else sleep 60; fi'
    body = f"exec srun --kill-on-bad-exit=1 --ntasks-per-node=1 {HOLDFAST} run sh -c '{shell}'"
    base = submit(slurm, "--elastic", "1:1", "-N2", "--exclusive", str(script(slurm, body)))["base"]
    wait_for(slurm, {0: "FAILED"}, base)  # 85 would bring it back, to crash again
    assert "Restarts=0" in slurm.command("scontrol", "show", "job", f"{base}_0")
