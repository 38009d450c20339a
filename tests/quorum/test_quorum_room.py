"""A rendezvous's rules, by scenes: which members ask when, and which quorum results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.quorum.identity import GroupIdentity
from holdfast.quorum.nouns import MemberRefused, Quorum, QuorumMember, Rules
from holdfast.quorum.room import Rendezvous


def who(name: str) -> GroupIdentity:
    """``0a``: group 0, start a."""
    return GroupIdentity(name[0], name[1:], "u")


def stock(name: str, uuid: str) -> GroupIdentity:
    return GroupIdentity(name, "", uuid)


def member(identity: GroupIdentity | str, step: int = 0, **other: int | bool) -> QuorumMember:
    identity = who(identity) if isinstance(identity, str) else identity
    return replace(QuorumMember(identity, f"w{identity}", "http://m", "s:1", step, 1), **other)  # type: ignore[arg-type]


def room(**rules: float) -> Rendezvous:
    return Rendezvous(Rules(**rules))  # type: ignore[arg-type]


def gather(r: Rendezvous, now_s: float, *names: str, step: int = 0) -> Quorum | None:
    for name in names:
        r.ask(member(name, step), now_s)
    return r.tick(now_s)


def names(quorum: Quorum | None) -> list[str]:
    return [m.identity.group + m.identity.start for m in quorum.members] if quorum else []


def kinds(r: Rendezvous) -> list[str]:
    return [event.kind for event in r.events]


def trained(*groups: str, **rules: float) -> Rendezvous:
    """A rendezvous with a first quorum of these."""
    r = room(**rules)
    for name in groups:
        r.heartbeat(who(name), 0.0)
    assert names(gather(r, 0.0, *groups)) == list(groups)
    r.events.clear()
    return r


def test_the_first_quorum_waits_for_the_minimum_and_for_all_who_live() -> None:
    r = room(min_groups=2)
    assert gather(r, 0.0, "0a") is None
    assert r.reason(0.0) == "1 groups ask, 2 are needed"
    r.heartbeat(who("2a"), 0.0)
    assert gather(r, 0.1, "1a") is None
    assert r.reason(0.1) == "waiting for 2~a:u"
    assert names(gather(r, 0.2, "2a")) == ["0a", "1a", "2a"]


def test_the_first_quorum_does_without_those_who_live_and_do_not_ask_after_the_join_timeout() -> None:
    r = room(min_groups=1, join_timeout_s=3)
    for at_s in (0.0, 3.0):
        r.heartbeat(who("2a"), at_s)
        r.heartbeat(who("1a"), at_s)
        r.heartbeat(who("0a"), at_s)
        assert gather(r, at_s, "0a") is None  # one of three is no half
    assert names(gather(r, 3.1, "1a")) == ["0a", "1a"]


def test_with_all_of_the_last_quorum_there_is_no_waiting_and_the_id_stays() -> None:
    r = trained("0a", "1a")
    r.heartbeat(who("2a"), 1.0)  # lives, and does not ask
    again = gather(r, 1.0, "0a", "1a", step=1)
    assert again is not None
    assert (again.id, again.step, names(again)) == (1, 1, ["0a", "1a"])
    assert "quorum" not in kinds(r)


def test_a_newcomer_that_asks_comes_in_with_the_next_step() -> None:
    r = trained("0a", "1a")
    r.ask(member("2a"), 1.0)
    assert r.tick(1.0) is None
    grown = gather(r, 1.1, "0a", "1a")
    assert grown is not None
    assert (grown.id, names(grown)) == (2, ["0a", "1a", "2a"])


def test_failed_commits_bring_a_new_id_for_the_same_members() -> None:
    r = trained("0a", "1a")
    r.ask(member("0a", 5, commit_failures=1), 1.0)
    again = gather(r, 1.0, "1a", step=5)
    assert again is not None
    assert (again.id, names(again)) == (2, ["0a", "1a"])
    assert r.changed


def test_a_silent_member_costs_its_heartbeat_timeout() -> None:
    r = trained("0a", "1a", "2a")
    for at_s in (4.0, 4.9):
        r.heartbeat(who("0a"), at_s)
        r.heartbeat(who("1a"), at_s)
        assert gather(r, at_s, "0a", "1a") is None
    assert r.wake_s(4.9) == 5.0
    assert names(r.tick(5.0)) == ["0a", "1a"]
    assert kinds(r) == ["lost", "quorum"]


def test_half_of_the_last_quorum_is_not_enough_until_the_controller_has_confirmed_the_others_dead() -> None:
    r = trained("0a", "1a", "2a", "3a")
    r.heartbeat(who("0a"), 6.0)
    r.heartbeat(who("1a"), 6.0)
    assert gather(r, 6.0, "0a", "1a") is None
    assert r.reason(6.0).startswith("2 of 4 of the last quorum ask, more than half are needed: 2~a:u, 3~a:u")
    assert r.evict("3", "node n3: gpu.xid 79") == (who("3a"),)
    assert names(r.tick(6.1)) == ["0a", "1a"]


def test_an_eviction_lets_the_others_go_on_at_once_and_holds_for_good() -> None:
    r = trained("0a", "1a", "2a")
    assert gather(r, 1.0, "0a", "1a") is None
    r.evict("2~a", "node n2: gpu.xid 79")
    assert names(r.tick(1.01)) == ["0a", "1a"]
    r.heartbeat(who("2a"), 1.1)
    for uuid in ("u", "another Manager of the same process"):
        with pytest.raises(MemberRefused, match=r"cannot come back: evicted \(node n2: gpu.xid 79\)"):
            r.ask(member(GroupIdentity("2", "a", uuid)), 2.0)
    r.ask(member("2b"), 2.0)
    assert names(gather(r, 2.0, "0a", "1a")) == ["0a", "1a", "2b"]


def test_a_start_that_nobody_has_met_can_be_fenced_too() -> None:
    r = trained("0a")
    assert r.evict("5~z", "drained") == ()
    assert r.changed
    with pytest.raises(MemberRefused):
        r.ask(member("5z"), 1.0)


def test_who_leaves_is_not_waited_for_and_its_start_may_come_back_with_a_new_manager() -> None:
    r = trained("0a", "1a")
    assert r.leave("1~a:u") == (who("1a"),)
    assert names(gather(r, 1.0, "0a")) == ["0a"]
    with pytest.raises(MemberRefused, match="left"):
        r.ask(member("1a"), 1.0)
    r.ask(member(GroupIdentity("1", "a", "u2")), 1.5)
    assert len((gather(r, 1.5, "0a") or Quorum(0, ())).members) == 2


def test_a_new_start_of_a_group_replaces_the_old_one_without_any_wait() -> None:
    r = trained("0a", "1a")
    r.heartbeat(who("1b"), 1.0)
    assert kinds(r) == ["replaced", "joined"]
    r.ask(member("1b"), 1.1)
    assert names(gather(r, 1.1, "0a", step=7)) == ["0a", "1b"]
    with pytest.raises(MemberRefused, match=r"replaced \(by 1~b:u\)"):
        r.ask(member("1a"), 1.2)


def test_a_new_manager_of_the_same_start_replaces_only_the_old_manager() -> None:
    r = trained("0a", "1a")
    r.ask(member(GroupIdentity("1", "a", "u2")), 1.0)
    assert len((gather(r, 1.0, "0a") or Quorum(0, ())).members) == 2
    with pytest.raises(MemberRefused):
        r.ask(member("1a"), 1.2)


def test_stock_names_that_are_shared_do_not_replace_a_living_one() -> None:
    r = room()
    for uuid in ("u1", "u2"):
        r.ask(member(stock("ddp", uuid)), 0.0)
    first = r.tick(0.0)
    assert first is not None
    assert len(first.members) == 2
    r.heartbeat(stock("ddp", "u1"), 6.0)
    r.tick(6.0)
    r.ask(member(stock("ddp", "u3")), 6.0)  # u2 is silent: this one stands for it
    r.ask(member(stock("ddp", "u1"), 9), 6.0)
    second = r.tick(6.0)
    assert [m.identity.uuid for m in second.members] == ["u1", "u3"] if second else False


def test_a_spare_waits_outside_and_delays_nobody() -> None:
    r = trained("0a", "1a", "2a")
    r.hold("9", spare=True)
    r.ask(member("9a"), 0.5)
    r.leave("2")
    assert names(gather(r, 1.0, "0a", "1a")) == ["0a", "1a"]
    r.hold("9", spare=False)
    assert names(gather(r, 2.0, "0a", "1a", step=1)) == ["0a", "1a", "9a"]


def test_beyond_the_maximum_those_of_the_last_quorum_come_first() -> None:
    r = trained("1a", "2a", max_groups=2)
    r.ask(member("0a"), 1.0)
    assert names(gather(r, 1.0, "1a", "2a")) == ["1a", "2a"]
    r.leave("2~a")
    assert names(gather(r, 2.0, "1a")) == ["0a", "1a"]


def test_shrink_only_takes_nobody_new() -> None:
    r = trained("0a", "1a")
    r.ask(member("2a"), 1.0)
    r.ask(member("0a", shrink_only=True), 1.0)
    assert names(gather(r, 1.0, "1a")) == ["0a", "1a"]


def test_a_call_that_ended_is_no_longer_an_ask() -> None:
    r = trained("0a", "1a")
    r.ask(member("0a"), 1.0)
    r.withdraw(who("0a"))
    assert gather(r, 1.0, "1a") is None


def test_a_restart_drops_nobody_and_never_gives_an_id_again() -> None:
    r = trained("0a", "1a", "2a")
    r.evict("2", "drain")
    assert names(gather(r, 1.0, "0a", "1a", step=4)) == ["0a", "1a"]
    back = Rendezvous.restored(r.snapshot(), 100.0, grace_s=10.0)
    assert gather(back, 110.0, "0a", step=5) is None  # 1a may still come
    same = gather(back, 111.0, "1a", step=5)
    assert same is not None
    assert (same.id, names(same)) == (2, ["0a", "1a"])
    with pytest.raises(MemberRefused):
        back.ask(member("2a"), 111.0)
    back.ask(member("0a", 5, commit_failures=1), 112.0)
    assert getattr(gather(back, 112.0, "1a"), "id", None) == 3


def test_a_full_room_says_so() -> None:
    r = room(members_max=1)
    r.heartbeat(who("0a"), 0.0)
    r.heartbeat(who("1a"), 0.0)
    with pytest.raises(MemberRefused, match="full"):
        r.ask(member("1a"), 0.0)


def test_a_newcomer_that_never_asked_is_not_waited_for_by_those_who_train() -> None:
    r = trained("0a", "1a", "2a", heartbeat_timeout_s=5.0, join_timeout_s=60.0)
    for now_s in (1.0, 5.5):
        for name in ("0a", "1a", "3a"):
            r.heartbeat(who(name), now_s)  # 3 catches up first; 2 is silent
    assert names(gather(r, 5.6, "0a", "1a", step=1)) == ["0a", "1a"]
    assert names(gather(r, 5.7, "3a")) == []
    r.heartbeat(who("2a"), 5.8)
    assert names(gather(r, 5.8, "0a", "1a", step=2)) == ["0a", "1a", "3a"]


@pytest.mark.parametrize(
    ("evicted", "refused", "may_come"),
    [
        ("1~71.0", ["71.0", "71.0.1", "71.0.2"], ["71.1", "71.01", "72.0.1"]),
        ("1~71.0.1", ["71.0.1"], ["71.0.2", "71.1"]),
        ("1~word", ["word", "word.1"], ["word2", "other"]),
    ],
)
def test_a_fence_covers_the_restarts_inside_a_start(evicted: str, refused: list[str], may_come: list[str]) -> None:
    r = room()
    r.evict(evicted, "gpu.xid 79")
    for start in refused:
        with pytest.raises(MemberRefused, match="cannot come back"):
            r.ask(member(GroupIdentity("1", start, "u")), 0.0)
    for start in may_come:
        assert r.refusal(GroupIdentity("1", start, "u")) is None


@pytest.mark.parametrize("selector", ["1", "1~71.0", "1~71.0.1:u"])
def test_whoever_is_evicted_after_a_restart_inside_its_start_does_not_come_back_by_another(selector: str) -> None:
    r = room()
    r.ask(member(GroupIdentity("1", "71.0.1", "u")), 0.0)
    assert r.evict(selector, "drain")
    assert r.refusal(GroupIdentity("1", "71.0.2", "u")) is not None
    assert r.refusal(GroupIdentity("1", "71.1", "u")) is None


def test_a_restart_inside_a_start_ends_the_one_before_and_no_later_one() -> None:
    r = room()
    for start in ("71.0", "71.0.1", "71.0.2"):
        r.ask(member(GroupIdentity("1", start, "u")), 0.0)
    assert [r.refusal(GroupIdentity("1", start, "v")) is None for start in ("71.0", "71.0.1", "71.0.2", "71.0.3")] == [
        False, False, True, True,
    ]  # fmt: skip
    r.ask(member(GroupIdentity("1", "71.1", "u")), 1.0)
    assert r.refusal(GroupIdentity("1", "71.0.3", "u")) is not None, "a process of the earlier start came back"
    assert r.evict("1~71.1", "drain")


def test_who_looks_sees_those_of_the_last_quorum_who_are_not_gone() -> None:
    assert room().observed() == Quorum(0, ())
    r = trained("0a", "1a", "2a")
    r.evict("1", "drain")
    assert names(r.observed()) == ["0a", "2a"]
