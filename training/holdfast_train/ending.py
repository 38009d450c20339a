"""The end of a training whose last state is saved. The groups stay in the quorum until it is on the disk: the first one saves it
and says then that the training is done, and where it is lost the next one does."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from holdfast_train.durable import DurableCheckpoints, End
from holdfast_train.errors import QuorumAway, Refused
from holdfast_train.membership import Standing
from holdfast_train.ranks import Ranks
from holdfast_train.sizes import Sizes

log = logging.getLogger(__name__)

TRIES_MAX = 3
"""Groups that try to save the end, one after the other: one may have lost its disk, and more would only be longer about it."""


class _Heard(enum.Enum):
    NOTHING = enum.auto()
    DONE = enum.auto()
    AWAY = enum.auto()


class Ending:
    """Of one rank; all ranks of the group go through it together."""

    def __init__(
        self,
        checkpoints: DurableCheckpoints,
        ranks: Ranks,
        sizes: Sizes,
        gather: Callable[[], Standing | None],
        agreed: Callable[[Standing | None], Standing | None],
    ) -> None:
        """``gather``: waits for a quorum, which the group that saves does not ask for meanwhile. ``agreed``: the standing, where
        all ranks of the group have one."""
        self._checkpoints, self._ranks, self._sizes = checkpoints, ranks, sizes
        self._gather, self._agreed = gather, agreed

    def see_through(self, step: int) -> bool:
        """Waits until the state after the last step is saved, or nobody can. Whether this group is to tell the room that the
        training is done. Raises what ``gather`` does where this group is to leave, or is shut out."""
        place = self._checkpoints.place(step)
        while step:
            end = self._checkpoints.end(step)
            if end is not End.ELSEWHERE:
                return end is End.SAVED or self._nobody_else(place, step)
            heard = self._hear(step)
            if heard is not _Heard.NOTHING:
                return heard is _Heard.AWAY and self._checkpoints.leave(step)
        return False

    def _nobody_else(self, place: int | None, step: int) -> bool:
        """After a save that failed: whether no other group can try any more, so that nobody is to wait for it."""
        others = self._checkpoints.present - 1
        if place is not None and place + 1 < TRIES_MAX and self._sizes.usable(others):
            return False
        log.error("event=done_but_not_saved step=%d", step)
        return True

    def _hear(self, step: int) -> _Heard:
        """Of one quorum more."""
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
        for word in (_Heard.DONE, _Heard.AWAY):  # one rank may hear it while another is given its place
            if self._ranks.any(heard is word):
                return word
        standing = self._agreed(standing)
        if standing is not None:
            self._checkpoints.ready(standing, step)
        return _Heard.NOTHING
