"""Sums in float64: the training comes out the same, however many groups shared each step."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

sys.path.insert(0, str(Path(__file__).parents[2] / "training" / "examples"))

from elastic import Model  # type: ignore[import-not-found]  # noqa: E402
from torch.nn import functional  # noqa: E402

from holdfast_train.peers.replica import Replica  # noqa: E402
from holdfast_train.samples.rng import seed_of  # noqa: E402
from holdfast_train.tensors.buckets import Buckets  # noqa: E402

pytestmark = pytest.mark.slow

M, STEPS = 12, 20


class Done:
    def wait(self) -> None:
        """Summed by hand."""


def train(groups_of_step: list[int], *, exact: bool, clip: float = 0.0) -> Any:
    """One model stands for all groups in turn: each sums its share, the shares are added in the order of the groups."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    buckets = Buckets(model.parameters(), exact=exact)
    before = (lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), clip)) if clip else None
    replica = Replica(model, optimizer, buckets, {}, before)
    for step, groups in enumerate(groups_of_step):
        sums: list[list[Any]] = []
        for rank in range(groups):
            optimizer.zero_grad()
            buckets.begin()
            for i in range(rank, M, groups):
                torch.manual_seed(seed_of(0, step, i))
                x = torch.randint(0, 64, (2, 16))
                loss = functional.cross_entropy(model(x).flatten(0, 1), x.flip(1).flatten())
                loss.backward()  # type: ignore[no-untyped-call]
                buckets.add()
            sent: list[Any] = []
            buckets.reduce(lambda flat, sent=sent: (sent.append(flat.clone()), Done())[1])  # type: ignore[misc]
            sums.append(sent)
        for flat, parts in zip(buckets.flats(), zip(*sums, strict=True), strict=True):
            flat.copy_(sum(parts[1:], parts[0]))
        replica.apply(buckets.divide(M))
    return torch.cat([p.detach().double().reshape(-1) for p in model.parameters()])


def far(a: Any, b: Any) -> float:
    return float((a - b).norm() / b.norm())


def sizes() -> list[int]:
    chance = random.Random(3)
    return [chance.choice([1, 2, 3, 4, 5]) for _ in range(STEPS)]


@pytest.mark.slow
def test_float32_with_adamw_is_what_it_is_with_one_group() -> None:
    assert far(train(sizes(), exact=True, clip=0.5), train([1] * STEPS, exact=True, clip=0.5)) < 1e-7
    plain = far(train(sizes(), exact=False, clip=0.5), train([1] * STEPS, exact=False, clip=0.5))
    print(f"without it {plain:.1e}")  # noqa: T201 - shown by pytest -rP
    assert plain > 1e-7, "without exact sums the order of additions shows: else this test shows nothing"


def test_clipping_happens_before_the_step_and_in_it_alone() -> None:
    clipped, free = train([2] * 3, exact=False, clip=1e-3), train([2] * 3, exact=False)
    assert far(clipped, free) > 1e-6


def test_a_parameter_without_a_gradient_keeps_having_none() -> None:
    used, unused = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    buckets = Buckets([used, unused], exact=True)
    buckets.begin()
    (used.sum() * 2).backward()
    buckets.add()
    assert used.grad is None, "it is in the sum"
    buckets.reduce(lambda _flat: Done())
    buckets.hand_out(buckets.divide(2))
    assert used.grad is not None
    assert used.grad.dtype == torch.float32
    assert used.grad.tolist() == [1.0, 1.0, 1.0]
    assert unused.grad is None
