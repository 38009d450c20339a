"""The site's policy on jobs that hang and on groups that are slow. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast_checks.settings.option import option, share


class HangAct(StrEnum):
    """Action on a job that hangs."""

    TELL = "tell"
    RESTART = "restart"


class StragglerAct(StrEnum):
    """Action on a slow part of a job."""

    TELL = "tell"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class HangPolicy:
    """Table ``[hangs]``: a job reports no step any more."""

    act: str = option(
        HangAct.TELL.value,
        "tell: a job that hangs is reported and left running; restart: it is queued again if it opted in, once the "
        "stacks of its ranks have been read.",
        one_of=HangAct,
    )
    group_act: str = option(
        HangAct.RESTART.value,
        "The same of one group of an elastic job that hangs while its other groups continue without it. Where the "
        "file sets act and not this one, it is as act.",
        one_of=HangAct,
    )
    floor_s: float = option(300.0, "A job that reports steps and phases hangs after this long without a step …")
    steps: float = option(5.0, "… or after this many times its longest step, whichever is longer.")
    plain_floor_s: float = option(
        1800.0,
        "The same for a job that reports no phases: its pause may be an evaluation (NCCL's own watchdog: 10 to 30 "
        "min).",
    )
    silent_s: float = option(
        600.0,
        "A job on several nodes that reports no phases hangs after this long if their RDMA devices, too, have carried "
        "nothing for this long; a job that reported nothing is only reported to an operator then (ByteRobust: no RDMA "
        "traffic for 10 min). 0: silence means nothing.",
    )
    init_s: float = option(1800.0, "Bound on the phase init, in which no step is due yet.")
    stacks_s: float = option(20.0, "How long to wait for the stacks; what has not come by then is not needed.")
    probe_s: float = option(
        60.0, "How long at most a node with an odd rank is kept off the restarted job while it is probed."
    )
    settle_s: float = option(
        60.0,
        "After one group of an elastic job was lost or stopped, the others have this long to continue before they "
        "count as hung.",
    )

    together_jobs: int = option(
        2,
        "This many jobs that stop within together_s, one of each other user, are one event, reported once and never "
        "restarted. 0: only where a file system does not answer.",
    )
    together_s: float = option(
        600.0, "Jobs stop as they come to need what has stalled: not at one moment, but one after another."
    )

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

    act: str = option(
        StragglerAct.TELL.value,
        "leave: the slow group of an elastic job is asked to leave and its node is probed; tell: it is only reported.",
        one_of=StragglerAct,
    )
    robust_z: float = option(
        4.0, "Slower than the median by more than this many (scaled) median absolute deviations; from four parts on."
    )
    slower_share: float = share(0.1, "Slower than the median by more than this share, too.")
    ratio: float = option(1.5, "With three parts: slower than this many times the median.")

    @property
    def leaves(self) -> bool:
        """Whether the slow group of an elastic job is asked to leave."""
        return self.act == StragglerAct.LEAVE
