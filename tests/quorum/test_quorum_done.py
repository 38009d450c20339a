"""The end of a training: reported once by a member, it ends every group that waits or comes later."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.quorum.identity import GroupIdentity
from holdfast.quorum.nouns import MemberRefused, QuorumMember, Rules
from holdfast.quorum.room import Rendezvous
from support.quorum_site import Site, named, refusal, with_site

ZERO, ONE, SPARE = GroupIdentity("0", "70.0", "u"), GroupIdentity("1", "71.0", "u"), GroupIdentity("2", "72.0", "u")
DONE = "the training is done"


def member(who: GroupIdentity, step: int) -> QuorumMember:
    return QuorumMember(who, f"w{who}", "http://m", "s:1", step, 1)


def trained() -> Rendezvous:
    """Two groups in their step 9, and a spare that asks and has no place."""
    room = Rendezvous(Rules(min_groups=2, max_groups=2))
    for who in (ZERO, ONE):
        room.ask(member(who, 9), 0.0)
    assert room.tick(0.0) is not None
    room.ask(member(SPARE, 0), 1.0)
    assert room.tick(1.0) is None
    room.events.clear()
    room.changed = False
    return room


def test_whoever_waits_or_comes_or_looks_is_told_that_it_is_done() -> None:
    room = trained()
    assert room.finish(ZERO) == (ZERO,)
    assert room.changed
    assert [(e.kind, e.who, e.quorum_id, e.step) for e in room.events] == [
        ("done", "0~70.0:u", 1, 9),
        ("left", "0~70.0:u", 0, 0),
    ]
    for who in (ZERO, ONE, SPARE, GroupIdentity("0", "70.1", "v"), GroupIdentity("3", "73.0", "u")):
        assert room.refusal(who) == DONE
        with pytest.raises(MemberRefused, match=DONE):
            room.ask(member(who, 9), 2.0)
    assert room.tick(500.0) is None
    assert room.reason(500.0) == DONE


def test_it_is_said_once_and_each_member_leaves_with_it() -> None:
    room = trained()
    room.finish(ZERO)
    room.leave(str(ONE))
    assert room.finish(ONE) == (ONE,)  # which has left already, as its other ranks said
    assert room.finish(ZERO) == (ZERO,)
    assert [e.kind for e in room.events] == ["done", "left", "left"]


@pytest.mark.parametrize(
    "who", [SPARE, replace(ZERO, uuid="v"), replace(ZERO, start="70.1"), GroupIdentity("9", "1.0", "u")]
)
def test_from_one_outside_of_the_last_quorum_it_means_nothing(who: GroupIdentity) -> None:
    room = trained()
    assert room.finish(who) == ()
    assert not room.done
    assert not room.changed


def test_from_one_who_was_shut_out_or_before_any_quorum_it_means_nothing() -> None:
    room = trained()
    room.evict("0~70.0", "drain")
    assert room.finish(ZERO) == ()
    assert not room.done
    assert Rendezvous(Rules()).finish(ZERO) == ()


def test_a_room_stays_done_over_a_restart_of_the_service_until_it_is_closed(tmp_path: Path) -> None:
    opened: dict[str, str] = {}
    rules = {"min_groups": 1, "max_groups": 1}

    async def before(s: Site) -> None:
        opened.update(await s.do(do="open", room="r", rules=rules))
        other = await s.do(do="open", room="other")
        url, zero = opened["url"], named(opened, "0")
        assert (await s.ask(url, zero))[0] == 1
        spare = asyncio.create_task(s.ask(url, named(opened, "1")))
        for forged in (named(other, "0"), "0~a:u"):
            await s.beat(url, f"{forged}!done")
        assert not (await s.do(do="status", room="r"))["rooms"][0]["done"]
        await s.beat(url, f"{zero}!done")
        line = f"Holdfast's rendezvous r: {DONE}"
        with pytest.raises(Exception, match=line):
            await asyncio.wait_for(spare, 10)

    async def after(s: Site) -> None:
        assert await s.do(do="open", room="r", rules=rules) == opened
        for name in (named(opened, "0", "b"), named(opened, "5"), named(opened, "5") + "!observe"):
            assert (await refusal(s.ask(opened["url"], name)))[0] == "PERMISSION_DENIED"
        assert (await s.do(do="status", room="r"))["rooms"][0]["done"]
        happened = [e["kind"] for e in (await s.do(do="events", room="r"))["events"]]
        assert happened == ["joined", "quorum", "joined", "done", "left"]
        await s.do(do="close", room="r")
        anew = await s.do(do="open", room="r", rules=rules)
        assert (await s.ask(anew["url"], named(anew, "0")))[0] == 1

    with_site(tmp_path, before)
    with_site(tmp_path, after)
