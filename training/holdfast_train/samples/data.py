"""Token files, memory-mapped and read by index: consecutive little-endian numbers of 2 or 4 bytes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from holdfast_train.errors import Unusable

_DTYPES = {2: torch.int16, 4: torch.int32}


class TokenFile:
    """Samples of ``length`` + 1 tokens that overlap by one token: input and target."""

    def __init__(self, path: str | Path, length: int, token_bytes: int = 2) -> None:
        """Raises Unusable when the file cannot be read or holds no sample."""
        if length < 1 or token_bytes not in _DTYPES or sys.byteorder != "little":
            raise Unusable(f"samples of {length} tokens of {token_bytes} bytes cannot be read here")
        try:
            size = Path(path).stat().st_size
        except OSError as error:
            raise Unusable(f"the tokens cannot be read: {error}") from error
        self._length, self._token_bytes = length, token_bytes
        self.count = (size // token_bytes - 1) // length
        """Samples in the file."""
        if size % token_bytes or self.count < 1:
            raise Unusable(f"{path} has {size} bytes: no whole number of tokens, or too few for one sample of {length}")
        # A private mapping: pages come from the page cache as they are touched, and nothing can be written back.
        self._tokens = torch.from_file(str(path), shared=False, size=size // token_bytes, dtype=_DTYPES[token_bytes])

    def batch(self, ids: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of these samples, int64, each of shape (samples, length)."""
        rows = torch.stack([self._sample(number) for number in ids])
        return rows[:, :-1], rows[:, 1:]

    def _sample(self, number: int) -> torch.Tensor:
        if not 0 <= number < self.count:
            raise IndexError(f"sample {number} of {self.count}")
        first = number * self._length
        tokens = self._tokens[first : first + self._length + 1].to(torch.int64)
        return tokens & 0xFFFF if self._token_bytes == 2 else tokens  # stored unsigned
