"""A replica group for tests: the shipped example's model and loop, which records every attempt and every committed step."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from holdfast_train import GlobalBatch, Order, Session, TokenFile

sys.path.insert(0, str(Path(__file__).parents[2] / "training" / "examples"))
from elastic import Model  # type: ignore[import-not-found]


def build() -> tuple[Any, torch.optim.Optimizer, GlobalBatch]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model()
    if not os.environ.get("FLOAT32"):
        model = model.double()  # so that Adam does not blow up the rounding of gradients that are zero by nature
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), GlobalBatch(24, 2)


def work(model: Any, data: TokenFile, order: Order, step: int, number: int) -> None:
    x, y = data.batch(order.ids(step, number))
    loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()  # type: ignore[no-untyped-call]


def digest(model: torch.nn.Module) -> str:
    whole = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return hashlib.blake2b(bytes(whole.view(torch.uint8).tolist()), digest_size=8).hexdigest()


def main(tokens: str, folder: str, name: str, until: int, pause_s: float) -> None:
    began_s = time.monotonic()
    if os.environ.get("FLOAT32"):
        logging.basicConfig(format="%(message)s")
        logging.getLogger("holdfast_train").setLevel(logging.INFO)
    model, optimizer, batch = build()
    data = TokenFile(tokens, length=16)
    order = Order(data.count, batch)
    slowly = Path(folder) / "slowly"
    averages = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)  # type: ignore[no-untyped-call]
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=averages)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)

    def follow() -> None:
        ema.update_parameters(model)
        scheduler.step()

    where = os.environ.get("EMA", "")
    extra: Any = {"extra": {"ema": ema, "scheduler": scheduler}} if where else {}
    hook: Any = {"after_step": follow} if where == "after_step" else {}
    with (
        open(Path(folder) / f"{name}.jsonl", "w", buffering=1) as log,
        Session(model, optimizer, batch, **extra, **hook) as session,
    ):

        def say(**fields: Any) -> None:
            log.write(json.dumps({"at_s": time.time(), **fields}) + "\n")

        def committed() -> None:
            say(kind="commit", step=session.step, digest=digest(model))

        say(kind="ready", took_s=time.monotonic() - began_s)
        last = None
        for attempt in session.steps(until):
            if last is not None and session.step > last.step:
                if where == "loop":
                    follow()
                committed()
            last = attempt
            for number in attempt.micro_batches:
                work(model, data, order, attempt.step, number)
            say(kind="attempt", step=attempt.step, share=list(attempt.share), present=attempt.present)
            time.sleep(0.4 if slowly.exists() else pause_s)
        committed()
        say(kind="done")
        torch.save(model.state_dict(), Path(folder) / f"{name}.pt")
        torch.save(ema.state_dict(), Path(folder) / f"{name}.ema.pt")
        say(kind="rates", rates=scheduler.get_last_lr(), differs=session.differs)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
