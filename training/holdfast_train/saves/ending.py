"""End of a training whose last state is saved. The groups stay in the quorum until it is on disk: the first one saves it and then
reports the training as done; if that group is lost, the next one takes over."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from holdfast_train.errors import QuorumAway, Refused
from holdfast_train.membership import StepPosition
from holdfast_train.ranks import RankGroup
from holdfast_train.saves.durable import DurableCheckpoints, FinalSave
from holdfast_train.sizes import Sizes

log = logging.getLogger(__name__)

TRIES_MAX = 3
"""Groups that try to save the last state, one after the other: one may have lost its disk, and more would only take longer."""


class _Heard(enum.Enum):
    NOTHING = enum.auto()
    DONE = enum.auto()
    AWAY = enum.auto()


class TrainingEnd:
    """The end as seen by one rank; all ranks of the group go through it together."""

    def __init__(
        self,
        checkpoints: DurableCheckpoints,
        ranks: RankGroup,
        sizes: Sizes,
        gather: Callable[[], StepPosition | None],
        agreed: Callable[[StepPosition | None], StepPosition | None],
    ) -> None:
        """``gather``: waits for a quorum, which the saving group does not request meanwhile. ``agreed``: the standing, if all
        ranks of the group have one."""
        self._checkpoints, self._ranks, self._sizes = checkpoints, ranks, sizes
        self._gather, self._agreed = gather, agreed

    def see_through(self, step: int) -> bool:
        """Wait until the state after the last step is saved, or no group can save it. Returns whether this group must report the
        training as done. Raises what ``gather`` raises when this group must leave or is refused."""
        place = self._checkpoints.place(step)
        while step:
            end = self._checkpoints.end(step)
            if end is not FinalSave.ELSEWHERE:
                return end is FinalSave.SAVED or self._nobody_else(place, step)
            heard = self._hear(step)
            if heard is not _Heard.NOTHING:
                return heard is _Heard.AWAY and self._checkpoints.leave(step)
        return False

    def _nobody_else(self, place: int | None, step: int) -> bool:
        """After a failed save: whether no other group can try any more, so that none should wait for it."""
        others = self._checkpoints.present - 1
        if place is not None and place + 1 < TRIES_MAX and self._sizes.usable(others):
            return False
        log.error("event=done_but_not_saved step=%d", step)
        return True

    def _hear(self, step: int) -> _Heard:
        """Result of one more quorum."""
        standing, heard = None, _Heard.NOTHING
        try:
            standing = self._gather()
        except Refused as error:
            if error.status:
                raise
            heard = _Heard.DONE
        except QuorumAway as error:
            log.warning("event=quorum_away_at_the_end step=%d reason=%r", step, str(error))
            heard = _Heard.AWAY
        for word in (_Heard.DONE, _Heard.AWAY):  # one rank may be refused while another gets its place
            if self._ranks.any(heard is word):
                return word
        standing = self._agreed(standing)
        if standing is not None:
            self._checkpoints.ready(standing, step)
        return _Heard.NOTHING
