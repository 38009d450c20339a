"""What one job may do to its own rendezvous, whatever it sends: names, starts, the record, and which members are remembered as gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.kit.rooms import Rooms

from holdfast.bucket import Bucket
from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.model.elastic_jobs.rooms import OpenRoom, RoomRules
from holdfast.quorum import control, fences, messages
from holdfast.quorum.fences import GONE_MAX, KEPT_S, NEWEST_MAX, is_outdated
from holdfast.quorum.host import RendezvousHost
from holdfast.quorum.identity import GroupIdentity, replica_name
from holdfast.quorum.limits import (
    CHANGES_BURST,
    CHANGES_PER_S,
    GROUP_BURST,
    GROUP_PER_S,
    GROUPS_KEPT,
    OMITTED_EVERY_S,
    RECORD_BURST,
    RECORD_PER_HOUR,
    ROOM_BURST,
    ROOM_PER_S,
    Arrivals,
    RecordLimit,
)
from holdfast.quorum.nouns import Departure, GoneMember, MemberRefused, QuorumMember, RoomEvent, Rules
from holdfast.quorum.room import Rendezvous
from holdfast.quorum.state import StoredRendezvous, decode, encode
from support.practice import eventually
from support.quorum_site import Site, named, refusal, with_site
from support.rooms import Caller, socket_of

T0_S = 1_772_366_400.0


def member(who: GroupIdentity, step: int = 0, **changed: Any) -> QuorumMember:
    return replace(QuorumMember(who, f"w{who}", "http://m", "s:1", step, 1), **changed)


def identity(name: str, uuid: str = "u") -> GroupIdentity:
    """``0~72.1``."""
    group, _, start = name.partition("~")
    return GroupIdentity(group, start, uuid)


def met(*names: str, **rules: Any) -> Rendezvous:
    """A rendezvous with a first quorum of these."""
    room = Rendezvous(Rules(**rules))
    for name in names:
        room.ask(member(identity(name)), 0.0)
    assert room.tick(0.0) is not None
    return room


# Names


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("4~72.0", "the groups of this job are 0 to 3"),
        ("400000~72.0", "the groups of this job are 0 to 3"),
        ("00~72.0", "is not named GROUP~JOB.RESTARTS"),
        ("x~72.0", "is not named GROUP~JOB.RESTARTS"),
        ("0~72", "is not named GROUP~JOB.RESTARTS"),
        ("0~072.0", "is not named GROUP~JOB.RESTARTS"),
        ("0~72.00", "is not named GROUP~JOB.RESTARTS"),
        ("0~72.0.1.2", "is not named GROUP~JOB.RESTARTS"),
        ("0~" + "1" * 170, "is not named GROUP~JOB.RESTARTS"),
        ("0~word", "is not named GROUP~JOB.RESTARTS"),
    ],
)
def test_a_group_or_start_that_the_job_cannot_have_is_refused(name: str, says: str) -> None:
    room = Rendezvous(Rules(groups=4))
    with pytest.raises(MemberRefused, match=says):
        room.ask(member(identity(name)), 0.0)
    room.heartbeat(identity(name), 0.0)
    assert room.known() == frozenset()
    assert room.events == []


@pytest.mark.parametrize("name", ["0~72.0", "3~72.11", "3~4294967294.0.1", "2~82.1.1002"])
def test_every_start_that_slurm_or_a_launcher_makes_comes_in(name: str) -> None:
    room = Rendezvous(Rules(groups=4))
    room.ask(member(identity(name)), 0.0)
    assert room.asking()


def test_who_is_in_stays_whatever_its_name_also_over_a_restart() -> None:
    """A job from before an upgrade, under the old form of names."""
    room = met("left", "right")
    room.rules = replace(room.rules, groups=2)
    for _ in range(2):
        for name in ("left", "right"):
            room.ask(member(identity(name), 1), 1.0)
        assert room.tick(1.0) is not None
        room = Rendezvous.restored(room.snapshot(), 0.0, 10.0)
    with pytest.raises(MemberRefused):
        room.ask(member(identity("left~other")), 1.0)


def test_the_service_keeps_a_group_that_is_known_and_says_why_another_is_refused(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={}, groups=2)
        await s.do(do="open", room="r", rules={}, groups=1)  # an older view of Slurm
        assert await s.ask(opened["url"], named(opened, "1", "72.0")) == (1, [named(opened, "1", "72.0")])
        code, line = await refusal(s.ask(opened["url"], named(opened, "2", "72.0")))
        assert (code, line) == (
            "PERMISSION_DENIED",
            "Holdfast's rendezvous r: 2~72.0:u: the groups of this job are 0 to 1",
        )
        bad = await s.do(do="open", room="r", rules={}, groups="2")
        assert "groups is not a number" in bad["error"]
        crowd = await s.do(do="open", room="r", rules={"members_max": 5000})
        assert "members_max lies between" in crowd["error"]

    with_site(tmp_path, scene)


# Members that are gone


@pytest.mark.slow
def test_starts_without_number_leave_a_list_of_bounded_length() -> None:
    room = met("0~72.0", "1~71.0")
    for n in range(3 * GONE_MAX):
        room.heartbeat(identity(f"1~{1000 + n}.0"), 1.0)
        room.forget(T0_S + n)
    assert len(room.gone) == GONE_MAX + 1
    assert "1~71.0" in room.gone, "the others would wait for it"
    assert room.refusal(identity("1~71.0")) is not None
    assert room.refusal(identity(f"1~{1000 + 3 * GONE_MAX - 2}.0")) is not None, "the newest are remembered"
    assert len(json.dumps(encode(StoredRendezvous("r", 0, (), room.snapshot())))) < 300_000


@pytest.mark.slow
def test_a_job_that_starts_again_and_again_forgets_no_fence() -> None:
    """100 groups, 100 starts each: 10,000 are gone, and every one of them is refused when its process comes back."""
    room = Rendezvous(Rules(groups=100))
    for restarts in range(100):
        for group in range(100):
            room.heartbeat(identity(f"{group}~{500 + group}.{restarts}"), 1.0)
        room.forget(T0_S)
    assert len(room.gone) <= GONE_MAX
    again = Rendezvous.restored(decode("r", encode(StoredRendezvous("r", 0, (), room.snapshot()))).snapshot, 0.0, 10.0)
    for r in (room, again):
        for group in range(100):
            for restarts in range(99):
                assert r.refusal(identity(f"{group}~{500 + group}.{restarts}.1", "late")) is not None
            assert r.refusal(identity(f"{group}~{500 + group}.100")) is None


@pytest.mark.slow
def test_verdicts_are_forgotten_last_and_what_a_later_start_says_as_well_first() -> None:
    room = met("9~90.0")
    for group in range(10):
        room.evict(f"{group + 10}~71.0", "gpu.xid 79")
    room.forget(T0_S)
    for n in range(GONE_MAX + 500):
        room.heartbeat(identity("1~72.0", f"u{n}"), 1.0)
        room.forget(T0_S + 1 + n)
    assert [name for name, gone in room.gone.items() if gone.why is Departure.EVICTED] == [
        f"{group + 10}~71.0" for group in range(10)
    ]
    assert len(room.gone) == GONE_MAX
    room.heartbeat(identity("1~72.1"), 1.0)
    room.forget(T0_S + 9999)
    assert all(room.refusal(identity("1~72.0", f"u{n}")) is not None for n in range(GONE_MAX + 500))


def test_a_manager_that_left_is_forgotten_after_days_and_a_start_that_was_shut_out_is_not() -> None:
    room = met("0~70.0", "1~71.0", "2~72.0")
    room.leave("1~71.0:u")
    room.evict("2~72.0", "drain")
    room.evict("3~73.0", "drain")
    room.forget(T0_S)
    room.forget(T0_S + KEPT_S)
    assert "1~71.0:u" in room.gone, "the quorum after it has not been formed: it would be waited for"
    room.ask(member(identity("0~70.0"), 1), 1.0)
    assert room.tick(1.0) is not None
    room.forget(T0_S + KEPT_S - 1)
    assert len(room.gone) == 3
    room.forget(T0_S + KEPT_S)
    assert set(room.gone) == {"2~72.0", "3~73.0"}
    assert set(room.gone_since_s) == set(room.gone)


def test_a_start_that_the_room_had_forgotten_does_not_come_back_beside_a_later_one() -> None:
    room = Rendezvous(Rules())
    room.heartbeat(identity("0~72.0"), 0.0)
    room.tick(10.0)  # silent, and of no quorum: nothing of it is left
    assert room.known() == frozenset()
    room.heartbeat(identity("0~72.1"), 10.0)
    assert "0~72.0" not in room.gone
    room.heartbeat(identity("0~72.0"), 11.0)
    assert room.known() == {identity("0~72.1")}
    with pytest.raises(MemberRefused, match="cannot come back: replaced"):
        room.ask(member(identity("0~72.0")), 11.0)


def test_newest_starts_that_are_remembered_are_bounded_too() -> None:
    newest: dict[str, int] = {}
    for n in range(NEWEST_MAX + 10):
        fences.note_met(newest, identity(f"0~{n + 1}.3"))
    assert len(newest) == NEWEST_MAX
    assert is_outdated(newest, f"0~{NEWEST_MAX + 10}.2.7:u")
    assert not is_outdated(newest, f"0~{NEWEST_MAX + 10}.3.7:u")
    assert not is_outdated(newest, f"00~{NEWEST_MAX + 10}.2")
    assert not is_outdated(newest, "0~1.0")


@pytest.mark.slow
def test_a_room_that_an_earlier_release_let_grow_is_cut_when_it_is_read() -> None:
    document = encode(StoredRendezvous("r", 0, (), met("0~72.5").snapshot()))
    del document["newest"], document["gone_since_s"]
    document["gone"] = {f"{n}~{n}{'x' * 150}": ["replaced", "by another"] for n in range(20_000)}
    kept = decode("r", document)
    host = RendezvousHost(kept, None, restored=True)  # type: ignore[arg-type]
    assert len(host.room.gone) == GONE_MAX
    assert host.room.refusal(identity("0~72.4")) is not None
    assert host.room.refusal(identity("0~72.5")) is None


# How often


def test_a_group_that_starts_again_and_again_waits_and_the_others_do_not() -> None:
    arrivals = Arrivals.of(Rules(max_groups=4))
    assert sum(arrivals.allow("0", 0.0) for _ in range(100)) == GROUP_BURST
    assert arrivals.allow("1", 0.0)
    assert not arrivals.allow("0", 0.5 / GROUP_PER_S)
    assert arrivals.allow("0", 2.0 / GROUP_PER_S)
    assert arrivals.refused == 100 - GROUP_BURST + 1


def test_groups_without_number_are_one_room() -> None:
    arrivals = Arrivals.of(Rules(max_groups=4))
    allowed = sum(arrivals.allow(f"g{n}", n / 100) for n in range(6000))
    assert allowed <= ROOM_BURST + 8 + 60 * ROOM_PER_S + 1
    assert len(arrivals._groups) == GROUPS_KEPT


def test_a_job_of_a_thousand_groups_may_start_twice_in_a_row() -> None:
    arrivals = Arrivals.of(Rules(max_groups=1000))
    assert all(arrivals.allow(str(n % 1000), 0.0) for n in range(2000))


def test_a_bucket_is_never_fuller_than_full_and_takes_what_is_large_once() -> None:
    bucket = Bucket(3, 0.5)
    assert bucket.left(0.0) == 3
    assert bucket.take(0.0, 10)
    assert not bucket.take(13.9)
    assert bucket.wait_s(0.0) == pytest.approx(14.0, abs=0.01)
    assert bucket.take(14.1)
    assert bucket.left(10_000.0) == 3
    assert bucket.wait_s(10_000.0) == 0


def test_starts_that_come_too_fast_are_told_to_ask_again_and_write_nothing(tmp_path: Path) -> None:
    """torchft's Managers try again at UNAVAILABLE; a refusal would end them."""

    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={"min_groups": 2, "max_groups": 2}, groups=2)
        url = opened["url"]
        first = [named(opened, g, "72.0") for g in "01"]
        assert await asyncio.gather(*(s.ask(url, i) for i in first))
        await s.do(do="open", room="r", rules={"max_groups": 2}, groups=2)
        for n in range(1, 60):
            await s.beat(url, replica_name(opened["token"], "1", f"72.{n}") + ":u")
        code, line = await refusal(s.ask(url, replica_name(opened["token"], "1", "72.99") + ":u"))
        assert (code, line) == (
            "UNAVAILABLE",
            "Holdfast's rendezvous r: group 1 starts too often, or the groups of this room together do: ask again",
        )
        (room,) = (await s.do(do="status"))["rooms"]
        assert len(room["gone"]) <= GROUP_BURST
        assert room["too_often"] >= 60 - GROUP_BURST
        await s.do(do="leave", room="r", member="1")
        assert (await s.ask(url, first[0], 1))[0] == 2, "the other group trains on"

    with_site(tmp_path, scene)


