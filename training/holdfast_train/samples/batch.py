"""A global batch that does not depend on the number of groups: M micro-batches, divided over the groups of a step. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_train.errors import Unusable
from holdfast_train.sizes import Sizes


@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """``samples`` in each step, computed ``micro_samples`` at a time. Raises Unusable when that does not divide."""

    samples: int
    micro_samples: int

    def __post_init__(self) -> None:
        if self.samples < 1 or self.micro_samples < 1:
            raise Unusable(
                f"a global batch of {self.samples} in micro-batches of {self.micro_samples}: both must be 1 or more"
            )
        if self.samples % self.micro_samples:
            raise Unusable(
                f"a global batch of {self.samples} cannot be divided into micro-batches of {self.micro_samples}"
            )

    @property
    def micro_batches(self) -> int:
        """M, the same in every committed step."""
        return self.samples // self.micro_samples

    def check(self, sizes: Sizes) -> None:
        """Raise Unusable when the largest legal size would leave groups without a micro-batch."""
        if sizes.most > self.micro_batches:
            raise Unusable(
                f"{sizes.most} groups cannot share {self.micro_batches} micro-batches:"
                f" make the global batch larger, the micro-batches smaller, or allow at most {self.micro_batches} groups"
            )

    def share(self, rank: int, present: int, sizes: Sizes) -> range:
        """Micro-batches of the rank-th of the present groups: i ≡ rank (mod n), where n is the largest legal size.

        Groups beyond n are spares of this step and get none; while too few are present, no group gets any."""
        if not 0 <= rank < present:
            raise ValueError(f"rank {rank} of {present}")
        n = sizes.usable(present)
        return range(rank, self.micro_batches, n) if rank < n else range(0)
