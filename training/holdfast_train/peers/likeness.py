"""Comparison of the groups' ``extra`` state, in the first step of each quorum, hence after each healing."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from holdfast_train.peers.replica import Stateful
from holdfast_train.tensors.codec import lay_out
from holdfast_train.tensors.shards import plain

log = logging.getLogger(__name__)

_CHUNK_BYTES = 32 << 20
_DIGEST_BYTES = 2
"""Squares of two bytes, summed over a thousand groups, are whole numbers in float64; one difference in 65,536 is missed."""


class Likeness:
    """Comparison of one rank with the same rank of the other groups. Adds one small collective per step to a job that has ``extra``.

    The collective always runs, even without anything to compare: groups may disagree about which step is a quorum's first, but
    must not disagree about what is summed."""

    def __init__(self, extra: Mapping[str, Stateful], device: torch.device) -> None:
        self._extra, self._device = dict(sorted(extra.items())), device
        self._compared: int | None = None
        self._sums = torch.zeros(1, dtype=torch.float64)

    def begin(self, quorum_id: int, start: Callable[[torch.Tensor], Any]) -> Any:
        """Start the comparison. ``start`` starts a summing allreduce and returns its work; None without ``extra``."""
        if not self._extra:
            return None
        mine = [0.0] * (1 + 2 * len(self._extra))
        if quorum_id != self._compared:
            digests = [digest(part) for part in self._extra.values()]
            mine = [1.0, *map(float, digests), *(float(each * each) for each in digests)]
        self._sums = torch.tensor(mine, dtype=torch.float64, device=self._device)
        return start(self._sums)

    def settle(self, quorum_id: int, step: int) -> tuple[str, ...]:
        """Called after the step was committed. Returns the names of state that differs between groups, and logs them."""
        first, self._compared = quorum_id != self._compared, quorum_id
        if not self._extra or not first:
            return ()
        groups, *sums = (round(each) for each in self._sums.tolist())
        count = len(self._extra)
        pairs = zip(self._extra, sums[:count], sums[count:], strict=True)
        wrong = tuple(name for name, of_digests, of_squares in pairs if groups * of_squares != of_digests * of_digests)
        if wrong:
            log.error(
                "event=extra_differs step=%d groups=%d names=%s: these groups continued with different state after a change of their "
                "number; "
                "change it in Session(…, after_step=…), not in the loop",
                step,
                groups,
                ",".join(wrong),
            )
        return wrong


def digest(part: Stateful) -> int:
    """Digest of its ``state_dict``. Raises TypeError for what cannot be sent to a peer."""
    layout = lay_out(plain(part.state_dict()))
    seen = hashlib.sha256(layout.index)
    for start in range(0, layout.size_bytes, _CHUNK_BYTES):
        seen.update(layout.read(start, start + _CHUNK_BYTES))
    return int.from_bytes(seen.digest()[:_DIGEST_BYTES])
