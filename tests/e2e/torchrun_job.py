"""A training job under ``srun torchrun``, two ranks a node: ``torchrun_job.py DIRECTORY``.

Each rank saves a shard that names its rank, and checks at its resume that it reads its own. In its first run rank 3 stays in the
middle of the save of step ``TORN``; a file ``bug`` next to the checkpoints ends the job by its own fault."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch.distributed as dist

from holdfast_checkpoint import Checkpointer

EVERY, TORN, STEP_S = 4, 12, 0.25


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    directory, attempt = Path(sys.argv[1]), int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    checkpoints = Checkpointer(directory, timeout_s=60)
    start = checkpoints.resume()
    if start:
        shard = json.loads((checkpoints.rank_path(start) / "shard.json").read_text())
        expected = {"rank": rank, "world": world, "step": start.step}
        if shard != expected:
            raise SystemExit(f"rank {rank} read {shard}, not {expected}")
    if rank == 0:
        say(f"resumed from step {start.step if start else 0}")
    begin = start.step if start and start.step is not None else 0
    for step in range(begin + 1, 10**6):
        time.sleep(STEP_S)
        dist.barrier()
        if rank == 0:
            say(f"step {step}")
        if (directory.parent / "bug").exists():
            losses: dict[str, float] = {}
            say(str(losses["loss"]))
        if step % EVERY == 0:
            with checkpoints.save(step) as own:
                if (rank, step, attempt) == (3, TORN, 0):
                    (own / "shard.json").write_text('{"rank"')
                    (directory.parent / "saving").touch()
                    time.sleep(300)
                (own / "shard.json").write_text(json.dumps({"rank": rank, "world": world, "step": step}))
            dist.barrier()


if __name__ == "__main__":
    main()
