"""One replica group with a state of a given size: a line of JSON per committed step. Started as a script, by ``bench/heal.py``.

``heal_worker.py MEGABYTES STEP_S WAY`` with the environment of a group. The step is mostly waited for, as the host of a GPU waits;
gradients are as large as they would be. WAY: ``whole`` joins at once and is given the whole state there, ``one`` catches up
from one peer, ``all`` from all of them. SIGUSR1: leave."""

from __future__ import annotations

import hashlib
import json
import sys
import time

import torch

from holdfast_train import GlobalBatch, Session
from holdfast_train.peers import catchup

PARAMETERS = 24
_ADAM = 12
"""Bytes of state for each number of a model in float32 under AdamW."""


def main(megabytes: float, step_s: float, way: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = int(megabytes * 1e6 / _ADAM / PARAMETERS)
    model = torch.nn.ParameterList(torch.randn(size) * 0.01 for _ in range(PARAMETERS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    gradients = [torch.randn(size) for _ in range(PARAMETERS)]
    if way == "one":
        catchup.SOURCES_MAX = 1
    with Session(model, optimizer, GlobalBatch(12, 1)) as session:
        session._sharing.followed = way == "whole"
        say(kind="ready", step=0)
        last, present = 0, 0
        for attempt in session.steps(until=1 << 30):
            if session.step > last:
                say(kind="commit", step=session.step, groups=present, digest=digest(model))
            last, present = session.step, attempt.present
            for _number in attempt.micro_batches:
                pass
            torch.manual_seed(attempt.step)
            for parameter, gradient in zip(model, gradients, strict=True):
                parameter.grad = gradient.mul_(float(torch.rand(()) + 0.5))
            time.sleep(step_s)


def digest(model: torch.nn.Module) -> str:
    """Of some of the numbers: all of them would cost more than the step."""
    some = torch.cat([p.detach()[:64] for p in model.parameters()])
    return hashlib.blake2b(bytes(some.view(torch.uint8).tolist()), digest_size=8).hexdigest()


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps({"at_s": time.time(), **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
