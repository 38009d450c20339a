"""The numbers of one process's saves of a step: each save that is under way has a folder that no other one has."""

from __future__ import annotations

from holdfast_checkpoint.model import CheckpointError


class Turns:
    """Which saves of each step this rank has begun, and which of them it has handed in.

    A number is taken when a save begins, so that saves that overlap (an asynchronous one in a thread, one of a signal's handler) never
    share a folder. All ranks begin the saves of a step in the same order, so that the n-th of one rank is the n-th of every other."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._taken: dict[tuple[int, int], object] = {}
        """(step, number) of saves that are under way or handed in. One operation of the dict takes a number: a lock would not let in the
        handler of a signal, or would let it into the middle."""
        self._lost_count: set[int] = set()
        """Steps of which a save was broken off after a later one had begun."""

    def begin(self, step: int) -> int:
        """Takes the number of a save. Raises CheckpointError where the other ranks would give it another one."""
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
        """Gives the number back, for another try; keeps it where a later save of the step has begun, which counts as the newer one."""
        if (step, number + 1) not in self._taken:
            del self._taken[step, number]
        elif self._world_size > 1:
            self._lost_count.add(step)
