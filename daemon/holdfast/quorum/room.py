"""Rules of a job's rendezvous. Pure: the caller passes every time, in seconds of one monotonic clock; nothing here waits or writes.

Invariants, checked by a state machine in the tests:

* a quorum id belongs to one list of members, and ids only grow;
* a quorum has at least ``min_groups`` members, and forms only while more than half of the last quorum request it, not counting
  members known to be gone;
* a member that is gone (evicted, left, replaced by a later start of its group) is in no later quorum (limits: ``fences.py``);
* once the training is done there is no further quorum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.model.elastic_jobs.rooms import run_of
from holdfast.quorum.fences import forgettable, is_outdated, note_met
from holdfast.quorum.identity import GroupIdentity
from holdfast.quorum.nouns import (
    Departure,
    GoneMember,
    MemberRefused,
    Quorum,
    QuorumMember,
    RendezvousSnapshot,
    RoomEvent,
    Rules,
)

DONE = "the training is done"
"""The answer to every member after the training is done; a group that receives it exits with status 0."""


@dataclass(slots=True)
class _Ask:
    member: QuorumMember
    since_s: float


@dataclass(slots=True)
class Rendezvous:
    """The rendezvous of one job. Not thread-safe."""

    rules: Rules
    last: Quorum | None = None
    next_id: int = 1
    gone: dict[str, GoneMember] = field(default_factory=dict)
    """Members and starts that may never rejoin, and why."""
    spares: set[str] = field(default_factory=set)
    """Groups that wait outside until they are promoted."""
    done: bool = False
    """The training is done: no one may join until the rendezvous is closed."""
    newest: dict[str, int] = field(default_factory=dict)
    """``GROUP~JOB`` → restarts of its newest start seen: every earlier one is gone."""
    gone_since_s: dict[str, float] = field(default_factory=dict)
    changed: bool = False
    """Something that must outlive the process changed; the writer resets it once stored."""
    events: list[RoomEvent] = field(default_factory=list)
    """Events that were not collected yet."""
    _heard_s: dict[GroupIdentity, float] = field(default_factory=dict)
    _silent: set[GroupIdentity] = field(default_factory=set)
    _asks: dict[GroupIdentity, _Ask] = field(default_factory=dict)
    _asked: set[GroupIdentity] = field(default_factory=set)
    """Members that send heartbeats and have requested a quorum before. Training does not wait for a newcomer that never did."""

    # What comes in

    def heartbeat(self, who: GroupIdentity, now_s: float) -> None:
        """Record a heartbeat. Ignored for members that are gone."""
        if who in self._heard_s and who not in self._silent:
            self._heard_s[who] = now_s
        elif self._refusal(who) is None:
            self._meet(who, now_s)

    def ask(self, member: QuorumMember, now_s: float) -> None:
        """Record a member's request for the next quorum. Raises MemberRefused for a member that is gone or exceeds the limit."""
        who = member.identity
        if (why := self._refusal(who)) is not None:
            raise MemberRefused(why)
        self._meet(who, now_s)
        self._asked.add(who)
        before = self._asks.get(who)
        if before is None:
            self._asks[who] = _Ask(member, now_s)
        elif member.step >= before.member.step:  # a call that is repeated late may carry an older step
            self._asks[who] = _Ask(member, before.since_s)

    def withdraw(self, who: GroupIdentity) -> None:
        """Record that a member's call ended without an answer: it will request again, or it is dead."""
        self._asks.pop(who, None)

    def evict(self, selector: str, reason: str) -> tuple[GroupIdentity, ...]:
        """Fence members for good, on the controller's request. ``selector``: a group, a start (``GROUP~START``, with all restarts
        inside it) or a full name. Of a group, the members known now; a start is fenced even if it was never seen."""
        found = self._who(selector)
        for who in found:
            self._dismiss(who, selector if selector == who.alone else who.fence, Departure.EVICTED, reason)
        if not found and "~" in selector and ":" not in selector and selector not in self.gone:
            self.gone[selector] = GoneMember(Departure.EVICTED, reason)
            self.changed = True
            self.events.append(RoomEvent("evicted", who=selector, reason=reason))
        return found

    def leave(self, selector: str) -> tuple[GroupIdentity, ...]:
        """Record a graceful leave after a finished step: the others need not wait. A new Manager of the same start may rejoin."""
        found = self._who(selector)
        for who in found:
            self._dismiss(who, str(who), Departure.LEFT, "")
        return found

    def finish(self, who: GroupIdentity) -> tuple[GroupIdentity, ...]:
        """A member of the last quorum, which may have left it, reports that all steps are done and leaves for good. Ignored from
        any other: a start that was fenced, or never took part, cannot know that the training ended."""
        last, gone = self.last or Quorum(0, ()), self._gone(who)
        if who not in {m.identity for m in last.members} or (gone and gone.why is not Departure.LEFT):
            return ()
        if not self.done:
            self.done = self.changed = True
            self.events.append(RoomEvent("done", who=str(who), quorum_id=last.id, step=last.step))
        if gone is None:
            self._dismiss(who, str(who), Departure.LEFT, "")
        return (who,)

    def hold(self, group: str, *, spare: bool) -> tuple[GroupIdentity, ...]:
        """Make a group a spare, which waits outside and is not counted, or promote it. Returns its known members."""
        if spare != (group in self.spares):
            self.spares.symmetric_difference_update({group})
            self.changed = True
        return self._who(group)

    def tick(self, now_s: float) -> Quorum | None:
        """Evaluate the rules at this time. Returns the quorum that is due, if any; its members no longer request one."""
        self._notice_silence(now_s)
        chosen, _reason = self._choose(now_s)
        if chosen is None:
            return None
        quorum = self._form(chosen)
        for member in quorum.members:
            del self._asks[member.identity]
        return quorum

    # What is seen

    def refusal(self, who: GroupIdentity) -> str | None:
        """Why this member may not join; None: it may."""
        return self._refusal(who)

    def is_in(self, who: GroupIdentity) -> bool:
        """Whether this member has joined and was not forgotten; for any other a heartbeat is an arrival."""
        return who in self._heard_s

    @property
    def heard(self) -> int:
        """Number of members."""
        return len(self._heard_s)

    def observed(self) -> Quorum:
        """The last quorum, without members that are gone or silent since; without members when there was none."""
        last = self.last or Quorum(0, ())
        out = self._silent | {m.identity for m in last.members if self._gone(m.identity) is not None}
        return Quorum(last.id, tuple(m for m in last.members if m.identity not in out))

    def known(self) -> frozenset[GroupIdentity]:
        """Members that may still delay a quorum."""
        return frozenset(self._heard_s) | self._bound()

    def asking(self) -> frozenset[GroupIdentity]:
        return frozenset(self._asks)

    def reason(self, now_s: float) -> str:
        """Why there is no quorum now, or how the next one comes about."""
        return self._choose(now_s)[1]

    def wake_s(self, now_s: float) -> float | None:
        """When :meth:`tick` must be called at the latest; None: only after something came in."""
        timeout_s = self.rules.heartbeat_timeout_s
        due = [heard_s + timeout_s for who, heard_s in self._heard_s.items() if who not in self._silent]
        due += [ask.since_s + self.rules.join_timeout_s for ask in self._asks.values()]
        return min((at_s for at_s in due if at_s > now_s), default=None)

    def snapshot(self) -> RendezvousSnapshot:
        """State that must outlive the process."""
        gone, newest, since_s = dict(self.gone), dict(self.newest), dict(self.gone_since_s)
        return RendezvousSnapshot(
            self.rules, self.last, self.next_id, gone, frozenset(self.spares), self.done, newest, since_s
        )

    def forget(self, now_s: float) -> None:
        """Keep the list of gone members within its limits. ``now_s``: in seconds since 1970."""
        for name in self.gone.keys() - self.gone_since_s.keys():
            self.gone_since_s[name] = now_s
        members = [m.identity for m in self.last.members] if self.last else []
        for name in forgettable(self.gone, self.gone_since_s, self.newest, members, now_s):
            del self.gone[name], self.gone_since_s[name]

    @classmethod
    def restored(cls, kept: RendezvousSnapshot, now_s: float, grace_s: float) -> Rendezvous:
        """Restore a snapshot. No heartbeats arrived while the service was down: every member of the last quorum counts as alive
        for ``grace_s`` longer than a heartbeat."""
        room = cls(kept.rules, kept.last, kept.next_id, dict(kept.gone), set(kept.spares), kept.done)
        room.newest, room.gone_since_s = dict(kept.newest), dict(kept.gone_since_s)
        for who in room._bound():
            note_met(room.newest, who)  # an earlier release remembered none
            if not room.done:
                room._heard_s[who] = now_s + grace_s
        return room

    # How it is decided

    def _choose(self, now_s: float) -> tuple[list[QuorumMember] | None, str]:
        if self.done:
            return None, DONE
        alive = {who for who in self._heard_s if who not in self._silent and who.group not in self.spares}
        asks = {who: ask for who, ask in self._asks.items() if who in alive}
        bound = self._bound()
        members = self._invited(asks.values(), bound)
        returning = bound & asks.keys()
        if len(members) < max(1, self.rules.min_groups):
            return None, f"{len(members)} groups ask, {max(1, self.rules.min_groups)} are needed"
        if bound and 2 * len(returning) <= len(bound):
            missing = ", ".join(sorted(str(who) for who in bound - returning))
            return (
                None,
                f"{len(returning)} of {len(bound)} of the last quorum ask, more than half are needed: {missing}",
            )
        if bound and bound <= asks.keys():
            return members, "all of the last quorum ask"
        if not bound and 2 * len(asks) <= len(alive):
            return None, f"{len(asks)} of {len(alive)} living groups ask, more than half are needed"
        waiting = (alive & (bound | self._asked) if bound else alive) - asks.keys()
        since_s = min(ask.since_s for ask in asks.values())
        if waiting and now_s < since_s + self.rules.join_timeout_s:
            return None, f"waiting for {', '.join(sorted(map(str, waiting)))}"
        return members, "all living groups ask" if not waiting else "enough ask, and the others had their time"

    def _bound(self) -> set[GroupIdentity]:
        """Members of the last quorum that may still hold its state: not confirmed as gone."""
        return {m.identity for m in self.last.members if self._gone(m.identity) is None} if self.last else set()

    def _invited(self, asks: Iterable[_Ask], bound: set[GroupIdentity]) -> list[QuorumMember]:
        members = sorted((ask.member for ask in asks), key=lambda m: (m.identity not in bound, -m.step, m.identity))
        if any(m.shrink_only for m in members) and self.last is not None:
            members = [m for m in members if m.identity in bound]
        return sorted(members[: self.rules.max_groups], key=lambda m: m.identity)

    def _form(self, members: list[QuorumMember]) -> Quorum:
        who = [m.identity for m in members]
        before = [m.identity for m in self.last.members] if self.last else []
        if who == before and self.last is not None and not any(m.commit_failures for m in members):
            self.last = Quorum(self.last.id, tuple(members))
            return self.last
        self.last = Quorum(self.next_id, tuple(members))
        self.next_id += 1
        self.changed = True
        for forgotten in self._silent - set(who):
            del self._heard_s[forgotten]
        self._silent.clear()
        names = tuple(map(str, who))
        self.events.append(RoomEvent("quorum", quorum_id=self.last.id, step=self.last.step, members=names))
        return self.last

    # Who is there

    def _refusal(self, who: GroupIdentity) -> str | None:
        if self.done:
            return DONE
        gone = self._gone(who)
        if gone is None and who in self._heard_s:
            return None
        if gone is None and is_outdated(self.newest, who.started):
            gone = GoneMember(Departure.REPLACED, "by a later start of its group")
        if gone is not None:
            return f"{who} cannot come back: {gone}"
        if len(self._heard_s) >= self.rules.members_max:
            return f"the rendezvous is full: {self.rules.members_max} members"
        return self._misnamed(who)

    def _misnamed(self, who: GroupIdentity) -> str | None:
        """Why this name is not valid for a group or start of this job; None: it is valid."""
        groups = self.rules.groups
        run = run_of(str(who)) if groups else None
        if groups and (run is None or run.selector != who.fence):
            return f"{who} is not named GROUP~JOB.RESTARTS: start the group with holdfast run"
        if run is not None and run.group >= groups:
            return f"{who}: the groups of this job are 0 to {groups - 1}"
        return None

    def _meet(self, who: GroupIdentity, now_s: float) -> None:
        if who not in self._heard_s:
            note_met(self.newest, who)  # stored with the next change: a newcomer alone delays no one
            self._replace_older(who)
            self.events.append(RoomEvent("joined", who=str(who)))
        elif who in self._silent:
            self._silent.discard(who)
            self.events.append(RoomEvent("back", who=str(who)))
        self._heard_s[who] = now_s

    def _gone(self, who: GroupIdentity) -> GoneMember | None:
        return self.gone.get(who.fence) or self.gone.get(who.alone) or self.gone.get(str(who))

    def _replace_older(self, who: GroupIdentity) -> None:
        """Replace an earlier start of the same group. Where starts have no names, two live ones may share a group's name."""
        for other in sorted((set(self._heard_s) | self._bound()) - {who}):
            if other.group == who.group and who.group and (who.start or other in self._silent):
                inside = other.alone if other.fence == who.fence else other.fence
                key = str(other) if other.start == who.start else inside
                self._dismiss(other, key, Departure.REPLACED, f"by {who}")

    def _dismiss(self, who: GroupIdentity, key: str, why: Departure, reason: str) -> None:
        """Remove a member for good. ``key``: what is fenced, the whole start or this Manager alone."""
        self.gone[key] = GoneMember(why, reason)
        self._heard_s.pop(who, None)
        self._silent.discard(who)
        self._asks.pop(who, None)
        self.changed = True
        self.events.append(RoomEvent(why.value, who=str(who), reason=reason))

    def _who(self, selector: str) -> tuple[GroupIdentity, ...]:
        known = set(self._heard_s) | (self._bound())
        return tuple(sorted(who for who in known if who.answers_to(selector)))

    def _notice_silence(self, now_s: float) -> None:
        bound = self._bound()
        for who, heard_s in list(self._heard_s.items()):
            if who in self._silent or now_s < heard_s + self.rules.heartbeat_timeout_s:
                continue
            self.events.append(RoomEvent("lost", who=str(who), reason=f"no heartbeat for {now_s - heard_s:.1f} s"))
            self._asks.pop(who, None)
            if who in bound:
                self._silent.add(who)
            else:
                del self._heard_s[who]
        self._asked &= self._heard_s.keys()
