"""`elastic.py` with a record of every attempt at a step, by which demo, tests and benchmarks check that nothing is missing or doubled.

One JSON line per attempt in ``FOLDER/GROUP.jsonl``: start time, step, quorum, micro-batches, and a digest of all parameters.
While a file ``FOLDER/hang-GROUP`` exists, that group hangs in a micro-batch: a fault that only its own stack shows."""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import time
from pathlib import Path

import torch
from elastic import Model
from torch.nn import functional

from holdfast_train import GlobalBatch, Order, Session, TokenFile


def digest(model: torch.nn.Module) -> str:
    """Digest of all parameters, exact to the last bit."""
    summed = hashlib.blake2b(digest_size=8)
    for parameter in model.parameters():
        summed.update(ctypes.string_at(parameter.data_ptr(), parameter.nbytes))
    return summed.hexdigest()


def rest(seconds: float, hang: Path) -> None:
    """Wait after a micro-batch, to simulate a larger model."""
    time.sleep(seconds)
    while hang.exists():
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument(
        "--micro-s", type=float, default=0.02, help="rest after each micro-batch, in place of a larger model"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TokenFile(options.tokens, length=16)
    batch = GlobalBatch(samples=24, micro_samples=2)
    order = Order(data.count, batch)
    who = {"group": int(os.environ.get("HOLDFAST_GROUP", "0")), "start": os.environ.get("HOLDFAST_INCARNATION", "")}
    hang = options.folder / f"hang-{who['group']}"
    with (options.folder / f"{who['group']}.jsonl").open("a", buffering=1) as log:

        def note(**what: object) -> None:
            log.write(json.dumps({"at_s": time.time(), **who, **what, "digest": digest(model)}) + "\n")

        with Session(model, optimizer, batch) as session:
            for attempt in session.steps(until=options.steps):
                note(step=attempt.step, quorum=attempt.quorum_id, share=list(attempt.share), present=attempt.present)
                for i in attempt.micro_batches:
                    x, y = data.batch(order.ids(attempt.step, i))
                    loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
                    loss.backward()
                    rest(options.micro_s, hang)
            note(step=session.step, quorum=0, share=[], present=0)


if __name__ == "__main__":
    main()
