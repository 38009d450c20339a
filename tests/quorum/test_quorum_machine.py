"""Random lives of a rendezvous: no split brain, no id twice, no member back from the dead, and no job stuck that could continue."""

from __future__ import annotations

import os

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast.quorum.fences import is_outdated
from holdfast.quorum.identity import GroupIdentity
from holdfast.quorum.nouns import MemberRefused, Quorum, QuorumMember, Rules
from holdfast.quorum.room import Rendezvous
from holdfast.quorum.state import StoredRendezvous, decode, encode

GROUPS = ("0", "1", "2", "3", "4")
groups = st.sampled_from(GROUPS)


class Life(RuleBasedStateMachine):
    """Groups with a few starts and Managers each, a controller, a clock, onlookers, an end, and restarts of the service."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.looks = 0
        self.begin()

    def begin(self) -> None:
        """A rendezvous is opened."""
        self.limits = Rules(min_groups=1, max_groups=4, heartbeat_timeout_s=5, join_timeout_s=20)
        self.room = Rendezvous(self.limits)
        self.starts = dict.fromkeys(GROUPS, 0)
        self.insides = dict.fromkeys(GROUPS, 0)
        self.managers = dict.fromkeys(GROUPS, 0)
        self.steps = dict.fromkeys(GROUPS, 0)
        self.dead: set[GroupIdentity] = set()
        self.left: set[GroupIdentity] = set()
        self.met = dict.fromkeys(GROUPS, 0)
        """The newest start of each that was met."""
        self.evicted: set[str] = set()
        """Starts, and starts without the restarts inside them, that are shut out."""
        self.done = False
        self.formed: dict[int, tuple[GroupIdentity, ...]] = {}
        self.newest = 0
        self.last: tuple[GroupIdentity, ...] = ()

    def now(self, group: str) -> GroupIdentity:
        start = f"7{group}.{self.starts[group]}" + (f".{self.insides[group]}" if self.insides[group] else "")
        return GroupIdentity(group, start, str(self.managers[group]))

    def ask(self, group: str, failures: int = 0, *, shrink_only: bool = False) -> None:
        who = self.now(group)
        member = QuorumMember(who, f"w{who}", "http://m", "s", self.steps[group], 1, shrink_only, failures)
        try:
            self.room.ask(member, self.now_s)
        except MemberRefused:
            assert self.done or who in self.dead
        else:
            assert not self.done
            assert who not in self.dead

    def shut_out(self, who: GroupIdentity) -> bool:
        return who.fence in self.evicted or who.alone in self.evicted

    def look(self) -> None:
        self.looks += 1
        asked = self.room.asking()
        before = [w for w in self.last if w not in self.dead]
        quorum = self.room.tick(self.now_s)
        if quorum is not None:
            self.judge(quorum, asked, before)

    def judge(self, quorum: Quorum, asked: frozenset[GroupIdentity], before: list[GroupIdentity]) -> None:
        who = tuple(m.identity for m in quorum.members)
        assert not self.done, "a quorum after the end"
        assert self.formed.setdefault(quorum.id, who) == who, "one id, two lists of members"
        assert quorum.id >= self.newest, "an id went back"
        assert not self.dead & set(who), "a dead member came back"
        assert set(who) <= asked, "a member did not ask"
        assert self.limits.min_groups <= len(who) <= self.limits.max_groups
        assert len({w.group for w in who}) == len(who), "two starts of one group"
        assert not before or 2 * len(asked & set(before)) > len(before), "a minority continued"
        if any(m.commit_failures for m in quorum.members):
            assert quorum.id > self.newest, "no one reconnects"
        self.newest, self.last = quorum.id, who
        for w in who:
            self.steps[w.group] = quorum.step + 1

    @rule(group=groups, failures=st.integers(0, 1), shrink_only=st.booleans())
    def asks(self, group: str, failures: int, shrink_only: bool) -> None:
        self.ask(group, failures, shrink_only=shrink_only)
        self.look()

    @rule(chosen=st.sets(groups, min_size=1))
    def several_ask(self, chosen: set[str]) -> None:
        for group in sorted(chosen):
            self.room.heartbeat(self.now(group), self.now_s)
        for group in sorted(chosen):
            self.ask(group)
            self.look()

    @rule(group=groups)
    def heartbeat(self, group: str) -> None:
        self.room.heartbeat(self.now(group), self.now_s)
        self.look()

    @rule(group=groups)
    def call_ends(self, group: str) -> None:
        self.room.withdraw(self.now(group))

    @rule(group=groups)
    def process_starts_again(self, group: str) -> None:
        self.comes_again(group, self.starts)

    @rule(group=groups)
    def manager_is_made_again(self, group: str) -> None:
        self.comes_again(group, self.managers)

    @rule(group=groups)
    def starts_again_inside_its_start(self, group: str) -> None:
        self.comes_again(group, self.insides)

    def comes_again(self, group: str, count: dict[str, int]) -> None:
        """A group under another name, which ends the one before, unless it is shut out itself: an eviction goes with its start."""
        before = {w for w in self.known() if w.group == group}
        count[group] += 1
        if self.shut_out(self.now(group)):
            self.dead.add(self.now(group))
        elif not self.done:
            self.dead |= before
            self.met[group] = self.starts[group]
        self.room.heartbeat(self.now(group), self.now_s)

    @rule(group=groups, back=st.integers(1, 3))
    def an_earlier_start_comes_back(self, group: str, back: int) -> None:
        """A process that hung for long: whether or not that very start is remembered, its group has a later one."""
        start = self.met[group] - back
        if start < 0:
            return
        earlier = GroupIdentity(group, f"7{group}.{start}", "hung")
        self.room.heartbeat(earlier, self.now_s)
        assert self.room.refusal(earlier) is not None
        assert earlier not in self.room.known()

    @rule()
    def fences_that_later_starts_imply_are_forgotten(self) -> None:
        needed = {name for who in self.last for name in (who.fence, who.alone, str(who))}
        for name in [n for n in self.room.gone if n not in needed and is_outdated(self.room.newest, n)]:
            del self.room.gone[name]

    @rule(group=groups, selector=st.sampled_from(["fence", "group", "name"]))
    def evict(self, group: str, selector: str) -> None:
        who = self.now(group)
        gone = set(self.room.evict({"fence": who.fence, "group": group, "name": str(who)}[selector], "gpu.xid 79"))
        if who not in gone:
            gone |= {who, *self.room.evict(who.fence, "gpu.xid 79")}
        self.evicted |= {w.fence for w in gone}
        self.dead |= gone | {w for w in self.known() if self.shut_out(w)}
        self.left = {w for w in self.left if not self.shut_out(w)}
        self.look()

    @rule(group=groups)
    def evict_it_without_the_restarts_inside_it(self, group: str) -> None:
        who = self.now(group)
        self.dead |= {who, *self.room.evict(who.alone, "hang")}
        self.evicted.add(who.alone)
        self.left = {w for w in self.left if not self.shut_out(w)}
        self.look()

    @rule(group=groups)
    def evict_a_start_before_it_is_met(self, group: str) -> None:
        later = f"{group}~7{group}.{self.starts[group] + 1}"
        assert self.room.evict(later, "drain") == ()
        self.evicted.add(later)

    @rule(group=groups)
    def evicted_process_makes_another_manager(self, group: str) -> None:
        self.evict(group, "fence")
        self.manager_is_made_again(group)
        self.ask(group)
        self.look()

    @rule(chosen=st.sets(groups, min_size=1, max_size=2))
    def only_these_live_on(self, chosen: set[str]) -> None:
        self.now_s += 6.0
        self.several_ask(chosen)

    @rule(group=groups)
    def leave(self, group: str) -> None:
        gone = set(self.room.leave(str(self.now(group))))
        self.dead |= gone
        self.left |= gone
        self.look()

    @rule(group=groups)
    def onlooker(self, group: str) -> None:
        """It sees no member that is gone, and changes nothing."""
        before = (self.room.snapshot(), self.room.asking(), self.room.known(), len(self.room.events))
        assert (self.room.refusal(self.now(group)) is None) == (not self.done and self.now(group) not in self.dead)
        seen = {m.identity for m in self.room.observed().members}
        assert seen <= set(self.last) - self.dead
        assert before == (self.room.snapshot(), self.room.asking(), self.room.known(), len(self.room.events))

    @precondition(lambda self: not self.done)
    @rule(group=groups)
    def falls_silent(self, group: str) -> None:
        """For longer than a heartbeat and the grace after a restart, while the others report: no onlooker counts on it."""
        for _ in range(4):
            self.now_s += 4.0
            for other in sorted(set(GROUPS) - {group}):
                self.room.heartbeat(self.now(other), self.now_s)
            self.look()
        assert group not in {m.identity.group for m in self.room.observed().members}

    @precondition(lambda self: self.looks > 15)
    @rule(who=st.integers(0, len(GROUPS) - 1), member=st.booleans())
    def says_that_it_is_done(self, who: int, member: bool) -> None:
        """Counts from a member of the last quorum that is there or has left; one that has left may be evicted since. The
        others wait to be admitted to a next step."""
        speaker = self.last[who % len(self.last)] if member and self.last else self.now(GROUPS[who])
        for group in sorted({w.group for w in self.last} - {speaker.group}):
            self.ask(group)
        heard = self.room.finish(speaker) == (speaker,)
        if speaker not in self.left:
            assert heard == (speaker in self.last and speaker not in self.dead)
        if heard:
            assert speaker in self.last
            assert self.room.done
            self.done = True
            self.dead.add(speaker)
            self.left.add(speaker)
        self.look()

    @precondition(lambda self: self.done)
    @rule()
    def room_is_closed_and_opened_anew(self) -> None:
        self.looks = 0
        self.begin()

    @rule(group=groups, spare=st.booleans())
    def hold(self, group: str, spare: bool) -> None:
        self.room.hold(group, spare=spare)
        self.look()

    @rule(by_s=st.sampled_from([0.1, 1.0, 4.9, 5.0, 21.0]))
    def time_passes(self, by_s: float) -> None:
        self.now_s += by_s
        self.look()

    @rule()
    def service_restarts(self) -> None:
        """What was not stored was sent to no one; what was, comes back as it was."""
        kept = decode("room", encode(StoredRendezvous("room", 1, (), self.room.snapshot())))
        assert kept.snapshot == self.room.snapshot()
        self.now_s = float(hash(self.now_s) % 1000)  # another monotonic clock
        self.room = Rendezvous.restored(kept.snapshot, self.now_s, 10.0)

    @precondition(lambda self: not self.done)
    @precondition(lambda self: len([g for g in GROUPS if g not in self.room.spares]) >= self.limits.min_groups)
    @rule()
    def nothing_sticks(self) -> None:
        """Whatever happened: once every group has a new start and all ask, there is a quorum at once."""
        for group in GROUPS:
            self.process_starts_again(group)
            while self.shut_out(self.now(group)):
                self.process_starts_again(group)
        for group in GROUPS:
            self.ask(group)
        newest = self.newest
        self.look()
        assert self.newest > newest, self.room.reason(self.now_s)

    def known(self) -> set[GroupIdentity]:
        """Everyone of the current start and the last quorum: who a new start ends."""
        return {self.now(g) for g in GROUPS} | set(self.last)

    @invariant()
    def the_clock_is_set(self) -> None:
        if self.room.asking():
            self.room.reason(self.now_s)
            assert (self.room.wake_s(self.now_s) or self.now_s + 1) > self.now_s


@pytest.mark.slow
def test_a_room_in_random_lives() -> None:
    run_state_machine_as_test(Life, settings=settings(max_examples=40, stateful_step_count=30))


@pytest.mark.soak
def test_a_room_in_many_random_lives() -> None:
    chosen = int(os.environ.get("HOLDFAST_SOAK_SEED", "0")) or int.from_bytes(os.urandom(4))
    print(f"seed {chosen}")  # noqa: T201
    machine = seed(chosen)(Life)
    run_state_machine_as_test(machine, settings=settings(max_examples=2000, stateful_step_count=60, derandomize=False))
