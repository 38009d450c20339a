"""The host of one open rendezvous: members' calls wait here, and changes are stored before any member gets an answer.

Members may call at any rate: pending changes are settled together, and ``limits.py`` limits how often members may join,
change the quorum and add to the record."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from holdfast.bucket import Bucket
from holdfast.model.errors import OutsideError, Unavailable
from holdfast.quorum.identity import GroupIdentity
from holdfast.quorum.limits import CHANGE_MEMBERS, CHANGES_BURST, CHANGES_PER_S, Arrivals, RecordLimit
from holdfast.quorum.nouns import Away, MemberRefused, Quorum, QuorumMember, RoomEvent, Rules
from holdfast.quorum.room import Rendezvous
from holdfast.quorum.state import QuorumStore, StoredRendezvous

log = logging.getLogger(__name__)

GRACE_S = 10.0
"""How much longer than a heartbeat the members of a restored rendezvous may be silent: torchft's Managers reconnect with
pauses that grow up to 10 s (its ``connect``, 0.2.0)."""
_AGAIN_S = 0.5
"""Pause before a failed write of the rendezvous is tried again."""

Formed = tuple[Quorum, float]


class RendezvousHost:
    """Host of one rendezvous. Lives in one event loop; only the write to the database happens in a thread."""

    def __init__(self, kept: StoredRendezvous, state: QuorumStore, *, restored: bool) -> None:
        self.kept = kept
        self.room = (
            Rendezvous.restored(kept.snapshot, time.monotonic(), GRACE_S)
            if restored
            else Rendezvous(kept.snapshot.rules)
        )
        self.room.changed = not restored
        self.room.forget(time.time())  # a release without these bounds may have written the document
        self.unwritten = ""
        """Why the rendezvous cannot be written to the database now; empty: it can."""
        self.arrivals = Arrivals.of(self.room.rules)
        self.record = RecordLimit()
        self._changes = Bucket(CHANGES_BURST, CHANGES_PER_S)
        self._queued = False
        """A settling is queued; it covers all calls until it runs."""
        self._state = state
        self._waiting: dict[GroupIdentity, set[asyncio.Future[Formed]]] = {}
        self._formed: list[Formed] = []
        self._happened: list[tuple[datetime, RoomEvent]] = []
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._settling: set[asyncio.Task[None]] = set()
        self._closed = False

    def heartbeat(self, who: GroupIdentity) -> None:
        """Handle a heartbeat. An arrival above the rate limit is ignored; a later heartbeat is accepted."""
        if self._may_arrive(who):
            self.room.heartbeat(who, time.monotonic())
        if self._timer is None or self.room.events:
            self.soon()

    def _may_arrive(self, who: GroupIdentity) -> bool:
        if self.room.is_in(who) or self.room.refusal(who) is not None:
            return True  # it changes nothing
        allowed = self.arrivals.allow(who.group, time.monotonic())
        times = self.arrivals.refused
        if not allowed and (times in (1, 10, 100) or times % 1000 == 0):
            log.warning("event=quorum_room_limited room=%s group=%s times=%d", self.kept.name, who.group, times)
        return allowed

    async def ask(self, member: QuorumMember) -> Formed:
        """Wait for a quorum with this member. Raises MemberRefused or Away, also while waiting.

        torchft's Managers may ask again while an earlier call of theirs still waits: all of them get the answer."""
        if not self._may_arrive(member.identity):
            raise Away(
                f"group {member.identity.group} starts too often, or the groups of this room together do: ask again"
            )
        self.room.ask(member, time.monotonic())
        answer: asyncio.Future[Formed] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(member.identity, set())
        waiting.add(answer)
        self.soon()
        try:
            return await answer
        finally:
            waiting.discard(answer)
            if not waiting and self._waiting.get(member.identity) is waiting:
                del self._waiting[member.identity]
                self.room.withdraw(member.identity)

    def observe(self, who: GroupIdentity) -> Formed:
        """The last quorum, for a caller that is not a member yet and looks for peers; no member waits for it. Raises MemberRefused."""
        if (why := self.room.refusal(who)) is not None:
            raise MemberRefused(why)
        return self.room.observed(), time.time()

    async def change(self, what: Callable[[Rendezvous], tuple[GroupIdentity, ...]]) -> tuple[GroupIdentity, ...]:
        """Apply a change and return once it is stored. Raises Unavailable when the write fails; the change is still in effect while
        the service runs, and the write is retried."""
        done = what(self.room)
        self._turn_away()
        await self.settle()
        if self.room.changed or self._happened:
            raise Unavailable(f"applied, but not stored yet: {self.unwritten}")
        return done

    def set_rules(self, rules: Rules, addresses: tuple[str, ...]) -> None:
        self.room.rules = rules
        self.arrivals.fit(rules)
        self.kept = replace(self.kept, addresses=addresses)
        self.room.changed = True

    def set_port(self, port: int) -> None:
        if port != self.kept.port:
            self.kept = replace(self.kept, port=port)
            self.room.changed = True

    def close(self, why: str) -> None:
        """Close the rendezvous: every waiting call is answered."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for answer in [a for waiting in self._waiting.values() for a in waiting if not a.done()]:
            answer.set_exception(Away(why))

    def soon(self) -> None:
        """Schedule a settling in the background."""
        if not self._closed and not self._queued:
            self._queued = True
            task = asyncio.get_running_loop().create_task(self.settle())
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def settle(self) -> None:
        """Evaluate the rules, store what changed, then answer the waiting calls."""
        async with self._lock:
            self._queued = False
            if self._closed:
                return
            self._tick(time.monotonic())
            await self._write()
            if not self.room.changed:  # a pending record delays no one; an unstored quorum is not announced
                self._answer()
            self._arm()

    def _tick(self, now_s: float) -> None:
        """Delay decisions of a rendezvous whose members cause too many writes; others are not affected."""
        if self._changes.wait_s(now_s):
            return
        before = self.room.next_id
        formed = self.room.tick(now_s)
        if formed is not None and self.room.next_id != before:
            self._changes.take(now_s, 1 + len(formed.members) / CHANGE_MEMBERS)
        if formed is not None:
            self._formed.append((formed, time.time()))

    async def _write(self) -> None:
        now = datetime.now(UTC)
        happened_now, self.room.events = self.room.events, []
        taken = self.record.keep(happened_now, time.monotonic())
        self._happened += [(now, event) for event in taken]
        for event in taken:
            log.info("event=quorum_%s room=%s %s", event.kind, self.kept.name, _line(event))
        happened, changed = tuple(self._happened), self.room.changed
        if not happened and not changed:
            self.unwritten = ""
            return
        self.room.forget(now.timestamp())
        kept = replace(self.kept, snapshot=self.room.snapshot())
        self.room.changed = False
        try:
            if changed:
                await asyncio.to_thread(self._state.save, kept, happened)
            else:
                await asyncio.to_thread(self._state.record, kept.name, happened)
        except OutsideError as error:
            if not self.unwritten:
                log.error("event=quorum_unwritten room=%s error=%r", self.kept.name, str(error))
            self.unwritten = str(error)
            self.room.changed = self.room.changed or changed
            return
        self.unwritten = ""
        del self._happened[: len(happened)]

    def _answer(self) -> None:
        formed, self._formed = self._formed, []
        for each in formed:
            for member in each[0].members:
                for answer in self._waiting.pop(member.identity, ()):
                    if not answer.done():
                        answer.set_result(each)
        self._turn_away()

    def _turn_away(self) -> None:
        for who, waiting in self._waiting.items():
            why = self.room.refusal(who)
            for answer in waiting if why is not None else ():
                if not answer.done():
                    answer.set_exception(MemberRefused(why))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_s = time.monotonic()
        wake_s = self.room.wake_s(now_s)
        wait_s = self._changes.wait_s(now_s)
        pause_s = _AGAIN_S if self.unwritten else wait_s or (None if wake_s is None else wake_s - now_s + 0.001)
        loop = asyncio.get_running_loop()
        self._timer = None if pause_s is None else loop.call_later(pause_s, self.soon)


def _line(event: RoomEvent) -> str:
    if event.kind == "quorum":
        return f"id={event.quorum_id} step={event.step} members={','.join(event.members)}"
    return f"member={event.who}" + (f" reason={event.reason!r}" if event.reason else "")
