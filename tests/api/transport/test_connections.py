"""Which connections are kept: bounds in number and time, which are closed to admit others, and what is shown of them."""

from __future__ import annotations

import logging
import sys
import threading
import time
from dataclasses import replace
from ipaddress import ip_network

import pytest

from holdfast.api.transport.connections import Bounds, Connection, Connections, ConnectionStage, Ended, plain_address
from holdfast.api.transport.server import connections_for
from holdfast.config.sections import ServerSection
from holdfast.descriptors import for_connections, open_files


class Table(Connections):
    """With a test clock, and the connections that were closed."""

    def __init__(self, most: int = 100, per_address: int = 10, proxies: tuple[str, ...] = ()) -> None:
        self.now_s = 1000.0
        self.closed: list[Connection] = []
        bounds = Bounds(most, per_address, proxies=tuple(map(ip_network, proxies)))
        super().__init__(bounds, lambda: self.now_s)

    def take(self, host: str = "10.0.0.1", *, known: bool = False) -> Connection | None:
        taken: list[Connection] = []
        connection = self.admit(host, lambda: self.closed.append(taken[0]))
        if connection is not None:
            taken.append(connection)
            if known:
                self.knows(connection)
        self.now_s += 1
        return connection

    def knows(self, connection: Connection) -> None:
        """Identify the connection as that of an agent without another."""
        self.identified(connection, f"agent/{id(connection)}", agent=True)

    def must(self, host: str = "10.0.0.1", *, known: bool = False) -> Connection:
        connection = self.take(host, known=known)
        assert connection is not None
        return connection


def test_the_oldest_that_is_not_known_makes_room_for_a_new_one() -> None:
    table = Table(most=4)
    known = table.must("10.0.0.1", known=True)
    first, second = table.must("10.0.0.2"), table.must("10.0.0.3")
    for n in range(4, 6):
        table.must(f"10.0.0.{n}")
    assert table.closed == [first]
    table.knows(second)
    table.must("10.0.0.6")
    assert known not in table.closed
    assert second not in table.closed
    assert (table.seen().open, table.seen().known, table.seen().turned_away) == (4, 2, 2)


def test_one_that_is_known_makes_room_for_none() -> None:
    table = Table(most=3)
    known = [table.must(known=True) for _ in range(3)]
    assert table.take() is None
    assert (table.closed, table.ended) == ([], {Ended.FULL: 1})
    table.left(known[0])
    assert table.take() is not None


def test_an_address_has_a_bound_of_its_own() -> None:
    """A job may not keep the agent of its node out, nor any other client."""
    table = Table(per_address=3)
    agent = table.must(known=True)
    jobs = [table.must() for _ in range(2)]
    table.must("10.0.0.2")
    again = table.must()
    assert table.closed == [jobs[0]]
    table.knows(again)
    table.must()
    assert table.closed == jobs
    assert agent not in table.closed
    assert again not in table.closed


def test_an_address_whose_connections_are_all_known_gets_no_more() -> None:
    table = Table(per_address=3)
    for _ in range(3):
        table.must(known=True)
    assert table.take() is None
    assert table.ended == {Ended.ADDRESS_FULL: 1}
    assert table.take("10.0.0.2") is not None


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "::1", "10.1.2.3", "10.9.0.1", "fd00::7", "::ffff:10.1.2.3"]
)
def test_loopback_and_proxies_stand_for_many(host: str) -> None:
    table = Table(per_address=2, proxies=("10.1.2.3", "10.9.0.0/16", "fd00::/64"))
    for _ in range(20):
        table.must(host)
    assert table.closed == []


@pytest.mark.parametrize(
    ("host", "plain"),
    [("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::1"), ("10.0.0.1", "10.0.0.1"), ("", ""), ("odd", "odd")],
)
def test_an_address_is_one_however_it_is_written(host: str, plain: str) -> None:
    assert plain_address(host) == plain


@pytest.mark.parametrize(("agent", "most"), [(True, 16), (False, 256)])
def test_one_token_keeps_no_more_than_it_needs(agent: bool, most: int) -> None:
    """A stolen token took every place, and no connection was left that could be closed for another node's agent."""
    table = Table(most=most + 3, per_address=1000)
    other = table.must("10.0.0.9", known=True)
    flood = [table.must(f"10.0.{n // 200}.{n % 200}") for n in range(1)]
    for n in range(3 * most):
        one = table.must(f"10.0.{n // 200}.{n % 200}")
        flood.append(one)
        table.identified(one, "agent/n2", agent=agent)
    assert table.seen().known == most + 1
    assert table.ended[Ended.OWN_ROOM] == 2 * most
    assert other not in table.closed
    assert table.must("10.0.0.10", known=True) not in table.closed
    for one in flood:
        table.left(one)
    assert table.seen().known == 2


