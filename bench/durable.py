"""Cost of a durable checkpoint for the group that writes it, and of resuming from one.

``bench/durable.py [--runs 5] [--megabytes 400] [--dir FOLDER] [--quick]``. One group without peers: a model that has this size with AdamW's
state, steps of some 0.2 s. *stall*: what the loop lost in the call that saves, the *first* one into fresh memory; *step meanwhile*:
steps until the files were complete, against *step*, those before; *blocking*: the loop waits for the files. Resuming reads
what was just written (so from memory, where there is enough of it), compares every digest and loads it. Needs the extra
``train``."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from bench.kit import figures

from holdfast_train.membership import StepPosition
from holdfast_train.ranks import RankGroup
from holdfast_train.saves.durable import DurableCheckpoints, Training
from holdfast_train.saves.stored import StateOrigin
from holdfast_train.settings import TrainSettings
from holdfast_train.sizes import parse_sizes

_WIDTH = 1024
_COMPUTE_S = 0.1
_STEPS, _SAVES = 8, 3


class Group:
    """What a session does with its checkpoints, without a quorum. A clock that jumps says when to save."""

    def __init__(self, directory: Path, megabytes: float) -> None:
        layers = max(1, round(megabytes * 1e6 / (3 * 4 * _WIDTH**2)))  # weights and AdamW's two moments, 4 bytes each
        self.model = torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(layers)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.step, self._now_s = 0, 0.0
        settings = TrainSettings("http://127.0.0.1:1", True, "a token", 0, "0.0", parse_sizes("1:4"), "127.0.0.1")
        self.durable = DurableCheckpoints(directory, env={}, least_s=1, most_s=1, sign_s=60, clock=lambda: self._now_s)
        parts = {"model": self.model, "optimizer": self.optimizer}
        self.durable.open(
            Training(settings, RankGroup(settings), parts, StateOrigin(0, 0, 8, 1, 1), self._start_at, lambda _: None)
        )

    def begin(self) -> bool:
        return self.durable.ready(StepPosition(0, 1, 1), self.step)

    def work(self) -> float:
        """A step and what follows it; how long it took, in s."""
        began_s = time.monotonic()
        x = torch.ones(64, _WIDTH)
        while time.monotonic() < began_s + _COMPUTE_S:
            self.model[0](x)
        for parameter in self.model.parameters():
            parameter.grad = torch.full_like(parameter, 1e-3)
        self.optimizer.step()
        self.step += 1
        self.durable.after_step(self.step)
        return time.monotonic() - began_s

    def save(self) -> float:
        """How long the call held up the loop, in s."""
        self._now_s += 1e6
        began_s = time.monotonic()
        self.durable.after_step(self.step)
        return time.monotonic() - began_s

    def _start_at(self, step: int) -> None:
        self.step = step


def once(directory: Path, megabytes: float, rows: dict[str, list[float]]) -> None:
    group = Group(directory, megabytes)
    if not group.begin():
        raise SystemExit(f"{directory} is not empty")
    group.work()
    rows["step"].append(statistics.median(group.work() for _ in range(_STEPS)))
    rows["first stall"].append(group.save())
    group.durable.wait()
    for _ in range(_SAVES):
        group.work()
        began_s = time.monotonic()
        rows["stall"].append(group.save())
        beside = []
        while group.durable.saving:
            beside.append(group.work())
        rows["complete after"].append(time.monotonic() - began_s)
        rows["step meanwhile"].append(statistics.median(beside))
    group.work()
    began_s = time.monotonic()
    group.save()
    group.durable.wait()
    rows["blocking"].append(time.monotonic() - began_s)
    heir = Group(directory, megabytes)
    began_s = time.monotonic()
    if heir.begin() or heir.step != group.step:
        raise SystemExit("nothing was resumed")
    rows["resume"].append(time.monotonic() - began_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=400)
    parser.add_argument("--quick", action="store_true", help="one run of 40 MB: that it works, not how fast")
    parser.add_argument("--dir", help="where to write (default: the temporary directory)")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.megabytes = 1, 40.0
    torch.set_num_threads(1)
    figures.heading(f"Durable checkpoints of {options.megabytes:g} MB, {options.runs} runs, torch {torch.__version__}")
    names = ("step", "first stall", "stall", "step meanwhile", "complete after", "blocking", "resume")
    rows: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="hfdurable-", dir=options.dir) as folder:
            once(Path(folder), options.megabytes, rows)
    figures.durations("one group of one CPU rank", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
