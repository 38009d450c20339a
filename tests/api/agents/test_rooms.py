"""A group's agent asks for its rendezvous: the real application, and once a real quorum service behind it."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.kit.rooms import Rooms

from holdfast.api.callers.quota import LIMITS, Load
from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.model.book import Book, World
from holdfast.model.elastic_jobs.room_names import RoomName
from holdfast.model.elastic_jobs.rooms import OpenRoom, RoomRules
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import JobKey
from holdfast.quorum.nouns import MemberRefused
from support.rooms import BASE, T0, Caller, MemoryRooms, four_groups, group_job, socket_of, view_of

ROOM = RoomName(BASE, int((T0 - timedelta(minutes=2)).timestamp())).text
ASKED = {"job_id": 72, "uid": 1001, "restarts": 0}


@pytest.fixture
def rooms(served: Any) -> MemoryRooms:
    """Four groups run, and there is a quorum service."""
    made = MemoryRooms()
    served.world = World(T0, Policy(), Book(), view_of(*four_groups()))
    served.deps.rooms = made
    return made


def ask(served: Any, who: str = "n1", **changed: Any) -> tuple[int, dict[str, Any]]:
    answer = served.call("POST", "/v1/agent/room", who, json={**ASKED, **changed})
    return answer.status_code, answer.json()


def test_a_group_is_told_its_room(
    served: Any, rooms: MemoryRooms, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    status, told = ask(served)
    token = told.pop("token")
    assert (status, told) == (
        200,
        {
            "room": ROOM,
            "url": "http://head:40017",
            "group": 0,
            "start": "72.0",
            "min": 2,
            "max": 4,
            "sizes": [2, 3, 4],
            "spares": 0,
        },
    )
    assert ask(served, "n2", job_id=BASE)[1]["token"] == token
    assert len(token) == 64
    assert token not in caplog.text
    assert token not in repr(OpenRoom("u", token))
    assert all(token.encode() not in file.read_bytes() for file in tmp_path.iterdir())


def test_a_room_lets_those_groups_in_that_slurm_shows(served: Any, rooms: MemoryRooms) -> None:
    room = ask(served)[1]["room"]
    rooms.meet(room, "3~81.0:u")
    for name in ("4~82.0:u", "0~word:u"):
        with pytest.raises(MemberRefused):
            rooms.meet(room, name)


def test_a_job_with_the_id_of_an_earlier_one_is_told_its_own_room(served: Any, rooms: MemoryRooms) -> None:
    told = ask(served)[1]
    rooms.meet(told["room"], "0~72.0:a")
    later = T0 + timedelta(days=1)
    key = JobKey("practice", 72, later - timedelta(seconds=9))
    again = group_job(72, key=key, start_time=later - timedelta(seconds=8), uid=1002)
    served.world = World(later, Policy(), Book(), view_of(again, at=later))
    status, theirs = ask(served, uid=1002)
    assert status == 200
    assert theirs["room"] == RoomName(BASE, key.submitted_s).text
    assert theirs["token"] != told["token"]
    assert rooms.rooms()[0].known == ("0~72.0:a",)


def test_a_job_that_began_under_the_release_before_goes_on_where_it_is(served: Any, rooms: MemoryRooms) -> None:
    rooms.open(RoomName(BASE).text, RoomRules(2, 4))
    rooms.meet(RoomName(BASE).text, "1~71.0:b")
    assert ask(served)[1]["room"] == RoomName(BASE).text


@pytest.mark.parametrize(
    ("asked", "who", "status"),
    [
        ({}, "op", 403),
        ({}, None, 401),
        ({"job_id": "72"}, "n1", 422),
        ({"job_id": 0}, "n1", 422),
        ({"restarts": True}, "n1", 422),
        ({"uid": -1}, "n1", 422),
        ({"uid": 1002}, "n1", 404),
        ({}, "n2", 409),
        ({"job_id": 99}, "n1", 409),
    ],
)
def test_who_is_not_told(served: Any, rooms: MemoryRooms, asked: Any, who: str | None, status: int) -> None:
    looked: list[int] = []
    served.deps.look = looked.append
    got, body = ask(served, who, **asked)  # type: ignore[arg-type]
    assert (got, set(body["error"])) == (status, {"code", "message", "field"})
    assert (body.get("retry") is True, bool(looked)) == (status == 409, status == 409)
    assert rooms.calls == []


@pytest.mark.parametrize("restarts", [2, 2**31 - 1])
def test_a_run_that_cannot_be_next_has_slurm_not_read(served: Any, rooms: MemoryRooms, restarts: int) -> None:
    looked: list[int] = []
    served.deps.look = looked.append
    status, body = ask(served, restarts=restarts)
    assert (status, body["retry"], looked) == (409, True, [])


def test_questions_for_rooms_are_limited_for_each_node(served: Any, rooms: MemoryRooms) -> None:
    looked: list[int] = []
    served.deps.look = looked.append

    async def flood(client: httpx.AsyncClient) -> None:
        statuses = [
            (await client.post("/v1/agent/room", json={**ASKED, "job_id": 99})).status_code
            for _ in range(int(LIMITS[Load.ROOMS].burst) + 5)
        ]
        assert statuses == [409] * int(LIMITS[Load.ROOMS].burst) + [429] * 5

    served.run(flood, "n1")
    assert len(looked) == LIMITS[Load.ROOMS].burst
    assert ask(served, "n2", job_id=BASE)[0] == 200


def test_a_job_of_another_kind_is_told_what_it_lacks(served: Any, rooms: MemoryRooms) -> None:
    served.world = replace(served.world, view=view_of(group_job(72, comment="holdfast")))
    status, body = ask(served)
    assert (status, body["error"]["code"]) == (404, "not_found")
    assert body["error"]["message"] == "job 72 is not elastic: its comment declares no elastic=MIN:MAX"


@pytest.mark.parametrize("trouble", ["no world", "old view", "standby", "no service", "service away"])
def test_while_nothing_can_be_said(served: Any, rooms: MemoryRooms, trouble: str) -> None:
    if trouble == "no world":
        served.world = None
    elif trouble == "old view":
        served.world = replace(served.world, now=T0.replace(minute=5))
    elif trouble == "standby":
        served.deps.leader = lambda: False
    elif trouble == "no service":
        served.deps.rooms = None
    rooms.away = trouble == "service away"
    status, body = ask(served)
    assert (status, body["error"]["code"]) == (503, "unavailable")


@pytest.mark.slow
def test_what_was_told_opens_the_real_room(served: Any, rooms: MemoryRooms, tmp_path: Path) -> None:
    service = Rooms(tmp_path)
    try:
        service.start()
        served.deps.rooms = QuorumLink(socket_of(tmp_path))
        told = [ask(served, who, job_id=number)[1] for who, number in (("n1", 72), ("n2", BASE))]
        opened = OpenRoom(told[0]["url"], told[0]["token"])
        with Caller(opened, 0, told[0]["start"]) as first, Caller(opened, 1, told[1]["start"]) as second:
            calls = [first.asking(), second.asking()]
            assert all(call.result() for call in calls)
        (room,) = service.ask(do="status")["rooms"]
        assert (room["room"], room["rules"]["min_groups"], room["rules"]["max_groups"]) == (ROOM, 2, 4)
        assert room["members"] == ["0~72.0:u", "1~71.0:u"]
        served.deps.rooms = QuorumLink(tmp_path / "gone.sock")
        assert ask(served)[0] == 503
    finally:
        service.stop()
