"""The practice training job: one task per node, gradients summed every step, checkpoints through Holdfast's library.

``srun python -m holdfast.practice.jobs.train``; every option can also be set as ``HOLDFAST_TRAIN_…`` in the
environment. On SIGUSR1 it saves at the next step and continues.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.practice.jobs.exchange import Exchange, PeerLost, connect, default_address
from holdfast.practice.jobs.regression import RegressionModel
from holdfast_checkpoint import Checkpointer, CheckpointError

_STATE = "state.json"
_PREFIX = "HOLDFAST_TRAIN_"


class SaveWish:
    """Remembers that a checkpoint was requested."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGUSR1, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


def main(argv: Sequence[str] | None = None) -> int:
    """Train. Returns 0 when all steps are done, 1 when a peer was lost or a newer run has taken over."""
    options = _parser().parse_args(argv)
    wish = SaveWish()
    checkpoints = Checkpointer(options.dir, save_signal="USR1", timeout_s=options.timeout_s)
    try:
        model = _start(checkpoints, options)
        peers = connect(
            Path(checkpoints.directory),
            str(checkpoints.run),
            checkpoints.rank,
            checkpoints.world_size,
            address=options.address,
            timeout_s=options.timeout_s,
        )
        _train(model, peers, checkpoints, options, wish)
    except PeerLost as error:
        return _peer_lost(checkpoints.rank, error, hang=options.on_peer_loss == "hang")
    except CheckpointError as error:
        _say(f"rank {checkpoints.rank} stops: {error}")
        return 1
    if checkpoints.rank == 0:
        digest = hashlib.sha256(json.dumps(model.weights).encode()).hexdigest()
        _say(f"finished step {model.step} weights {digest[:16]}")
    return 0


def _start(checkpoints: Checkpointer, options: argparse.Namespace) -> RegressionModel:
    start = checkpoints.resume()
    if start is None:
        model = RegressionModel(options.seed, checkpoints.rank)
    else:
        model = RegressionModel.from_state(json.loads((checkpoints.rank_path(start) / _STATE).read_text()))
    if checkpoints.rank == 0:
        where = f"resumed from step {model.step}" if start else "starting from step 0"
        _say(f"{where} world_size={checkpoints.world_size} run={checkpoints.run}")
    return model


def _train(
    model: RegressionModel, peers: Exchange, checkpoints: Checkpointer, options: argparse.Namespace, wish: SaveWish
) -> None:
    next_at = time.monotonic()
    while model.step < options.steps:
        asked, wish.asked = wish.asked, False
        total, save_now = peers.sum(model.gradient(), asked)
        loss = model.apply(total, checkpoints.world_size)
        checkpoints.progress(model.step)
        if checkpoints.rank == 0 and model.step % options.log_every == 0:
            _say(f"step {model.step} loss {loss:.6f}")
        if save_now or model.step % options.checkpoint_every == 0 or model.step == options.steps:
            _save(model, checkpoints)
        next_at = max(next_at + options.step_s, time.monotonic())
        time.sleep(max(0.0, next_at - time.monotonic()))
    peers.close()


def _save(model: RegressionModel, checkpoints: Checkpointer) -> None:
    with checkpoints.save(model.step) as folder:
        (folder / _STATE).write_text(json.dumps(model.state()))
    if checkpoints.rank == 0:
        _say(f"checkpoint step {model.step}")


def _peer_lost(rank: int, error: PeerLost, *, hang: bool) -> int:
    _say(f"rank {rank} lost a peer: {error}{'; waiting as a collective would' if hang else ''}")
    while hang:
        time.sleep(3600.0)
    return 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    def env(name: str, default: str) -> str:
        return os.environ.get(_PREFIX + name, default)

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=env("DIR", "checkpoints"), help="checkpoint directory on shared storage")
    parser.add_argument("--steps", type=int, default=env("STEPS", "1200"), help="train to this step")
    parser.add_argument("--step-s", type=float, default=env("STEP_S", "0.05"), help="least seconds per step")
    parser.add_argument("--checkpoint-every", type=int, default=env("CHECKPOINT_EVERY", "20"), help="steps")
    parser.add_argument("--log-every", type=int, default=env("LOG_EVERY", "10"), help="steps")
    parser.add_argument("--seed", type=int, default=env("SEED", "1"))
    parser.add_argument("--address", default=default_address(), help="where rank 0 listens for the other ranks")
    parser.add_argument("--timeout-s", type=float, default=env("TIMEOUT_S", "60"), help="for peers to come, or to save")
    parser.add_argument(
        "--on-peer-loss",
        choices=["exit", "hang"],
        default=env("ON_PEER_LOSS", "exit"),
        help="exit with 1, or hang as NCCL does until its watchdog ends the job after 10 to 30 minutes",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
