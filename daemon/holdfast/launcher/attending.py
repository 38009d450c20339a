"""Supervision of one start of a group, from its ranks' start to the end of the last process, including requests to leave."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from holdfast.launcher import notices, outcome
from holdfast.launcher.guard import GuardProcess
from holdfast.launcher.inbox import LauncherInbox
from holdfast.launcher.link import AgentLink
from holdfast.launcher.notices import LeaveNotice
from holdfast.launcher.outcome import ExitReaction, ForcedEnd
from holdfast.launcher.ranks import RankProcesses

_ECHO_S = 1.0
"""Slurm's signal may reach us twice, directly and through srun: a second SIGTERM counts only after this."""
_SOON_S, _SELDOM_S = 0.05, 0.5
"""Poll intervals for remaining processes: while they are being ended; while they finish a step, or do not die of SIGKILL."""
_STUBBORN_S = 5.0
_IDLE_S = 30.0
_STUCK_EVERY_S = 30.0
_AGENT_AGAIN_S = 10.0


@dataclass(slots=True)
class LauncherRequests:
    """Requests to this launcher; kept over several starts."""

    leaving: bool = False
    term_s: float | None = None
    """When the first SIGTERM came."""
    broken_off: signal.Signals | None = None
    """SIGINT or SIGHUP: a user wants the job ended, not requeued."""
    ending: ForcedEnd | None = None


@dataclass(slots=True)
class Attendant:
    """Supervises ranks until all their processes have ended."""

    inbox: LauncherInbox
    link: AgentLink | None
    guard: GuardProcess
    event_file: Path | None
    deadline_s: float
    say: Callable[[str], None]
    told: LauncherRequests = field(default_factory=LauncherRequests)
    clock: Callable[[], float] = time.monotonic

    def attend(self, ranks: RankProcesses) -> None:
        """Return when the ranks and everything they have started have ended. ``told`` records whether that was requested."""
        done, stuck_s = False, self.clock() + _STUCK_EVERY_S
        terminated = False
        while True:
            self.hear(ranks)
            for rank in ranks.reap(self._other_ended):
                self._rank_ended(ranks, rank)
            if not ranks.running:
                done = done or self._all_ended(ranks)
                if not ranks.left():
                    return
            now_s, ending = self.clock(), self.told.ending
            if ending is not None and now_s >= ending.term_at_s and not terminated:
                ranks.terminate()
                terminated = True
            if ending is not None and now_s >= ending.kill_at_s:
                ranks.kill()
                if now_s >= stuck_s:
                    stuck_s = now_s + _STUCK_EVERY_S
                    self.say(f"still there after SIGKILL: {self._named(ranks)}")
            self.inbox.wait(self._pause_s(ranks, terminated))

    def end_now(self) -> None:
        """End the group: it cannot continue."""
        self._end(outcome.at_once(self.clock()))

    def hear(self, ranks: RankProcesses | None) -> None:
        """Handle signals and the agent's events. Without ranks they are only remembered."""
        for number in self.inbox.signals():
            self._signal(number, ranks)
        for said in self.inbox.messages():
            notice = notices.notice_of_event(said, datetime.now(UTC), self.deadline_s)
            if notice is not None:
                self._leave(notice, ranks)
            elif self.link is not None and said.get("kind") == "room":
                self.link.settled()
            elif self.link is not None and said.get("retry") is not False:
                self.link.ask_again(_AGENT_AGAIN_S)  # until it knows which run this launcher belongs to
            elif self.link is not None:
                self.link.settled()

    def _signal(self, number: signal.Signals, ranks: RankProcesses | None) -> None:
        now_s = self.clock()
        if number in (signal.SIGINT, signal.SIGHUP):
            self.told.broken_off = self.told.broken_off or number
            self._end(outcome.at_once(now_s, outcome.TERM_S))
            return
        if number is signal.SIGTERM and self.told.term_s is not None:
            if now_s >= self.told.term_s + _ECHO_S:
                self.say("SIGTERM once more: the group is ended now")
                self._end(outcome.at_once(now_s, outcome.TERM_S))
            return
        if number is signal.SIGTERM:
            self.told.term_s = now_s
        self._leave(notices.notice_of_signal(number, datetime.now(UTC), self.deadline_s), ranks)

    def _leave(self, notice: LeaveNotice, ranks: RankProcesses | None) -> None:
        left_s = notice.left_s(datetime.now(UTC))
        self.say(f"asked to leave within {left_s:.0f} s: {notice.reason}")
        self.told.leaving = True
        self._end(outcome.by(self.clock() + left_s))
        if self.event_file is not None:
            try:
                notices.append(self.event_file, notice)
            except OSError as error:
                self.say(
                    f"{self.event_file} cannot be written: {error.strerror}; the ranks get the signal without the reason"
                )
        if ranks is not None:
            ranks.ask()

    def _rank_ended(self, ranks: RankProcesses, rank: int) -> None:
        code = ranks.codes[rank]
        if outcome.by_slurms_signal(code) and self.told.ending is None:
            self._hear_soon(ranks)
        leavers = self.told.leaving and ranks.leavers()
        turn = outcome.turn(code, self.told.leaving, leavers)
        if turn is ExitReaction.LEAVE and ranks.running:
            self._leave(notices.LeaveNotice("a rank has left", _in(self.deadline_s)), ranks)
        elif turn is ExitReaction.LEAVE:
            self.told.leaving = True
        elif turn is ExitReaction.END and self.told.ending is None:
            self.say(f"rank {rank} of this node ended with {code}")
        if turn is ExitReaction.END:
            self.end_now()

    def _hear_soon(self, ranks: RankProcesses) -> None:
        """Wait for a signal: one that Slurm sends to every process may reach the launcher a moment after it has reached a rank."""
        until_s = self.clock() + _ECHO_S
        while not self.told.leaving and self.clock() < until_s:
            self.inbox.wait(until_s - self.clock())
            self.hear(ranks)

    def _all_ended(self, ranks: RankProcesses) -> bool:
        """End the processes that the ranks left behind. A process that is still finishing a step gets its time."""
        if not (self.told.leaving and ranks.leavers()):
            self.end_now()
            return True
        return False

    def _end(self, ending: ForcedEnd) -> None:
        self.told.ending = ending.sooner(self.told.ending)

    def _other_ended(self, pid: int) -> None:
        if pid == self.guard.pid:
            self.say(
                "the launcher's guard was killed: if the launcher is, too, what its ranks have started may keep running"
            )

    def _named(self, ranks: RankProcesses) -> str:
        return ", ".join(str(process.pid) for process in ranks.left()[:8])

    def _pause_s(self, ranks: RankProcesses, terminated: bool) -> float:
        """Time until the next poll. Exits of children and messages wake the launcher; timeouts, and orphans that are not yet its children,
        do not."""
        ending = self.told.ending
        if terminated and ending is not None and self.clock() < ending.kill_at_s + _STUBBORN_S:
            return _SOON_S
        if terminated or not ranks.running:
            return _SELDOM_S
        return _IDLE_S if ending is None else max(0.0, min(_IDLE_S, ending.term_at_s - self.clock()))


def _in(seconds: float) -> datetime:
    return datetime.fromtimestamp(time.time() + seconds, UTC)