def test_those_that_are_not_known_have_a_bound_of_their_own() -> None:
    """Each takes 0.3 MiB under TLS: as many as there are descriptors would take the head node's memory."""
    table = Table()
    table.bounds = replace(table.bounds, most_unknown=5)
    known = [table.must(f"10.1.0.{n}", known=True) for n in range(20)]
    others = [table.must(f"10.0.0.{n}") for n in range(8)]
    assert table.closed == others[:3]
    assert (table.seen().open, table.seen().known) == (25, 20)
    table.knows(others[-1])
    assert table.take("10.0.0.99") is not None
    assert table.closed == others[:3]
    assert not set(known) & set(table.closed)
    assert Bounds(49_152).most_unknown * 0.3 < 1024


def test_a_new_one_has_the_time_to_send_its_token() -> None:
    """However many come after it: with a bound of 4, all that came within a quarter of a second stay, and others may try again."""
    table = Table(most=4, per_address=3)
    began_s = table.now_s
    for _ in range(3):
        table.must()
        table.now_s = began_s
    assert table.take() is None
    table.now_s = began_s
    other = table.must("10.0.0.2")
    table.now_s = began_s + 0.2
    assert table.take("10.0.0.3") is None
    assert (table.closed, table.ended) == ([], {Ended.ADDRESS_FULL: 1, Ended.FULL: 1})
    table.now_s = began_s + 0.3
    assert table.take("10.0.0.3") is not None
    assert len(table.closed) == 1
    assert other not in table.closed


def test_what_is_gone_is_no_longer_counted() -> None:
    table = Table(most=5, per_address=2)
    for n in range(50):
        one = table.must(known=bool(n % 2))
        table.left(one)
        table.left(one)
    assert (table.seen().open, table.seen().known, table.closed, table.ended) == (0, 0, [], {})
    table.knows(one)
    assert table.seen().known == 0


