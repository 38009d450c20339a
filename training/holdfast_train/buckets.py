"""Gradients in a few flat buffers, so that a step needs a few collectives and not one for each parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

BUCKET_BYTES = 32 << 20
"""Large enough for full bandwidth, small enough that the first is under way while the next is still being filled."""


@dataclass(slots=True)
class _Bucket:
    flat: torch.Tensor
    parameters: list[torch.nn.Parameter]


class Buckets:
    """The order of parameters decides what lies where: the same in every group that built the same model."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._buckets: list[_Bucket] = []
        kinds: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
        for parameter in parameters:
            if parameter.requires_grad:
                kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        for (dtype, device), several in kinds.items():
            for group in _grouped(several):
                size = sum(p.numel() for p in group)
                self._buckets.append(_Bucket(torch.zeros(size, dtype=dtype, device=device), group))

    @torch.no_grad()
    def reduce(self, start: Callable[[torch.Tensor], Any]) -> None:
        """Sums all gradients over the groups; ``start`` begins an allreduce and returns its work. A missing gradient is 0."""
        works = []
        for bucket in self._buckets:
            at = 0
            for parameter in bucket.parameters:
                there = bucket.flat[at : at + parameter.numel()]
                at += parameter.numel()
                if parameter.grad is None:
                    there.zero_()
                else:
                    there.copy_(parameter.grad.reshape(-1))
            works.append(start(bucket.flat))
        for work in works:
            work.wait()

    @torch.no_grad()
    def give_back(self, divisor: int) -> None:
        """Puts the sums, divided, where the optimizer looks for gradients."""
        for bucket in self._buckets:
            bucket.flat.div_(divisor)
            at = 0
            for parameter in bucket.parameters:
                parameter.grad = bucket.flat[at : at + parameter.numel()].view_as(parameter)
                at += parameter.numel()


def _grouped(parameters: list[torch.nn.Parameter]) -> Iterable[list[torch.nn.Parameter]]:
    group: list[torch.nn.Parameter] = []
    size = 0
    for parameter in parameters:
        group.append(parameter)
        size += parameter.numel() * parameter.element_size()
        if size >= BUCKET_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
