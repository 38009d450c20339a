"""Random lives of a room: no split brain, no id twice, nobody back from the dead, and no job stuck that could go on."""

from __future__ import annotations

import os

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast.quorum.identity import Identity
from holdfast.quorum.nouns import Member, Quorum, Refused, Rules
from holdfast.quorum.room import Room
from holdfast.quorum.state import Kept, decode, encode

GROUPS = ("0", "1", "2", "3", "4")
groups = st.sampled_from(GROUPS)


class Life(RuleBasedStateMachine):
    """Groups with a few starts and Managers each, a controller, a clock, and restarts of the service."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.limits = Rules(min_groups=1, max_groups=4, heartbeat_timeout_s=5, join_timeout_s=20)
        self.room = Room(self.limits)
        self.starts = dict.fromkeys(GROUPS, 0)
        self.insides = dict.fromkeys(GROUPS, 0)
        self.managers = dict.fromkeys(GROUPS, 0)
        self.steps = dict.fromkeys(GROUPS, 0)
        self.dead: set[Identity] = set()
        self.evicted: set[str] = set()
        self.formed: dict[int, tuple[Identity, ...]] = {}
        self.newest = 0
        self.last: tuple[Identity, ...] = ()

    def now(self, group: str) -> Identity:
        start = f"7{group}.{self.starts[group]}" + (f".{self.insides[group]}" if self.insides[group] else "")
        return Identity(group, start, str(self.managers[group]))

    def ask(self, group: str, failures: int = 0, *, shrink_only: bool = False) -> None:
        who = self.now(group)
        member = Member(who, f"w{who}", "http://m", "s", self.steps[group], 1, shrink_only, failures)
        try:
            self.room.ask(member, self.now_s)
        except Refused:
            assert who in self.dead
        else:
            assert who not in self.dead

    def look(self) -> None:
        asked = self.room.asking()
        before = [w for w in self.last if w not in self.dead]
        quorum = self.room.tick(self.now_s)
        if quorum is not None:
            self.judge(quorum, asked, before)

    def judge(self, quorum: Quorum, asked: frozenset[Identity], before: list[Identity]) -> None:
        who = tuple(m.identity for m in quorum.members)
        assert self.formed.setdefault(quorum.id, who) == who, "one id, two lists of members"
        assert quorum.id >= self.newest, "an id went back"
        assert not self.dead & set(who), "somebody came back"
        assert set(who) <= asked, "somebody did not ask"
        assert self.limits.min_groups <= len(who) <= self.limits.max_groups
        assert len({w.group for w in who}) == len(who), "two starts of one group"
        assert not before or 2 * len(asked & set(before)) > len(before), "a minority went on"
        if any(m.commit_failures for m in quorum.members):
            assert quorum.id > self.newest, "nobody connects anew"
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
        self.dead |= {w for w in self.known() if w.group == group}
        self.starts[group] += 1
        self.room.heartbeat(self.now(group), self.now_s)

    @rule(group=groups)
    def manager_is_made_again(self, group: str) -> None:
        self.comes_again(group, self.managers)

    @rule(group=groups)
    def starts_again_inside_its_start(self, group: str) -> None:
        self.comes_again(group, self.insides)

    def comes_again(self, group: str, count: dict[str, int]) -> None:
        """The same process under another name: it ends the one before, and an eviction goes with it."""
        if self.now(group).fence not in self.evicted:
            self.dead |= {w for w in self.known() if w.group == group}
        count[group] += 1
        if self.now(group).fence in self.evicted:
            self.dead.add(self.now(group))
        self.room.heartbeat(self.now(group), self.now_s)

    @rule(group=groups, selector=st.sampled_from(["fence", "group", "name"]))
    def evict(self, group: str, selector: str) -> None:
        who = self.now(group)
        if not self.room.evict({"fence": who.fence, "group": group, "name": str(who)}[selector], "gpu.xid 79"):
            self.room.evict(who.fence, "gpu.xid 79")
        self.evicted.add(who.fence)
        self.dead |= {who} | {w for w in self.known() if w.fence == who.fence}
        self.look()

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
        self.dead |= set(self.room.leave(str(self.now(group))))
        self.look()

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
        """What was not written down was told to nobody; what was, comes back as it was."""
        kept = decode("room", encode(Kept("room", 1, (), self.room.snapshot())))
        assert kept.snapshot == self.room.snapshot()
        self.now_s = float(hash(self.now_s) % 1000)  # another monotonic clock
        self.room = Room.restored(kept.snapshot, self.now_s, 10.0)

    @precondition(lambda self: len([g for g in GROUPS if g not in self.room.spares]) >= self.limits.min_groups)
    @rule()
    def nothing_sticks(self) -> None:
        """Whatever happened: once every group has a new start and all ask, there is a quorum at once."""
        for group in GROUPS:
            self.process_starts_again(group)
        for group in GROUPS:
            self.ask(group)
        newest = self.newest
        self.look()
        assert self.newest > newest, self.room.reason(self.now_s)

    def known(self) -> set[Identity]:
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
