"""Ranks that torch starts: what they agree on, and ``srun torchrun`` with two ranks on each of two nodes of a real Slurm."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE

import pytest

from holdfast.practice import Practice
from holdfast_checkpoint import latest
from support.practice import end_jobs, eventually, said

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        find_spec("torch") is None, reason="needs PyTorch"
    ),  # not imported: that costs every collection a second
]

STEPS = 12
TRAIN = f"""
import json, os, signal, sys
from pathlib import Path
import torch.distributed as dist
from holdfast_checkpoint import Checkpointer

folder, init_first = Path(sys.argv[1]), sys.argv[2] == "init"
if init_first:
    dist.init_process_group("gloo")
checkpoints = Checkpointer(folder / "ckpt", timeout_s=60)
if not init_first:
    dist.init_process_group("gloo")
start = checkpoints.resume()
rank = dist.get_rank()
if start:
    state = json.loads((checkpoints.rank_path(start) / "shard.json").read_text())
    assert (state["rank"], state["step"]) == (rank, start.step), (state, rank)
for step in range(start.step + 1 if start else 1, {STEPS} + 1):
    dist.barrier()
    if step % 4 == 0:
        with checkpoints.save(step) as own:
            once = folder / "killed"
            if rank == 3 and step == 8 and not once.exists():
                once.write_text("x")
                os.kill(os.getpid(), signal.SIGKILL)
            (own / "shard.json").write_text(json.dumps({{"rank": rank, "step": step}}))
        dist.barrier()
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
(folder / f"done-{{rank}}").write_text(f"{{checkpoints.world_size}} {{start.step if start else 0}} {{attempt}} {{checkpoints.run}}")
"""


RESUME = """
import os, sys
import torch.distributed as dist
from holdfast_checkpoint import Checkpointer, CheckpointError

rank = int(sys.argv[1])
os.environ["TORCHELASTIC_RESTART_COUNT"] = str(2 - rank)
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=2)
try:
    checkpoints = Checkpointer(sys.argv[2], timeout_s=60)
    checkpoints.resume()
    print(checkpoints.run)
except CheckpointError as error:
    print(type(error).__name__, error)
dist.barrier()
"""


def resumed(folder: Path, meeting: str) -> list[str]:
    """What two ranks print that counted a different number of restarts."""
    env = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-W", "ignore", "-c", RESUME]
    ranks = [
        subprocess.Popen(
            [*argv, str(rank), str(folder / "ckpt"), str(folder / meeting)], env=env, stdout=PIPE, text=True
        )
        for rank in range(2)
    ]
    return [rank.communicate(timeout=120)[0].strip() for rank in ranks]


@pytest.mark.slow
def test_ranks_that_counted_different_restarts_take_rank_0s_run_or_its_refusal(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    assert resumed(tmp_path, "first") == ["j7-r0.0.2"] * 2
    again = resumed(tmp_path, "second")
    assert again[0].startswith("FencedOff j7-r0.0.2 was started here before")
    assert again[1] == "RanksMissing rank 0 could not decide where to resume; its own error says why"


@pytest.mark.slurm
@pytest.mark.parametrize("order", ["init", "checkpointer"])
def test_a_rank_that_dies_in_its_save_costs_nothing_but_steps(practice: Practice, order: str) -> None:
    folder = practice.folder / "jobs" / f"torchrun-{order}"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torchrun = (
        f"{sys.executable} -W ignore -m torch.distributed.run --nnodes=2 --nproc-per-node=2 --max-restarts=3 --rdzv-backend=c10d "
        f"--rdzv-endpoint=127.0.0.1:{port} --rdzv-id=$SLURM_JOB_ID --rdzv-conf=is_host=$((1-SLURM_NODEID)) "
        f"{folder}/train.py {folder} {order}"
    )
    # Without the variable the restarted workers of torch 2.13 never meet again.
    body = f"export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 OMP_NUM_THREADS=1\nexec srun --ntasks-per-node=1 sh -c '{torchrun}'"
    job = practice.sbatch(body, "--nodes=2", "--ntasks-per-node=1", "--exclusive", f"--output={folder}/out")

    def why() -> str:
        out = folder / "out"
        return f"{out.read_text(errors='replace')[-9000:] if out.exists() else ''}\n{said(practice)}"

    try:
        eventually(
            lambda: not practice.command("squeue", "-h", "-j", str(job)).strip(), within_s=150, every_s=0.3, why=why
        )
        done = {path.name: path.read_text().split() for path in sorted(folder.glob("done-*"))}
        assert sorted(done) == ["done-0", "done-1", "done-2", "done-3"], why()
        assert {(world, start) for world, start, _, _ in done.values()} == {("4", "4")}, done
        assert len({run for _, _, _, run in done.values()}) == 1, done
        found = latest(str(folder / "ckpt"))
        assert found is not None
        assert found.step == STEPS
        shards = [json.loads(path.read_text()) for path in sorted(Path(found.path).glob("rank-*/shard.json"))]
        assert shards == [{"rank": rank, "step": STEPS} for rank in range(4)]
    finally:
        end_jobs(practice)
