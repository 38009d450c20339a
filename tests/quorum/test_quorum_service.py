"""The service with real gRPC clients, in one process: authentication, long calls, the controller's port, a restart."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import Unavailable
from holdfast.quorum import service
from holdfast.quorum.__main__ import main
from holdfast.quorum.service import read_key
from holdfast.quorum.state import QuorumStore, StoredRendezvous
from support.quorum_site import Site, named, refusal, with_site


def test_groups_meet_and_an_eviction_frees_the_others_at_once(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="job-7", rules={"min_groups": 3})
        url, ids = opened["url"], [named(opened, g) for g in "012"]
        assert await asyncio.gather(*(s.ask(url, i) for i in ids)) == [(1, ids)] * 3
        await s.do(do="open", room="job-7", rules={"min_groups": 1})
        others = [asyncio.create_task(s.ask(url, i, 1)) for i in ids[:2]]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in others)
        begun_s = time.monotonic()
        gone = await s.do(do="evict", room="job-7", member="2", reason="node n2: gpu.xid 79")
        assert gone == {"ok": True, "gone": ["2~a:u"]}
        assert await asyncio.gather(*others) == [(2, ids[:2])] * 2
        assert time.monotonic() - begun_s < 5.0
        line = "Holdfast's rendezvous job-7: 2~a:u cannot come back: evicted (node n2: gpu.xid 79)"
        assert await refusal(s.ask(url, ids[2])) == ("PERMISSION_DENIED", line)
        happened = (await s.do(do="events"))["events"]
        assert [e["kind"] for e in happened] == ["joined"] * 3 + ["quorum", "evicted", "quorum"]
        assert (happened[-1]["quorum_id"], happened[-1]["step"], happened[-1]["members"]) == (2, 1, ["0~a:u", "1~a:u"])
        (room,) = (await s.do(do="status"))["rooms"]
        assert (room["quorum_id"], room["members"], room["asking"], room["unwritten"]) == (
            2,
            ["0~a:u", "1~a:u"],
            [],
            "",
        )

    with_site(tmp_path, scene)


def test_who_waits_is_told_when_it_is_evicted(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={"min_groups": 2})
        waiting = asyncio.create_task(s.ask(opened["url"], named(opened, "0")))
        await asyncio.sleep(0.05)
        await s.do(do="evict", room="r", member="0", reason="drain")
        assert (await refusal(_of(waiting)))[0] == "PERMISSION_DENIED"

    with_site(tmp_path, scene)


def test_calls_that_repeat_each_other_all_get_the_answer(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={"min_groups": 2})
        ids = [named(opened, g) for g in "01"]
        given_up, *repeated = [asyncio.create_task(s.ask(opened["url"], ids[0], n)) for n in (4, 5, 4)]
        await asyncio.sleep(0.05)
        given_up.cancel()
        await asyncio.sleep(0.05)
        assert await s.ask(opened["url"], ids[1], 5) == (1, ids)
        assert await asyncio.gather(*repeated) == [(1, ids)] * 2
        (room,) = (await s.do(do="status"))["rooms"]
        assert (room["step"], room["asking"]) == (5, [])

    with_site(tmp_path, scene)


def test_who_waits_when_the_service_stops_is_told_to_ask_again(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={"min_groups": 2})
        waiting = asyncio.create_task(s.ask(opened["url"], named(opened, "0")))
        await asyncio.sleep(0.05)
        await s.service.stop()
        assert (await refusal(_of(waiting)))[0] == "UNAVAILABLE"

    with_site(tmp_path, scene)


async def _of(task: asyncio.Task[Any]) -> Any:
    return await task


def test_a_forged_token_gets_one_clear_line_and_delays_nobody(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened, other = await s.do(do="open", room="a"), await s.do(do="open", room="b")
        await s.beat(opened["url"], named(other, "1"))
        code, line = await refusal(s.ask(opened["url"], named(other, "1")))
        assert code == "UNAUTHENTICATED"
        assert line == (
            "Holdfast's rendezvous a: the token of group 1 is not this job's: HOLDFAST_QUORUM_TOKEN is wrong or of another job"
        )
        assert (await refusal(s.ask(opened["url"], "stock:u")))[0] == "UNAUTHENTICATED"
        assert await s.ask(opened["url"], named(opened, "0")) == (1, [named(opened, "0")])
        await s.beat(opened["url"], named(other, "0") + "!leave")
        assert (await s.do(do="status", room="a"))["rooms"][0]["gone"] == {}
        garbage = s.call(opened["url"], "Quorum")(b"\xff\xff", timeout=5)
        assert (await refusal(_call(garbage)))[0] == "INVALID_ARGUMENT"

    with_site(tmp_path, scene)


async def _call(call: Any) -> Any:
    return await call


def test_a_room_that_knows_its_nodes_takes_stock_names(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        ours = await s.do(do="open", room="titan", addresses=["127.0.0.1"])
        assert ours["needs_token"] is False
        assert await s.ask(ours["url"], "torchtitan_ft_0:u") == (1, ["torchtitan_ft_0:u"])
        far = await s.do(do="open", room="far", addresses=["192.0.2.1"])
        code, line = await refusal(s.ask(far["url"], "torchtitan_ft_0:u"))
        assert (code, line.endswith("127.0.0.1 belongs to no node of this job")) == ("UNAUTHENTICATED", True)

    with_site(tmp_path, scene)


def test_a_leave_over_the_lighthouse_protocol(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={"min_groups": 2})
        ids = [named(opened, g) for g in "01"]
        await asyncio.gather(*(s.ask(opened["url"], i) for i in ids))
        await s.do(do="open", room="r", rules={"min_groups": 1})
        await s.beat(opened["url"], ids[1] + "!leave")
        assert await s.ask(opened["url"], ids[0], 1) == (2, ids[:1])

    with_site(tmp_path, scene)


def test_an_observer_sees_the_members_at_once_and_counts_as_nobody(tmp_path: Path) -> None:
    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={"min_groups": 2})
        url, ids = opened["url"], [named(opened, g) for g in "012"]
        assert await s.ask(url, ids[2] + "!observe") == (0, [])
        assert await asyncio.gather(*(s.ask(url, i) for i in ids[:2])) == [(1, ids[:2])] * 2
        assert await s.ask(url, ids[2] + "!observe") == (1, ids[:2])
        (room,) = (await s.do(do="status"))["rooms"]
        assert (room["asking"], [e["kind"] for e in (await s.do(do="events"))["events"]]) == (
            [],
            ["joined", "joined", "quorum"],
        )
        other = await s.do(do="open", room="other")
        assert (await refusal(s.ask(url, named(other, "2") + "!observe")))[0] == "UNAUTHENTICATED"
        await s.do(do="evict", room="r", member="2~a", reason="drain")
        assert (await refusal(s.ask(url, ids[2] + "!observe")))[0] == "PERMISSION_DENIED"

    with_site(tmp_path, scene)


def test_a_restart_keeps_port_token_members_and_fences(tmp_path: Path) -> None:
    kept: dict[str, Any] = {}

    async def before(s: Site) -> None:
        kept.update(await s.do(do="open", room="r", rules={"min_groups": 3}))
        await asyncio.gather(*(s.ask(kept["url"], named(kept, g)) for g in "012"))
        await s.do(do="open", room="r", rules={"min_groups": 1})
        await s.do(do="evict", room="r", member="2", reason="drain")
        await s.do(do="spare", room="r", group="9")

    async def after(s: Site) -> None:
        assert s.service.rooms() == ("r",)
        assert await s.do(do="open", room="r") == kept
        with_last = await asyncio.gather(*(s.ask(kept["url"], named(kept, g)) for g in "01"))
        assert [quorum_id for quorum_id, _members in with_last] == [2, 2]
        assert (await refusal(s.ask(kept["url"], named(kept, "2"))))[0] == "PERMISSION_DENIED"
        assert (await s.do(do="status"))["rooms"][0]["spares"] == ["9"]
        await s.do(do="close", room="r")
        assert (await s.do(do="status"))["rooms"] == []
        anew = await s.do(do="open", room="r")
        assert anew["token"] != kept["token"], "a later job of this name is not the former one's"
        assert (await refusal(s.ask(anew["url"], named(kept, "0"))))[0] == "UNAUTHENTICATED"
        await s.do(do="close", room="r")
        assert (await s.do(do="events", room="r"))["events"]

    with_site(tmp_path, before)
    with_site(tmp_path, after)


@pytest.mark.slow
def test_nobody_is_told_of_a_quorum_that_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = QuorumStore.save
    away = [True]

    def failing(self: QuorumStore, kept: StoredRendezvous, happened: Any = ()) -> None:
        if away[0]:
            raise Unavailable("the store does not answer: disk full")
        save(self, kept, happened)

    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r")
        monkeypatch.setattr(QuorumStore, "save", failing)
        task = asyncio.create_task(s.ask(opened["url"], named(opened, "0")))
        await asyncio.sleep(0.2)
        assert not task.done()
        assert (await s.do(do="status"))["rooms"][0]["unwritten"].endswith("disk full")
        refused = await s.do(do="evict", room="r", member="5~x", reason="drain")
        assert (refused["ok"], refused["kind"]) == (False, "Unavailable")
        away[0] = False
        assert (await task)[0] == 1

    with_site(tmp_path, scene)


def test_while_nothing_changes_the_database_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise Unavailable("away")

    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r")
        await s.ask(opened["url"], named(opened, "0"))
        monkeypatch.setattr(QuorumStore, "save", failing)
        monkeypatch.setattr(QuorumStore, "record", failing)
        assert [await s.ask(opened["url"], named(opened, "0"), n) for n in (1, 2)] == [(1, [named(opened, "0")])] * 2
        await s.beat(opened["url"], named(opened, "7"))  # a newcomer is only worth a record
        assert (await s.ask(opened["url"], named(opened, "0"), 3))[0] == 1

    with_site(tmp_path, scene)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"do": "dance"}, "do is one of open, close, evict"),
        ({"do": "open", "room": "../x"}, "a rendezvous' name"),
        ({"do": "open"}, "room is missing"),  # word: the service's answer
        ({"do": "open", "room": "r", "rules": {"min": 1}}, "rules: min is not a number, or unknown"),
        ({"do": "open", "room": "r", "rules": {"min_groups": 1.5}}, "rules: min_groups"),
        ({"do": "open", "room": "r", "rules": {"min_groups": 5, "max_groups": 4}}, "1 <= min_groups <= max_groups"),
        ({"do": "open", "room": "r", "rules": {"heartbeat_timeout_s": 0.01}}, "heartbeat_timeout_s lies"),
        ({"do": "open", "room": "r", "addresses": ["n1"]}, "addresses: 'n1'"),
        ({"do": "evict", "room": "nope", "member": "0", "reason": "x"}, "there is no room nope"),
        ({"do": "evict", "room": "r", "member": "0"}, "reason is missing"),
        ({"do": "events", "after_id": "x"}, "after_id is a number"),
    ],
)
def test_a_wrong_word_from_the_controller_gets_one_line(tmp_path: Path, asked: dict[str, Any], says: str) -> None:
    async def scene(s: Site) -> None:
        answer = await s.do(**asked)
        assert answer["ok"] is False
        assert says in answer["error"]
        assert s.service.rooms() == ()

    with_site(tmp_path, scene)


def test_the_door_is_for_named_users_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(s: Site) -> None:
        assert stat.S_IMODE((tmp_path / "q.sock").stat().st_mode) == 0o600
        monkeypatch.setattr(s.control, "_users", frozenset({os.getuid() + 1}))
        answer = await s.do(do="status")
        assert answer == {"ok": False, "error": f"user {os.getuid()} may not speak to the quorum service"}

    with_site(tmp_path, scene)


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    key = read_key(tmp_path / "key")
    assert (len(key), read_key(tmp_path / "key")) == (32, key)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    (tmp_path / "key").write_bytes(b"short")
    made = read_key(tmp_path / "key")
    assert len(made) == 32
    assert made != key
    assert [p.read_bytes() for p in tmp_path.glob("key.unreadable-*")] == [b"short"]


def test_a_service_that_cannot_start_says_why_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for argv, status in (
        (["--store", f"sqlite:///{tmp_path}/none/x.db", "--key", str(tmp_path / "k")], 2),
        (["--store", f"sqlite:///{tmp_path}/x.db", "--key", f"{tmp_path}/none/k"], 1),
        (["--key", str(tmp_path / "k")], 1),
    ):
        assert main(argv) == status
        assert capfd.readouterr().err.count("\n") == 1


def test_a_second_service_with_the_same_key_does_not_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "key"
    read_key(key)
    with key.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main(["--store", f"sqlite:///{tmp_path}/x.db", "--key", str(key), "--socket", str(tmp_path / "s")]) == 1
    assert capfd.readouterr().err == f"holdfast quorum: another quorum service runs with {key}\n"


def _raw(url: str, first: bytes = b"") -> socket.socket:
    """A connection of any client, which sends nothing or only the start of HTTP/2."""
    made = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 5)
    made.sendall(first)
    made.setblocking(False)
    return made


def _alive(made: socket.socket) -> bool:
    try:
        while made.recv(4096):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@pytest.mark.slow
@pytest.mark.parametrize("first", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"], ids=["silent", "idle"])
def test_connections_of_anybody_are_bounded_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    """A rendezvous's members, the other jobs and the controller continue meanwhile; later clients are admitted when these have ended."""
    monkeypatch.setattr(service, "_MOST_CONNECTIONS", 20)
    monkeypatch.setattr(service, "_FEWEST_CONNECTIONS", 20)
    brief = {"grpc.server_handshake_timeout_ms": 3000, "grpc.max_connection_idle_ms": 3000}
    monkeypatch.setattr(service, "_OPTIONS", tuple((k, brief.get(k, v)) for k, v in service._OPTIONS))

    async def scene(s: Site) -> None:
        opened = await s.do(do="open", room="r", rules={"min_groups": 1})
        other = await s.do(do="open", room="other", rules={"min_groups": 1})
        url, member = opened["url"], named(opened, "0")
        assert await s.ask(url, member) == (1, [member])
        with ExitStack() as anybody:
            attack = [anybody.enter_context(_raw(url, first)) for _ in range(60)]
            await asyncio.sleep(1)
            assert 0 < sum(map(_alive, attack)) <= 20
            assert await s.ask(url, member, 1) == (1, [member])
            assert (await s.ask(other["url"], named(other, "0")))[0] == 1
            assert (await s.do(do="status"))["ok"] is True
            until_s = time.monotonic() + 20
            while any(map(_alive, attack)):
                assert time.monotonic() < until_s
                await s.beat(url, member)
                await asyncio.sleep(0.1)
            late = _raw(url, first)
            anybody.enter_context(late)
            await asyncio.sleep(0.2)
            assert _alive(late)

    with_site(tmp_path, scene)


def test_each_further_room_has_fewer_so_that_all_have_descriptors() -> None:
    left, given = 49_152, []
    for _ in range(100):
        given.append(service.room_connections(left))
        left -= given[-1]
    assert given[0] == 4096
    assert given[-1] == 64
    assert given == sorted(given, reverse=True)
    assert sum(given) < 65_536 - 8192
