"""Every block of docs/how-to-elastic-sbatch.md, on a real Slurm. The training only prints its environment."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.elastic_jobs.elastic import parse_comment
from holdfast.practice import Practice
from support.launching import SHOW, shown_in
from support.practice import end_jobs, eventually, said

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to-elastic-sbatch.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
BEFORE, AFTER, SUBMIT, SEVERAL, TORCHRUN, ALONE, TEMPLATE, STOCK = BLOCKS
ROOM = {"HOLDFAST_QUORUM": "http://127.0.0.1:9", "HOLDFAST_QUORUM_TOKEN": "t", "HOLDFAST_AGENT_SOCKET": "/nope"}


@pytest.fixture
def folder(elastic_cluster: Practice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a user has train.sbatch and train.py."""
    for name, value in {
        **elastic_cluster.command_env(),
        **ROOM,
        "HOLDFAST_SHARE": str(ROOT),
        "HOME": str(tmp_path),
        "SHOWN": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "train.py").write_text(f"import sys; assert sys.argv[1:] == ['--lr', '3e-4'], sys.argv\n{SHOW}\n")
    (tmp_path / "train.sbatch").write_text(AFTER)
    yield tmp_path
    end_jobs(elastic_cluster)


def typed(cluster: Practice, folder: Path, block: str) -> list[int]:
    """Runs a block in the user's folder; returns every job id that it prints."""
    out = cluster.command("sh", "-euc", f"cd {folder}\n{block}")
    return [int(number) for number in re.findall(r"(?:job |array |^|\s)(\d+)\b(?!-)", out)]


def told(cluster: Practice, folder: Path, count: int) -> list[dict[str, str]]:
    """Environments that the ranks have printed, once there are this many."""

    def why() -> str:
        return "\n".join([said(cluster), *(file.read_text(errors="replace") for file in folder.glob("train-*.out"))])

    eventually(lambda: len(shown_in(folder)) >= count, within_s=60, every_s=0.2, why=why)
    return shown_in(folder)


def elements(cluster: Practice) -> list[str]:
    """``job id|index|comment`` of the newest four, by their index."""
    lines = cluster.command("squeue", "-h", "-a", "-r", "-t", "all", "-o", "%A|%K|%k").splitlines()
    newest = sorted(lines, key=lambda line: int(line.partition("|")[0]))[-4:]
    return sorted(newest, key=lambda line: line.split("|")[1])


def comments(cluster: Practice) -> list[str]:
    return [line.split("|")[2] for line in elements(cluster)]


def is_elastic(cluster: Practice, base: int) -> None:
    specs = [parse_comment(comment) for comment in comments(cluster)]
    assert [(spec.sizes.text, spec.of) for spec in specs if spec] == [("2:4", None)] * 2 + [("2:4", base)] * 2


def test_holdfast_submit(elastic_cluster: Practice, folder: Path) -> None:
    base, _flexible = typed(elastic_cluster, folder, SUBMIT)
    envs = told(elastic_cluster, folder, 4)
    assert [env["HOLDFAST_GROUP"] for env in envs] == ["0", "1", "2", "3"]
    is_elastic(elastic_cluster, base)


def test_sbatch_alone(elastic_cluster: Practice, folder: Path) -> None:
    typed(elastic_cluster, folder, ALONE)
    assert [env["HOLDFAST_GROUP"] for env in told(elastic_cluster, folder, 4)] == ["0", "1", "2", "3"]
    assert comments(elastic_cluster)[:2] == ["holdfast elastic=2:4"] * 2
    assert len(set(comments(elastic_cluster)[2:])) == 1
    assert comments(elastic_cluster)[3].startswith("holdfast elastic=2:4 of=")


def test_the_template(elastic_cluster: Practice, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZES", "2+4")
    base, _flexible = typed(elastic_cluster, folder, TEMPLATE)
    envs = told(elastic_cluster, folder, 4)
    assert [env["HOLDFAST_GROUP"] for env in envs] == ["0", "1", "2", "3"]
    assert comments(elastic_cluster) == [
        *["holdfast elastic=2:4:2+4 spares=0"] * 2,
        *[f"holdfast elastic=2:4:2+4 spares=0 of={base}"] * 2,
    ]
    (job_id,) = [line.split("|")[0] for line in elements(elastic_cluster) if line.split("|")[1] == "3"]
    assert envs[3]["HOLDFAST_INCARNATION"] == f"{job_id}.0"


def test_without_the_daemon(elastic_cluster: Practice, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_QUORUM", "HOLDFAST_QUORUM_TOKEN"):
        monkeypatch.delenv(name)
    (folder / ".run7.token").write_text("secret\n")
    typed(elastic_cluster, folder, STOCK)
    envs = told(elastic_cluster, folder, 4)
    assert {env["TORCHFT_LIGHTHOUSE"] for env in envs} == {"http://head:29510"}
    assert {(env["HOLDFAST_QUORUM_TOKEN"], env["HOLDFAST_MAX_GROUPS"]) for env in envs} == {("secret", "4")}
    assert [env["HOLDFAST_GROUP"] for env in envs] == ["0", "1", "2", "3"]


def test_groups_of_several_ranks_and_before(elastic_cluster: Practice, folder: Path) -> None:
    (folder / "before.sbatch").write_text(BEFORE.replace("python train.py", "env RANK=0 python train.py"))
    elastic_cluster.command("sh", "-c", f"cd {folder}; sbatch before.sbatch")
    assert len(told(elastic_cluster, folder, 4)) == 4
    for file in folder.glob("*.json"):
        file.unlink()
    (folder / "train.sbatch").write_text(AFTER[: AFTER.index("exec")] + SEVERAL)
    elastic_cluster.command("sh", "-c", f"cd {folder}; sbatch --array=1 --nodes=2 train.sbatch")
    envs = told(elastic_cluster, folder, 16)
    assert sorted(int(env["RANK"]) for env in envs) == list(range(16))
    assert {env["WORLD_SIZE"] for env in envs} == {"16"}


def test_the_line_for_torchrun_is_one_that_the_launcher_takes(tmp_path: Path) -> None:
    line = TORCHRUN.removeprefix("exec srun --kill-on-bad-exit=1 ").strip()
    assert line.startswith("holdfast run -- torchrun ")
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    clean = {"PATH": f"{tmp_path}:{ROOT / '.venv' / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", line], env=clean, capture_output=True, text=True, check=True)
    assert done.stdout == "--standalone --nproc-per-node=8 train.py --lr 3e-4\n"
