"""Numbers of one process's saves of a step, so that each running save has its own folder."""

from __future__ import annotations

from holdfast_checkpoint.base.model import CheckpointError


class SaveTurns:
    """Saves of each step that this rank has started, and which of them it has handed in.

    A number is taken when a save starts, so that overlapping saves (an asynchronous one in a thread, one of a signal handler) never
    share a folder. All ranks start the saves of a step in the same order, so that the n-th of one rank is the n-th of every other."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._taken: dict[tuple[int, int], object] = {}
        """(step, number) of saves that are running or handed in. One operation of the dict takes a number: with a lock a signal handler
        would either deadlock or run in the middle."""
        self._lost_count: set[int] = set()
        """Steps of which a save was aborted after a later one had started."""

    def begin(self, step: int) -> int:
        """Take the number of a save. Raises CheckpointError where the other ranks would give it another one."""
        if step in self._lost_count:
            raise CheckpointError(
                f"rank {self._rank} broke off a save of step {step} while another one of that step was under way or had been handed in: "
                f"the other ranks count its saves of step {step} otherwise, so it can save only other steps"
            )
        mine, number = object(), 1
        while self._taken.setdefault((step, number), mine) is not mine:
            number += 1
        return number

    def break_off(self, step: int, number: int) -> None:
        """Return the number, for another try; keep it where a later save of the step has started, which counts as the newer one."""
        if (step, number + 1) not in self._taken:
            del self._taken[step, number]
        elif self._world_size > 1:
            self._lost_count.add(step)