@pytest.mark.parametrize(
    ("stage", "lasts_s", "ended"),
    [
        (ConnectionStage.HEAD, 10.0, Ended.HEAD_LATE),
        (ConnectionStage.BODY, 30.0, Ended.BODY_LATE),
        (ConnectionStage.IDLE, 80.0, Ended.IDLE),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_each_stage_ends_in_time(stage: ConnectionStage, lasts_s: float, ended: Ended, known: bool) -> None:
    table = Table()
    one = table.must(known=known)
    table.now_s += 5
    table.enter(one, stage, "request")
    for _ in range(20):
        table.now_s += (lasts_s - 1) / 20
        table.enter(one, stage, "request")  # more bytes of the same request are no progress
        table.sweep()
    assert table.closed == []
    table.now_s += 1
    table.sweep()
    assert (table.closed, table.ended, table.seen().open) == ([one], {ended: 1}, 0)


def test_an_answer_to_a_stranger_ends_in_time_unless_it_is_being_sent() -> None:
    table = Table()
    one, known = table.must(), table.must()
    for each in (one, known):
        each.paused = lambda: True  # it has sent more requests, which wait
        table.enter(each, ConnectionStage.ANSWERING, 1)
    table.knows(known)
    for _ in range(2):
        table.now_s += 61
        one.sent_bytes += 1
        table.sweep()
    assert table.closed == []
    table.now_s += 61
    table.sweep()
    assert (table.closed, table.ended) == ([one], {Ended.ANSWER_LATE: 1})


def test_an_answer_may_take_its_time_and_the_next_request_has_its_own() -> None:
    table = Table()
    one = table.must(known=True)
    table.enter(one, ConnectionStage.ANSWERING, 1)
    table.now_s += 3600
    table.sweep()
    table.enter(one, ConnectionStage.HEAD, 1)
    table.now_s += 9
    table.enter(one, ConnectionStage.HEAD, 2)
    table.now_s += 9
    table.sweep()
    assert table.closed == []


def test_an_answer_that_is_not_read_ends_it_unless_it_goes_on() -> None:
    table = Table()
    one = table.must()
    table.enter(one, ConnectionStage.HEAD, 1)  # the next one, behind the answer
    one.paused = lambda: True
    one.sent_bytes += 1000
    table.unread(one, unread=True)
    for _ in range(2):
        table.now_s += 31
        one.sent_bytes += 1
        table.sweep()
    assert table.closed == []
    table.now_s += 31
    table.sweep()
    assert (table.closed, table.ended) == ([one], {Ended.UNREAD: 1})


def test_what_is_not_read_from_is_not_late() -> None:
    table = Table()
    one, paused = table.must(), [True, False]
    one.paused = lambda: paused.pop(0)
    table.enter(one, ConnectionStage.BODY, 1)
    table.now_s += 31
    table.sweep()
    table.now_s += 29
    table.sweep()
    assert table.closed == []
    table.now_s += 2
    table.sweep()
    assert table.ended == {Ended.BODY_LATE: 1}


def test_an_idle_one_that_still_takes_its_answer_stays() -> None:
    table = Table()
    one = table.must()
    one.sent_bytes = 1000
    table.enter(one, ConnectionStage.IDLE, 1)
    for _ in range(3):
        table.now_s += 81
        one.sent_bytes += 1
        table.sweep()
    assert table.closed == []
    table.now_s += 81
    table.sweep()
    assert table.ended == {Ended.IDLE: 1}


def test_an_answer_that_was_read_in_time_is_none_of_these() -> None:
    table = Table()
    one = table.must(known=True)
    table.enter(one, ConnectionStage.ANSWERING, 1)
    table.unread(one, unread=True)
    table.unread(one, unread=False)
    table.now_s += 3600
    table.sweep()
    assert table.closed == []


def test_a_flood_is_a_line_a_minute_and_is_shown_for_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    table = Table(most=10, per_address=5)
    for n in range(120):
        at_s = table.now_s
        for m in range(50):
            table.take("10.6.6.6")
            table.now_s = at_s + m / 50
        table.take(f"10.0.{n}.1")
        table.now_s = at_s + 1
        table.sweep()
    lines = [r.getMessage() for r in caplog.records]
    assert len(lines) == 2
    assert "address=10.6.6.6" in lines[0]
    assert "address_full=" in lines[0]
    assert "made_room=" in lines[0]
    assert (table.seen().address, table.seen().most) == ("10.6.6.6", 10)
    assert table.seen().turned_away > 5000
    table.now_s += 700
    assert (table.seen().turned_away, table.seen().address) == (0, "")


def test_a_flood_from_everywhere_is_remembered_in_few_words() -> None:
    table = Table(most=10)
    for n in range(5000):
        table.take(f"10.1.{n // 250}.{n % 250}")
        table.now_s = 1000.0 + n / 5000
    assert table.seen().turned_away == 4990
    assert sum(len(addresses) for _, addresses in table._recent) <= 1001


def test_the_settings_bound_them_and_so_do_the_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    room = for_connections(open_files())
    assert connections_for(ServerSection()).bounds == Bounds(room, 256)
    assert caplog.records == []
    section = ServerSection(max_connections=10**8, max_connections_per_address=9, proxies=("10.0.0.0/8", "fd00::1"))
    networks = (ip_network("10.0.0.0/8"), ip_network("fd00::1"))
    assert connections_for(section).bounds == Bounds(room, 9, proxies=networks)
    assert "event=max_connections_lowered" in caplog.text
    assert connections_for(ServerSection(max_connections=50)).bounds.most == 50


@pytest.mark.parametrize(
    ("limit", "most"), [(256, 128), (1024, 512), (4096, 3072), (20_000, 15_000), (65_536, 49_152), (1, 1)]
)
def test_descriptors_are_left_for_everything_else(limit: int, most: int) -> None:
    assert for_connections(limit) == most


@pytest.mark.slow
def test_what_was_turned_away_is_told_while_others_are_turned_away() -> None:
    """`/v1/status` and `/metrics` are made in a thread: in a flood from many addresses they failed with "dictionary changed size"."""
    table, over, failed = Connections(Bounds(1), time.monotonic), threading.Event(), []

    def read() -> None:
        while not over.is_set():
            try:
                table.seen()
            except RuntimeError as error:
                failed.append(str(error))

    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        table.admit("10.0.0.1", lambda: None)
        for n in range(900):
            table.admit(f"10.1.{n // 250}.{n % 250}", lambda: None)
            time.sleep(0.0002)
    finally:
        over.set()
        reader.join()
        sys.setswitchinterval(before_s)
    assert failed == []
