"""Gradients in a few flat buffers, so that a step needs few collectives instead of one per parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from holdfast_train.tensors.shards import like, local, local_gradient

BUCKET_BYTES = 32 << 20
"""Large enough for full bandwidth, small enough that the first is under way while the next is still being filled."""


@dataclass(slots=True)
class _Bucket:
    flat: torch.Tensor
    """Gradients, followed by one number per parameter: in how many groups it has a gradient."""
    parameters: list[torch.nn.Parameter]
    there: list[float]
    """For each parameter, whether this group has a gradient in this step: 1 or 0."""

    def present(self, flat: torch.Tensor) -> torch.Tensor:
        """Per parameter, in this layout of ``flat``: in how many groups it has a gradient."""
        return flat[len(flat) - len(self.parameters) :]

    def parts(self, flat: torch.Tensor) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
        """Each parameter with its position in ``flat``."""
        at = 0
        for parameter in self.parameters:
            size = local(parameter).numel()
            yield parameter, flat[at : at + size]
            at += size


class Buckets:
    """The order of parameters determines the layout: the same in every group that built the same model."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], *, exact: bool = False) -> None:
        """``exact``: sums are kept in float64, micro-batch by micro-batch, so that they do not depend on the number of groups:
        rounding to the parameter's own type then hides the order of the additions."""
        self._exact = exact
        self._buckets: list[_Bucket] = []
        kinds: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
        for parameter in parameters:
            if parameter.requires_grad:
                kinds.setdefault((parameter.dtype, local(parameter).device), []).append(parameter)
        for (dtype, device), several in kinds.items():
            for group in _grouped(several):
                size = sum(local(p).numel() for p in group) + len(group)
                flat = torch.zeros(size, dtype=torch.float64 if exact else dtype, device=device)
                self._buckets.append(_Bucket(flat, group, [0.0] * len(group)))

    @torch.no_grad()
    def begin(self) -> None:
        """Start a step: nothing is summed yet."""
        for bucket in self._buckets:
            bucket.there = [0.0] * len(bucket.parameters)
            if self._exact:
                bucket.flat.zero_()

    @torch.no_grad()
    def add(self) -> None:
        """Finish a micro-batch: where sums are exact, take its gradients from the parameters."""
        if not self._exact:
            return
        for bucket in self._buckets:
            for number, (parameter, place) in enumerate(bucket.parts(bucket.flat)):
                if (gradient := local_gradient(parameter)) is not None:
                    place.add_(gradient.reshape(-1))
                    bucket.there[number] = 1.0
                parameter.grad = None

    @torch.no_grad()
    def reduce(self, start: Callable[[torch.Tensor], Any]) -> None:
        """Sum all gradients over the groups; ``start`` starts an allreduce and returns its work. A missing gradient is 0."""
        works = []
        for bucket in self._buckets:
            if not self._exact:
                self._fill(bucket)
            bucket.present(bucket.flat).copy_(torch.tensor(bucket.there))
            works.append(start(bucket.flat))
        for work in works:
            work.wait()

    @staticmethod
    def _fill(bucket: _Bucket) -> None:
        for number, (parameter, place) in enumerate(bucket.parts(bucket.flat)):
            gradient = local_gradient(parameter)
            bucket.there[number] = 0.0 if gradient is None else 1.0
            if gradient is None:
                place.zero_()
            else:
                place.copy_(gradient.reshape(-1))

    @torch.no_grad()
    def divide(self, divisor: int) -> list[torch.Tensor]:
        """The averaged sums: the input of :meth:`hand_out`, here or in a group that repeats this step."""
        return [bucket.flat.div_(divisor) for bucket in self._buckets]

    @torch.no_grad()
    def hand_out(self, flats: list[torch.Tensor]) -> None:
        """Set these as the parameters' gradients. A parameter without a gradient in any group keeps none: an optimizer then does
        not change it or its state."""
        for bucket, flat in zip(self._buckets, flats, strict=True):
            for (parameter, place), groups in zip(bucket.parts(flat), bucket.present(flat).tolist(), strict=True):
                mine = place.view_as(local(parameter)).to(parameter.dtype)
                parameter.grad = like(mine, parameter) if groups else None

    @property
    def device(self) -> torch.device:
        """Device of the first buffer; the CPU without any."""
        return self._buckets[0].flat.device if self._buckets else torch.device("cpu")

    def flats(self) -> list[torch.Tensor]:
        """The buffers themselves."""
        return [bucket.flat for bucket in self._buckets]

    def fit(self, flats: list[torch.Tensor]) -> bool:
        """Whether these belong to a model like ours."""
        mine = [(bucket.flat.shape, bucket.flat.dtype) for bucket in self._buckets]
        return mine == [(flat.shape, flat.dtype) for flat in flats]

    def let_go(self) -> None:
        """Use new buffers from the next step on: the history keeps the present ones."""
        for bucket in self._buckets:
            bucket.flat = torch.empty_like(bucket.flat)


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