@pytest.mark.slow
def test_a_member_whose_commits_fail_without_end_does_not_write_without_end(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={"min_groups": 1})
        assert opened["ok"]
        host, who = s.service.host("r"), identity("0~72.0")
        host._changes = Bucket(3, 0.001)
        begun_id = host.room.next_id
        waiting = asyncio.create_task(_fail_on(host, who, 50))
        other = await s.do(do="open", room="other", rules={})
        assert (await s.ask(other["url"], named(other, "0")))[0] == 1
        await asyncio.sleep(0.5)
        assert not waiting.done()
        assert host.room.next_id - begun_id <= 3
        waiting.cancel()
        gone = await s.do(do="evict", room="r", member="0", reason="a verdict waits for nothing")
        assert gone["gone"] == ["0~72.0:u"]

    with_site(tmp_path, scene)


@pytest.mark.slow
def test_a_room_that_waited_with_its_decision_decides(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        await s.do(do="open", room="r", rules={"min_groups": 1})
        host = s.service.host("r")
        host._changes = Bucket(1, 2.0)
        await asyncio.wait_for(_fail_on(host, identity("0~72.0"), 4), 60)

    with_site(tmp_path, scene)


def test_quorums_that_are_written_down_have_a_rate() -> None:
    bucket = Bucket(CHANGES_BURST, CHANGES_PER_S)
    written = sum(bucket.take(n / 1000) for n in range(60_000))
    assert CHANGES_BURST < written <= CHANGES_BURST + 60 * CHANGES_PER_S + 1


async def _fail_on(host: RendezvousHost, who: GroupIdentity, steps: int) -> None:
    for step in range(steps):
        await host.ask(member(who, step, commit_failures=1))


# The record


def test_the_record_of_one_room_is_bounded_and_says_what_was_left_out() -> None:
    limit, now_s, kept = RecordLimit(), 0.0, list[RoomEvent]()
    for _ in range(3600):
        now_s += 1.0
        kept += limit.keep([RoomEvent("joined", f"{n}~72.0:u") for n in range(10)], now_s)
    assert len(kept) <= RECORD_BURST + RECORD_PER_HOUR + 3600 / OMITTED_EVERY_S + 1
    said = [event for event in kept if event.kind == "omitted"]
    assert 1 <= len(said) <= 3600 / OMITTED_EVERY_S + 1
    assert said[0].reason.endswith("events left out: more than 2000 an hour")
    assert limit.omitted == 36_000 - (len(kept) - len(said))
    verdict = RoomEvent("evicted", "0~72.0:u", "holdfast[inc1]: node n1")
    assert limit.keep([verdict], now_s)[0] == verdict, "verdicts are counted apart"


def test_a_quorum_of_many_counts_as_many_lines() -> None:
    limit = RecordLimit()
    large = RoomEvent("quorum", members=tuple(f"{n}~72.0:{'u' * 36}" for n in range(4000)))
    kept = [e for _ in range(1000) for e in limit.keep([large], 0.0)]
    assert sum(len("".join(e.members)) for e in kept) < 5_000_000


def test_addresses_and_data_of_many_members_are_bounded_together(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={})
        host = s.service.host("r")
        for n in range(200):
            host.room.heartbeat(identity(f"{n}~72.0"), asyncio.get_running_loop().time())
        url, name = opened["url"], named(opened, "1", "72.0")
        assert (await refusal(_with_data(s, url, name, 10_000)))[0] == "PERMISSION_DENIED"
        alone = await s.do(do="open", room="alone", rules={})
        assert await _with_data(s, alone["url"], named(alone, "1", "72.0"), 10_000)

    with_site(tmp_path, scene)


async def _with_data(s: Site, url: str, name: str, size: int) -> bytes:
    request = messages.QuorumRequest()
    request.requester.replica_id, request.requester.data = name, "x" * size
    answer: bytes = await s.call(url, "Quorum")(request.SerializeToString(), timeout=10)
    return answer


# What the controller reads


def test_brief_views_come_in_pages_that_one_room_does_not_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_PAGE_BYTES", 500)

    async def scene(s: Site) -> None:
        for name in ("a", "b", "c", "d"):
            await s.do(do="open", room=name, rules={})
        room = s.service.host("b").room
        room.gone |= {f"1~{n}.0": GoneMember(Departure.REPLACED, "by a later one") for n in range(100)}
        room.gone["1~7.0:u"] = GoneMember(Departure.LEFT, "")
        pages, after = list[dict[str, Any]](), ""
        while not pages or pages[-1]["more"]:
            pages.append(await s.do(do="status", brief=True, after=after))
            after = pages[-1]["rooms"][-1]["room"]
        assert [r["room"] for page in pages for r in page["rooms"]] == ["a", "b", "c", "d"]
        assert len(pages) > 1
        b = next(r for page in pages for r in page["rooms"] if r["room"] == "b")
        assert set(b) == {"room", "members", "known", "gone", "unwritten"}
        assert len(b["gone"]) == 100, "no single Managers"
        assert len((await s.do(do="status"))["rooms"]) == 4, "an earlier controller gets all at once"

    with_site(tmp_path, scene)


# The end


_SLOW_STORE = """
import sys, time
from holdfast.quorum.__main__ import main
from holdfast.quorum.state import QuorumStore
QuorumStore.prune = lambda *_: time.sleep(300)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_service_ends_promptly_while_its_store_hangs(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _SLOW_STORE, "--store", f"sqlite:///{tmp_path}/h.db"]
    argv += ["--key", f"{tmp_path}/k", "--socket", f"{tmp_path}/quorum.sock"]
    service = Rooms(tmp_path, subprocess.Popen(argv))
    assert service.process is not None
    try:
        eventually((tmp_path / "quorum.sock").exists, within_s=60.0)
        assert service.ask(do="open", room="r", rules={})["ok"]
        service.process.terminate()
        assert service.process.wait(60) == 0
    finally:
        service.stop()


@pytest.mark.slow
def test_a_room_that_is_flooded_holds_up_no_other_and_fills_no_store(tmp_path: Path) -> None:
    """One job's owner sends ever new starts of their groups; another job's heartbeats are received meanwhile, and so is SIGTERM."""
    rooms, stop, sent = Rooms(tmp_path), threading.Event(), [0] * 4

    def flood(opened: OpenRoom, group: int) -> None:
        with grpc.insecure_channel(opened.url.removeprefix("http://")) as channel:
            beat: Any = channel.unary_unary(f"/{messages.SERVICE}/Heartbeat")
            while not stop.is_set():
                sent[group] += 1
                name = replica_name(opened.token, str(group), f"{sent[group]}.0") + ":u"
                with contextlib.suppress(grpc.RpcError):
                    beat(messages.HeartbeatRequest(replica_id=name).SerializeToString(), timeout=30)

    senders: list[threading.Thread] = []
    try:
        rooms.start()
        link = QuorumLink(socket_of(tmp_path))
        mine, theirs = (link.open(name, RoomRules(1, 4, groups=4)) for name in ("job-1-1", "job-2-1"))
        senders = [threading.Thread(target=flood, args=(theirs, group)) for group in range(4)]
        for sender in senders:
            sender.start()
        with Caller(mine, 0, "7.0") as caller:
            assert caller.asking().result()
            while sum(sent) < 1500:
                caller.beat()
                time.sleep(0.05)
        views = {room.name: room for room in link.rooms()}
        assert views["job-1-1"].members == ("0~7.0:u",)
        assert len(views["job-2-1"].gone) < 1000
        happened = [r.kind for r in link.records(0, 10_000) if r.room == "job-2-1"]
        assert 100 < len(happened) <= 2 * 4 * GROUP_BURST + 100
        assert "lost" not in [r.kind for r in link.records(0, 10_000) if r.room == "job-1-1"]
        assert rooms.process is not None
        rooms.process.terminate()
        assert rooms.process.wait(60) == 0
    finally:
        stop.set()
        rooms.stop()
        for sender in senders:
            sender.join()
