"""Find this group's rendezvous before the ranks start: from the agent, or from the environment where there is no agent."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.launcher.room import GroupRendezvous, room_from_answer
from holdfast.model.errors import HoldfastError

_AGAIN_S = 2.0
"""Pause between requests to an agent that had no rendezvous for this group yet."""
UNDECLARED_S = 30.0
"""How long to wait for an agent where it is not known whether the job is elastic."""


class RendezvousRefused(HoldfastError):
    """There will be no rendezvous for this group; asking again is pointless."""


class TooLong(HoldfastError):
    """No rendezvous was found in the time allowed; another start may find one."""


class Withdrawn(HoldfastError):
    """The group was asked to leave before it had started. ``number``: the signal, if it was one."""

    def __init__(self, why: str, number: signal.Signals | None = None) -> None:
        super().__init__(f"{why} arrived before the group had started")
        self.number = number


class SearchLink(Protocol):
    """The part of the agent's connection that the search needs."""

    path: str

    @property
    def fd(self) -> int | None: ...
    def ask_again(self, after_s: float) -> None: ...
    def settled(self) -> None: ...


class SearchInbox(Protocol):
    def wait(self, timeout_s: float) -> None: ...
    def signals(self) -> list[signal.Signals]: ...
    def messages(self) -> Iterator[dict[str, Any]]: ...


@dataclass(slots=True)
class Search:
    """One search for a rendezvous. ``declared`` asks Slurm whether this is an elastic job; None: Slurm cannot be asked."""

    link: SearchLink
    inbox: SearchInbox
    declared: Callable[[], bool | None]
    from_env: GroupRendezvous | None
    wait_s: float
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _reasons: set[str] = field(default_factory=set)
    _declared: bool | None = None
    _asked_slurm: bool = False

    def run(self) -> GroupRendezvous | None:
        """The rendezvous; None: the job is not elastic, and its command is simply run. Raises RendezvousRefused, TooLong, Withdrawn."""
        began_s = self.clock()
        self.inbox.wait(0.2)  # a running agent has been reached after this time
        while True:
            for said in self.inbox.messages():
                if said.get("kind") == "room" and (room := room_from_answer(said)) is not None:
                    self.link.settled()
                    return room
                if said.get("kind") == "event":
                    raise Withdrawn(f"an event ({str(said.get('reason'))[:100]!r})")
                if not self._may_ask_again(said):
                    return self.from_env
            if self.link.fd is None and self._without_agent(self.clock() - began_s):
                return self.from_env
            if self.clock() - began_s >= self.wait_s:
                raise TooLong(f"no room within {self.wait_s:g} s: {self._last}")
            self.inbox.wait(1.0)
            for number in self.inbox.signals():
                raise Withdrawn(number.name, number)

    @property
    def _last(self) -> str:
        return next(reversed(list(self._reasons)), "the agent has not answered")

    def _may_ask_again(self, said: dict[str, Any]) -> bool:
        """Whether to ask again. False: the agent will never have a rendezvous, and none is needed or the environment names one. Raises
        RendezvousRefused."""
        why = " ".join(str(said.get("error") or "the agent's answer cannot be understood").split())[:300]
        if said.get("retry") is not False:
            self._note(why)
            self.link.ask_again(_AGAIN_S)
            return True
        if self.from_env is None and self._elastic() is not False:
            raise RendezvousRefused(why)
        return False

    def _without_agent(self, waited_s: float) -> bool:
        """Whether to continue without an agent."""
        if self.from_env is not None:
            return True
        elastic = self._elastic()
        if elastic is False:
            return True
        self._note(f"no agent answers at {self.link.path}")
        return elastic is None and waited_s >= min(UNDECLARED_S, self.wait_s)

    def _elastic(self) -> bool | None:
        if not self._asked_slurm:
            self._asked_slurm, self._declared = True, self.declared()
        return self._declared

    def _note(self, why: str) -> None:
        """Log one line for each reason, not for each try."""
        if why not in self._reasons:
            self._reasons.add(why)
            self.say(f"no room yet: {why}")
