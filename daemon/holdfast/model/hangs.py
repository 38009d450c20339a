"""The site's policy on jobs that hang and on groups that are slow. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HangAct(StrEnum):
    """What is done about a job that hangs."""

    TELL = "tell"
    RESTART = "restart"


class StragglerAct(StrEnum):
    """What is done about a slow part of a job."""

    TELL = "tell"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class HangPolicy:
    """Table ``[hangs]``: a job tells of no step any more."""

    act: str = HangAct.TELL.value
    """``tell`` reports a job that hangs and leaves it as it is; ``restart`` queues it again if it opted in, once the stacks of its ranks
    have been read."""
    group_act: str = HangAct.RESTART.value
    """The same of one group of an elastic job that hangs while its other groups go on without it. Where the file sets ``act`` and not this
    one, it is as ``act``."""
    floor_s: float = 300.0
    """A job that tells of steps and phases hangs after so long without a step …"""
    steps: float = 5.0
    """… or after so many times its longest step, whichever is longer."""
    plain_floor_s: float = 1800.0
    """The same for a job that tells of no phases: its pause may be an evaluation (NCCL's own watchdog: 10 to 30 min)."""
    silent_s: float = 600.0
    """A job on several nodes that tells of no phases hangs after so long if their RDMA devices, too, have carried nothing for so long; of
    one that told of nothing a human is told then (ByteRobust: no RDMA traffic for 10 min). 0: silence means nothing."""
    init_s: float = 1800.0
    """Bound on the phase ``init``, in which no step is due yet."""
    stacks_s: float = 20.0
    """So long the stacks are waited for; what has not come by then is not needed."""
    probe_s: float = 60.0
    """So long at most a node with an odd rank is kept off the restarted job while it is probed."""
    settle_s: float = 60.0
    """After one group of an elastic job was lost or stopped the others get so long to go on before they hang."""

    together_jobs: int = 2
    """So many jobs that stop within ``together_s``, of each other user one, are one event, told once and never restarted. 0: only where a
    file system does not answer."""
    together_s: float = 600.0
    """Jobs stop as they come to need what has stalled: not at one moment, but one after another."""

    @property
    def restarts(self) -> bool:
        """Whether a job that hangs, and opted in, is queued again."""
        return self.act == HangAct.RESTART

    @property
    def restarts_groups(self) -> bool:
        """Whether a group of an elastic job that hangs alone is queued again."""
        return self.group_act == HangAct.RESTART


@dataclass(frozen=True, slots=True)
class StragglerPolicy:
    """Table ``[stragglers]``: one part of a job is slower than the others, for a minute and more."""

    act: str = StragglerAct.TELL.value
    """``leave`` asks the slow group of an elastic job to leave and has its node probed; ``tell`` does not."""
    robust_z: float = 4.0
    """Slower than the median by more than so many (scaled) median absolute deviations; from four parts on."""
    slower_share: float = 0.1
    """Slower than the median by more than this share, too."""
    ratio: float = 1.5
    """With three parts: slower than so many times the median."""

    @property
    def leaves(self) -> bool:
        """Whether the slow group of an elastic job is asked to leave."""
        return self.act == StragglerAct.LEAVE
