"""The ranks of one replica group, and their agreement on common decisions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from holdfast_train.errors import RankLost
from holdfast_train.settings import TrainSettings

_TEXT_BYTES = 512


class RankGroup:
    """One rank's view. With a single rank nothing is sent. Each call is a collective of all ranks, and raises RankLost when
    another one does not answer within the collective timeout."""

    def __init__(self, settings: TrainSettings) -> None:
        """Create the group's process group where the program did not. Raises RankLost."""
        self.rank, self.count = settings.rank, settings.ranks
        self._group: Any = None
        if self.count == 1:
            return
        timeout = timedelta(seconds=settings.collective_timeout_s)
        try:
            if not dist.is_initialized():
                dist.init_process_group(backend(), timeout=timeout)
            # A separate process group: this never mixes with the program's collectives, nor waits for a GPU.
            self._group = dist.new_group(backend="gloo", timeout=timeout)
        except (RuntimeError, ValueError) as error:
            raise RankLost(f"the {self.count} ranks of this group did not meet: {_line(error)}") from error

    def any(self, flag: bool) -> bool:
        """Whether it is true in any rank."""
        return self._most(int(flag)) == 1

    def all(self, flag: bool) -> bool:
        """Whether it is true in every rank."""
        return self._most(int(not flag)) == 0

    def told(self, text: str = "") -> str:
        """Broadcast rank 0's text, at most 512 bytes."""
        if self._group is None:
            return text
        said = text.encode().ljust(_TEXT_BYTES, b"\0")
        if len(said) > _TEXT_BYTES:
            raise ValueError(f"{len(said)} bytes are too many")
        carried = torch.frombuffer(bytearray(said), dtype=torch.uint8)
        self._together(lambda: dist.broadcast(carried, group=self._group, group_src=0))
        return bytes(carried.tolist()).rstrip(b"\0").decode()

    def _most(self, value: int) -> int:
        if self._group is None:
            return value
        carried = torch.tensor([value], dtype=torch.int32)
        self._together(lambda: dist.all_reduce(carried, dist.ReduceOp.MAX, group=self._group))
        return int(carried.item())

    def _together(self, what: Any) -> None:
        try:
            what()
        except RuntimeError as error:
            raise RankLost(f"another rank of this group does not answer: {_line(error)}") from error


def backend() -> str:
    """Backend for the program's own collectives, by the available devices."""
    return "cpu:gloo,cuda:nccl" if dist.is_nccl_available() and torch.cuda.is_available() else "gloo"


def _line(error: BaseException) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
