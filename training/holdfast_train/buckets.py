"""Gradients in a few flat buffers, so that a step needs a few collectives and not one for each parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from holdfast_train.shards import like, local, local_gradient

BUCKET_BYTES = 32 << 20
"""Large enough for full bandwidth, small enough that the first is under way while the next is still being filled."""


@dataclass(slots=True)
class _Bucket:
    flat: torch.Tensor
    """Gradients, and behind them one number for each parameter: in how many groups it has a gradient."""
    parameters: list[torch.nn.Parameter]

    @property
    def present(self) -> torch.Tensor:
        return self.flat[len(self.flat) - len(self.parameters) :]

    def parts(self) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
        """Each parameter with its place."""
        at = 0
        for parameter in self.parameters:
            size = local(parameter).numel()
            yield parameter, self.flat[at : at + size]
            at += size


class Buckets:
    """The order of parameters decides what lies where: the same in every group that built the same model."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._buckets: list[_Bucket] = []
        kinds: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
        for parameter in parameters:
            if parameter.requires_grad:
                kinds.setdefault((parameter.dtype, local(parameter).device), []).append(parameter)
        for (dtype, device), several in kinds.items():
            for group in _grouped(several):
                size = sum(local(p).numel() for p in group) + len(group)
                self._buckets.append(_Bucket(torch.zeros(size, dtype=dtype, device=device), group))

    @torch.no_grad()
    def reduce(self, start: Callable[[torch.Tensor], Any]) -> None:
        """Sums all gradients over the groups; ``start`` begins an allreduce and returns its work. A missing gradient is 0."""
        works = []
        for bucket in self._buckets:
            there = []
            for parameter, place in bucket.parts():
                gradient = local_gradient(parameter)
                if gradient is None:
                    place.zero_()
                else:
                    place.copy_(gradient.reshape(-1))
                there.append(0.0 if gradient is None else 1.0)
            bucket.present.copy_(torch.tensor(there))
            works.append(start(bucket.flat))
        for work in works:
            work.wait()

    @torch.no_grad()
    def give_back(self, divisor: int) -> None:
        """Puts the sums, divided, where the optimizer looks for gradients. What had a gradient in no group keeps having none:
        an optimizer leaves such a parameter and its state alone."""
        for bucket in self._buckets:
            present = bucket.present.tolist()
            bucket.flat.div_(divisor)
            for (parameter, place), groups in zip(bucket.parts(), present, strict=True):
                parameter.grad = like(place.view_as(local(parameter)), parameter) if groups else None


def _grouped(parameters: list[torch.nn.Parameter]) -> Iterable[list[torch.nn.Parameter]]:
    group: list[torch.nn.Parameter] = []
    size = 0
    for parameter in parameters:
        group.append(parameter)
        size += local(parameter).numel() * parameter.element_size()
        if size >= BUCKET_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
