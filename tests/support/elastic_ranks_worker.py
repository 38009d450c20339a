"""One rank of a replica group of several, for tests: FSDP2 or a layer split by hand, and faults on demand."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from holdfast_train import DurableCheckpoints, GlobalBatch, Session, restartable
from holdfast_train.tensors.shards import local

M, WIDTH, HIDDEN, STEP_SAMPLES = 6, 5, 7, 12


class _Summed(torch.autograd.Function):
    """The sum over the ranks of a group; each of them has its whole gradient."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor) -> torch.Tensor:
        whole = part.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, *gradient: torch.Tensor) -> torch.Tensor:
        return gradient[0]


class Model(torch.nn.Module):
    """Two layers and an unused one. ``split``: this rank holds every other row of the first and column of the second."""

    def __init__(self, rank: int = 0, split: int = 1) -> None:
        super().__init__()
        self.split = split
        self.first, self.second = torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, WIDTH, bias=False)
        self.unused = torch.nn.Linear(2, 2)
        if split > 1:
            with torch.no_grad():
                self.first.weight = torch.nn.Parameter(self.first.weight[rank::split].clone())
                self.first.bias = torch.nn.Parameter(self.first.bias[rank::split].clone())
                self.second.weight = torch.nn.Parameter(self.second.weight[:, rank::split].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(functional.relu(self.first(x)))
        return _Summed.apply(out) if self.split > 1 else out  # type: ignore[no-untyped-call]


def build(kind: str = "plain", rank: int = 0, ranks: int = 1) -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model(rank, ranks if kind == "split" else 1).double()
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - a second that only these tests pay

        for part in (model.first, model.second, model.unused, model):
            fully_shard(part)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def samples(step: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + number)
    return torch.randn(STEP_SAMPLES // M, WIDTH, generator=generator, dtype=torch.float64)


def work(model: Model, x: torch.Tensor) -> None:
    functional.mse_loss(model(x), torch.roll(x, 1, 1)).backward()  # type: ignore[no-untyped-call]


def digest(model: torch.nn.Module) -> str:
    whole = torch.cat([local(p.detach()).reshape(-1) for p in model.parameters()])
    return hashlib.blake2b(bytes(whole.view(torch.uint8).tolist()), digest_size=8).hexdigest()


class Average:
    """The mean of this rank's part of the weights over the steps, as a loop with sharded weights keeps it."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.of = {name: local(p.detach()).clone() for name, p in model.named_parameters()}

    def update(self) -> None:
        for name, parameter in self._model.named_parameters():
            self.of[name].lerp_(local(parameter.detach()), 0.1)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.of

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for name, tensor in state.items():
            self.of[name].copy_(tensor)


class Worker:
    """The steps of one rank, and its output."""

    def __init__(self, kind: str, folder: Path, name: str, until: int, fault: str) -> None:
        self.kind, self.folder, self.name, self.until, self.fault = kind, folder, name, until, fault
        self.rank, self.ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.failed = False

    def say(self, **fields: Any) -> None:
        with (self.folder / f"{self.name}.jsonl").open("a") as log:
            log.write(json.dumps({"at_s": time.time(), **fields}) + "\n")

    def fail(self, where: str, step: int) -> None:
        """``WHERE@STEP once``, or ``always`` from that step on."""
        there, _at, when = self.fault.partition("@")
        if there != where:
            return
        first, often = when.split()
        if step == int(first) and not self.failed if often == "once" else step >= int(first):
            self.failed = True
            self.say(kind="failed", step=step)
            raise ArithmeticError("a fault of this rank")

    def hold(self) -> None:
        time.sleep(0.02)
        while (self.folder / "hold").exists():
            time.sleep(0.02)

    def checkpoints(self) -> DurableCheckpoints | None:
        where, every_s = os.environ.get("CHECKPOINTS"), float(os.environ.get("EVERY_S", "60"))
        return DurableCheckpoints(where, least_s=every_s, most_s=every_s, sign_s=3) if where else None

    def train(self) -> None:
        self.say(kind="began", pid=os.getpid())
        if self.kind != "plain" and not dist.is_initialized():
            dist.init_process_group("gloo")
        model, optimizer = build(self.kind, self.rank, self.ranks)
        batch = GlobalBatch(STEP_SAMPLES, STEP_SAMPLES // M)
        average, schedule = Average(model), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)

        def follow() -> None:
            average.update()
            schedule.step()

        more: Any = {}
        if os.environ.get("AVERAGE"):
            more = {"extra": {"average": average, "schedule": schedule}, "after_step": follow}
        with Session(model, optimizer, batch, checkpoints=self.checkpoints(), **more) as session:
            optimizer.register_step_pre_hook(lambda *_: self.fail("optimizer", session.step))
            last = None
            for attempt in session.steps(self.until):
                if last is not None and session.step > last:
                    self.say(kind="commit", step=session.step, digest=digest(model))
                last = attempt.step
                self.fail("loop", attempt.step)
                for number in attempt.micro_batches:
                    x = samples(attempt.step, number)
                    work(model, x[self.rank :: self.ranks] if self.kind == "fsdp" else x)
                self.say(kind="attempt", step=attempt.step, share=list(attempt.share), quorum=attempt.quorum_id)
                self.hold()
            self.say(kind="commit", step=session.step, digest=digest(model))
            torch.save({n: local(p.detach()) for n, p in model.named_parameters()}, self.folder / f"{self.name}.pt")
            self.say(kind="rates", rates=schedule.get_last_lr(), differs=session.differs)
            torch.save(average.of, self.folder / f"{self.name}.average.pt")
        self.say(kind="done")


def main(kind: str, folder: str, name: str, until: int, fault: str) -> None:
    worker = Worker(kind, Path(folder), name, until, fault)
    if fault == "none":
        worker.train()
    else:
        restartable(worker.train, restarts=2)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
