"""Samples of a micro-batch: a function of only (seed, step, i), each sample once per epoch. Pure."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from holdfast_train.errors import Unusable
from holdfast_train.samples.batch import GlobalBatch

_ROUNDS = 4
"""A Feistel network of four rounds with a pseudorandom round function is a strong pseudorandom permutation (Luby and Rackoff)."""
_ROUND = struct.Struct("<QQBQ")


def permuted(index: int, count: int, seed: int, epoch: int) -> int:
    """Position of ``index`` of ``range(count)`` in this epoch's shuffle, without building a table."""
    if not 0 <= index < count:
        raise ValueError(f"index {index} of {count}")
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    value = _mixed(index, half, seed, epoch)
    while value >= count:  # outside: follow the cycle; the domain is at most four times the range, so a few rounds
        value = _mixed(value, half, seed, epoch)
    return value


def _mixed(value: int, half: int, seed: int, epoch: int) -> int:
    mask = (1 << half) - 1
    left, right = value >> half, value & mask
    for number in range(_ROUNDS):
        fields = _ROUND.pack(seed % 2**64, epoch, number, right)
        mixed = int.from_bytes(hashlib.blake2b(fields, digest_size=8, person=b"holdfast-order").digest(), "little")
        left, right = right, left ^ (mixed & mask)
    return left << half | right


@dataclass(frozen=True, slots=True)
class Order:
    """The order of ``count`` samples under a global batch. Raises Unusable when there is no sample."""

    count: int
    batch: GlobalBatch
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise Unusable("there are no samples to train on")

    def ids(self, step: int, micro_batch: int) -> list[int]:
        """Samples of micro-batch i of a step (both from 0), each in ``range(count)``."""
        if step < 0 or not 0 <= micro_batch < self.batch.micro_batches:
            raise ValueError(f"micro-batch {micro_batch} of {self.batch.micro_batches} in step {step}")
        first = step * self.batch.samples + micro_batch * self.batch.micro_samples
        places = (divmod(first + j, self.count) for j in range(self.batch.micro_samples))
        return [permuted(index, self.count, self.seed, epoch) for epoch, index in places]
