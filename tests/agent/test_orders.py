"""Orders: recorded before they are carried out, at most once, only where and when they are meant."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from holdfast.agent.findings.trust import Weighed
from holdfast.agent.node.processes import SlurmNode, handles, start_ticks
from holdfast.agent.orders import orders as orders_module
from holdfast.agent.orders import verbs
from holdfast.agent.orders.orders import OrderBook, OrderHandler, OrderResult, Orders, ReceivedOrder, refusal
from holdfast.agent.orders.save_signals import SAVE_SIGNALS, SaveSignals
from holdfast.agent.sending import answers
from holdfast.agent.sending.client import ControllerClient, Controllers
from holdfast.agent.sending.memory import AgentMemory
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.agent.sending.sender import SenderIdentity
from holdfast.agent.sources.neighbours import NeighbourProbes
from holdfast.model.errors import Rejected, Unavailable
from holdfast_checks.known import all_checks
from holdfast_checks.result import Result, Severity
from support.agent_bench import FakeController

ME = SenderIdentity("n1", "i-0abc", "boot-1")


def raw(order_id: str = "o1", verb: str = "note", **more: object) -> dict[str, Any]:
    return {
        "id": order_id,
        "verb": verb,
        "args": {},
        "boot_id": "boot-1",
        "instance_id": "i-0abc",
        "expires_s": 30,
        **more,
    }


def order(verb: str, **args: object) -> ReceivedOrder:
    return ReceivedOrder("o1", verb, args, "", "", time.monotonic() + 60)


class Desk:
    """Orders with one verb that records its calls."""

    def __init__(self, folder: Path, url: str = "http://127.0.0.1:1") -> None:
        self.done: list[str] = []
        self.items: list[OutboxItem] = []
        self.changed = threading.Condition()
        self.memory = AgentMemory(folder)
        self.handlers: dict[str, OrderHandler] = {"note": self._note}
        self.orders = Orders(
            ControllerClient(Controllers((url,)), None, None), self.memory, ME, self.handlers, self._report
        )

    def _note(self, order: ReceivedOrder) -> OrderResult:
        if order.args.get("bug"):
            raise ZeroDivisionError("a bug")
        if order.args.get("fail"):
            raise Unavailable("scontrol did not answer")
        self.done.append(order.id)
        return OrderResult(True, "noted", {"n": len(self.done)})

    def _report(self, item: OutboxItem) -> None:
        with self.changed:
            self.items.append(item)
            self.changed.notify_all()

    def outcomes(self, count: int) -> list[tuple[str, bool, str]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.items) >= count, 3)
        return [(item.body["order_id"], item.body["ok"], item.body["summary"]) for item in self.items]


def test_an_order_is_carried_out_once_however_often_it_comes(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert [desk.orders.take(raw()) for _ in range(3)] == [True, False, False]
    assert desk.outcomes(1) == [("o1", True, "noted")]
    again = Desk(tmp_path)
    assert not again.orders.take(raw())
    assert (desk.done, again.done) == (["o1"], [])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"boot_id": "boot-0"}, "meant for boot boot-0"),
        ({"instance_id": "i-old"}, "meant for instance i-old"),
        ({"expires_s": 0}, "expired"),
        ({"verb": "reset_gpu"}, "unsupported verb 'reset_gpu'; this agent knows note"),
    ],
)
def test_an_order_for_another_boot_machine_or_time_is_refused_and_said(tmp_path: Path, more: Any, why: str) -> None:
    desk = Desk(tmp_path)
    desk.orders.take(raw(**more))
    ((_id, ok, summary),) = desk.outcomes(1)
    assert not ok
    assert summary.startswith("refused: ")
    assert why in summary
    assert desk.done == []


def test_what_users_can_hold_up_takes_no_place_of_the_orders_that_heal_the_node(tmp_path: Path) -> None:
    """Four failed jobs, each with its output on a file system that does not answer: the node carried out no order any more."""
    gate = threading.Event()

    def hangs(_order: ReceivedOrder) -> OrderResult:
        gate.wait(20)
        return OrderResult(True, "read")

    desk = Desk(tmp_path)
    desk.handlers |= {"read_job_output": hangs, "survey_checkpoints": hangs, "collect_stacks": hangs}
    for number in range(3):
        for verb in ("read_job_output", "survey_checkpoints", "collect_stacks"):
            desk.orders.take(raw(f"{verb}{number}", verb))
    desk.orders.take(raw("heals"))
    assert desk.outcomes(1) == [("heals", True, "noted")]
    gate.set()
    assert len(desk.outcomes(10)) == 10


def test_an_empty_boot_id_means_any_boot(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.orders.take(raw(boot_id="", instance_id=""))
    assert desk.outcomes(1) == [("o1", True, "noted")]


def test_a_failing_verb_is_an_outcome(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.orders.take(raw(args={"fail": True}))
    assert desk.outcomes(1) == [("o1", False, "Unavailable: scontrol did not answer")]
    desk.orders.take(raw("o2", args={"bug": True}))
    assert desk.outcomes(2)[1] == ("o2", False, "the verb itself failed: ZeroDivisionError: a bug")


def test_an_order_cut_short_by_the_agents_death_is_reported_and_not_repeated(tmp_path: Path) -> None:
    code = (
        "import os, sys, signal; from pathlib import Path; from holdfast.agent.sending.memory import AgentMemory;"
        "from holdfast.agent.orders.orders import OrderBook; OrderBook(AgentMemory(Path(sys.argv[1]))).remember('o1');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert died.returncode == -signal.SIGKILL
    desk = Desk(tmp_path)
    desk.orders.start()
    ((order_id, ok, summary),) = desk.outcomes(1)
    assert (order_id, ok) == ("o1", False)
    assert "not retried" in summary
    assert not desk.orders.take(raw())
    assert desk.done == []
    desk.orders.stop()


def test_nothing_is_done_that_cannot_be_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path)

    def refuse(**_options: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(desk.memory, "transaction", refuse)
    assert not desk.orders.take(raw())
    assert (desk.done, desk.items) == ([], [])


@pytest.mark.parametrize("bad", [{}, {"id": "x"}, raw(args=[1]), raw(expires_s="soon"), raw(order_id="")])
def test_what_is_no_order_is_passed_over(tmp_path: Path, bad: dict[str, Any]) -> None:
    assert not Desk(tmp_path).orders.take(bad)


@pytest.mark.parametrize(
    "bad",
    [
        raw(expires_s=10**400),
        raw(expires_s=float("nan")),
        raw(expires_s=float("inf")),
        raw(expires_s=True),
        {**raw(), "verb": ["note"]},
        raw(boot_id={"a": 1}),
        {**raw(), "id": 7},
    ],
)
def test_no_number_or_kind_of_value_ends_the_thread_that_asks(tmp_path: Path, bad: dict[str, Any]) -> None:
    desk = Desk(tmp_path)
    assert not desk.orders.take(bad)
    assert desk.orders.take(raw())
    assert desk.outcomes(1) == [("o1", True, "noted")]


def test_a_flood_of_what_is_no_order_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(tmp_path)
    for number in range(1000):
        desk.orders.take({f"a\nb{number}" * 100: 1})
    assert [len(each.getMessage()) < 300 for each in caplog.records] == [True]


@pytest.mark.slow
def test_answers_that_no_controller_gives_leave_the_next_one_to_be_read(
    tmp_path: Path, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endless nesting, and an endless number: both ended the thread, and so the agent, repeatedly."""
    desk = Desk(tmp_path, controller.url)
    bodies = [
        b'{"orders":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"orders":[{"id":"x","verb":"note","expires_s":1' + b"0" * 400 + b"}]}",
    ]
    read = answers.read
    monkeypatch.setattr(answers, "read", lambda response: bodies.pop() if read(response) and bodies else b"{}")
    monkeypatch.setattr(orders_module, "backoff_s", lambda _failures: 0.01)
    desk.orders.start()
    controller.give(raw("o1"))
    deadline_s = time.monotonic() + 10
    while bodies and time.monotonic() < deadline_s:
        time.sleep(0.01)
        controller.give(raw("o1"))
    assert not bodies
    monkeypatch.setattr(answers, "read", read)
    assert desk.outcomes(1) == [("o1", True, "noted")]
    desk.orders.stop()


def test_so_many_orders_are_open_at_a_time_and_the_others_wait_at_the_controller(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    go = threading.Event()

    def wait(_order: ReceivedOrder) -> OrderResult:
        go.wait(10)
        return OrderResult(True, "noted")

    desk.orders._handlers = {"note": wait}
    taken = [desk.orders.take(raw(f"o{number}")) for number in range(100)]
    assert taken == [True] * 64 + [False] * 36
    go.set()
    desk.outcomes(64)
    deadline_s = time.monotonic() + 5
    while not desk.orders.take(raw("o99")) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert ("o99", True, "noted") in desk.outcomes(65)


def test_new_orders_are_so_many_in_the_long_run_and_known_ones_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders_module, "_MOST_AT_ONCE", 10)
    desk = Desk(tmp_path)
    for _ in range(20):
        assert sum(desk.orders.take(raw(f"o{number}", "unknown")) for number in range(5)) in (5, 0)
    assert sum(desk.orders.take(raw(f"p{number}", "unknown")) for number in range(100)) in (5, 6)


def test_a_thread_that_cannot_be_started_is_an_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        desk.orders.take(raw())
    assert desk.outcomes(1) == [("o1", False, "not begun: can't start new thread")]


def test_an_outcome_asked_for_again_much_later_is_sent_again(tmp_path: Path) -> None:
    book = OrderBook(AgentMemory(tmp_path))
    book.remember("o1")
    book.settle("o1", OrderResult(True, "noted"))
    assert book.asked_again("o1") is None
    book._answered_s["o1"] -= 31
    item = book.asked_again("o1")
    assert item is not None
    assert item.body["summary"] == "noted"
    assert book.asked_again("o1") is None


@pytest.mark.slow
def test_orders_come_over_the_long_poll_and_a_repeated_one_is_not_asked_for_in_a_circle(
    tmp_path: Path, controller: FakeController
) -> None:
    desk = Desk(tmp_path, controller.url)
    desk.orders.start()
    controller.give(raw("o1"), raw("o2"))
    assert sorted(desk.outcomes(2)) == [("o1", True, "noted"), ("o2", True, "noted")]
    time.sleep(0.3)
    assert len(desk.items) == 2
    desk.orders.stop()


def test_refusal_names_nothing_for_an_order_that_is_meant(tmp_path: Path) -> None:
    known: Mapping[str, Any] = {"note": None}
    assert refusal(ReceivedOrder.from_wire(raw(), 0.0), ME, known, 29.9) is None
    assert refusal(ReceivedOrder.from_wire(raw(), 0.0), ME, known, 30.0) is not None


class FakeSlurm(SlurmNode):
    """``nodes``: where Slurm has them; None: it does not answer."""

    def __init__(
        self, pids: frozenset[int] = frozenset(), nodes: Mapping[str, tuple[str, int]] | None = MappingProxyType({})
    ) -> None:
        self._pids = pids
        self.nodes = nodes

    def job_pids(self, job_id: int | None = None) -> Mapping[int, frozenset[int]]:
        return {7: self._pids}

    def address_of(self, name: str) -> tuple[str, int]:
        if self.nodes is None:
            raise Unavailable("sinfo did not answer within 5 s")
        if name not in self.nodes:
            raise Rejected(f"Slurm has no node {name}")
        return self.nodes[name]


PLACES = {name: (f"10.0.0.{name[1:]}", 6818) for name in ("n1", "n2", "n3", "n9")}


def _place(name: str) -> dict[str, object]:
    return {"node": name, "address": PLACES[name][0], "port": PLACES[name][1]}


def _probe(
    asked: ReceivedOrder, neighbours: NeighbourProbes | None = None, slurm: FakeSlurm | None = None
) -> OrderResult:
    slurm = slurm or FakeSlurm(nodes=PLACES)
    return verbs.probe_peer(neighbours or NeighbourProbes(slurm.address_of), slurm)(asked)


def _probe_at(port: int, **more: object) -> OrderResult:
    slurm = FakeSlurm(nodes={"n1": ("127.0.0.1", port)})
    return _probe(order("probe_peer", node="n1", address="127.0.0.1", port=port, **more), slurm=slurm)


@pytest.mark.parametrize("control", ["reached", "unreached"])
def test_a_failed_probe_says_whether_it_was_reached_before_and_whether_another_is_reached_now(control: str) -> None:
    now_s, gone = [100.0], {PLACES["n1"], *({PLACES["n3"]} if control == "unreached" else ())}
    neighbours = NeighbourProbes(
        FakeSlurm(nodes=PLACES).address_of,
        lambda: now_s[0],
        lambda target, _timeout_s: None if target != PLACES["n9"] else OSError(),
    )
    neighbours.told(["n1", "n9", ["n3", 6818], "nobody", 5])
    neighbours.probe()
    now_s[0] = 160.0

    def answer(target: tuple[str, int], _timeout_s: float) -> OSError | None:
        return TimeoutError() if target in gone else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verbs, "connect", answer)
        done = _probe(order("probe_peer", **_place("n1"), control=_place("n3")), neighbours)
        gone.add(PLACES["n9"])
        never = _probe(order("probe_peer", **_place("n9")), neighbours)
    assert {k: v for k, v in done.detail.items() if k in ("errno", "reached_before_s", "control")} == {
        "errno": errno.ETIMEDOUT, "reached_before_s": 60.0, "control": control,
    }  # fmt: skip
    assert {"reached_before_s", "control"} & set(never.detail) == set(), "never reached, and nothing to compare with"


def test_slurm_is_not_asked_about_a_neighbour_while_nodes_die() -> None:
    slurm = FakeSlurm(nodes=dict(PLACES))
    neighbours = NeighbourProbes(slurm.address_of, connects=lambda *_: None)
    neighbours.told(["n1"])
    neighbours.probe()
    slurm.nodes = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verbs, "connect", lambda *_: None)
        assert _probe(order("probe_peer", **_place("n1")), neighbours, slurm).ok
        with pytest.raises(Unavailable, match="did not answer"):
            _probe(order("probe_peer", **_place("n2")), neighbours, slurm)


def test_what_is_no_neighbour_any_more_is_forgotten() -> None:
    neighbours = NeighbourProbes(
        FakeSlurm(nodes=PLACES).address_of,
        connects=lambda _target, _timeout_s: ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
    )
    neighbours.told(["n1"])
    neighbours.probe()
    assert neighbours.reached_before_s("n1", PLACES["n1"]) is not None, "a refusal is an answer of its kernel"
    neighbours.told(["n2"])
    neighbours.probe()
    assert neighbours.reached_before_s("n1", PLACES["n1"]) is None
    assert (neighbours.known("n1"), neighbours.known("n2")) == (None, PLACES["n2"])


def test_slurm_is_asked_where_a_neighbour_is_once_and_again_when_it_is_not_reached_there() -> None:
    """Its machine may have been replaced by one of another address, which no peer has reached yet."""
    slurm, asked, reached = FakeSlurm(nodes=dict(PLACES)), list[str](), [True]

    def address_of(name: str) -> tuple[str, int]:
        asked.append(name)
        return slurm.address_of(name)

    neighbours = NeighbourProbes(address_of, connects=lambda *_: None if reached[0] else TimeoutError())
    neighbours.told(["n1", "n2"])
    for _ in range(3):
        neighbours.probe()
    assert asked == ["n1", "n2"]
    slurm.nodes = {**PLACES, "n1": ("10.0.0.77", 6818)}
    reached[0] = False
    neighbours.probe()
    neighbours.probe()
    assert asked[2:] == ["n1", "n2"]
    assert neighbours.known("n1") == ("10.0.0.77", 6818)
    assert neighbours.reached_before_s("n1", ("10.0.0.77", 6818)) is None


def test_probe_peer_tells_an_open_port_from_a_closed_one_and_a_silent_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert _probe_at(port).ok
    closed = _probe_at(port)
    assert (closed.ok, closed.detail["errno"]) == (False, errno.ECONNREFUSED)
    with socket.socket() as full:  # a backlog that is full answers no one
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            silent = _probe_at(full.getsockname()[1], timeout_s=0.1)
    assert (silent.ok, silent.detail["errno"]) == (False, errno.ETIMEDOUT)


@pytest.mark.parametrize(
    "trouble",
    [OSError(errno.ENETUNREACH, "no route"), OSError(errno.EMFILE, "no descriptor"), socket.gaierror(-2, "no name")],
)
def test_trouble_of_this_nodes_own_is_no_word_about_the_peer(trouble: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise trouble

    monkeypatch.setattr(socket, "create_connection", fail)
    done = _probe(order("probe_peer", **_place("n2")))
    assert not done.ok
    assert "errno" not in done.detail


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({}, "are needed"),
        ({**_place("n1"), "port": 0}, "n1 is at 10.0.0.1:6818 in Slurm, not at 10.0.0.1:0"),
        ({**_place("n1"), "port": True}, "are needed"),
        ({**_place("n1"), "timeout_s": 99}, "timeout_s"),
        (
            {"address": "169.254.169.254", "port": 80},
            "names no node of this cluster, only the address 169.254.169.254:80",
        ),
        ({"node": ["n1"], "address": "10.0.0.1", "port": 6818}, "names no node"),
        (
            {**_place("n1"), "address": "169.254.169.254"},
            "n1 is at 10.0.0.1:6818 in Slurm, not at 169.254.169.254:6818",
        ),
        ({**_place("n1"), "port": 22}, "n1 is at 10.0.0.1:6818 in Slurm, not at 10.0.0.1:22"),
        ({**_place("n1"), "node": "n8"}, "Slurm has no node n8"),
        ({**_place("n1"), "control": {"address": "10.0.0.9", "port": 22}}, "names no node"),
        ({**_place("n1"), "control": {**_place("n3"), "port": 22}}, "n3 is at"),
    ],
)
def test_nothing_but_a_node_where_slurm_has_it_is_connected_to(
    args: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, int]] = []

    def connect(target: tuple[str, int], _timeout_s: float) -> OSError:
        tried.append(target)
        return TimeoutError()

    monkeypatch.setattr(verbs, "connect", connect)
    with pytest.raises(Rejected, match=re.escape(why)) as refused:
        _probe(order("probe_peer", **args))
    assert len(str(refused.value).splitlines()) == 1
    assert set(tried) <= {PLACES["n1"]}


def test_while_slurm_does_not_answer_what_it_said_of_a_neighbour_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "connect", lambda *_: TimeoutError())
    slurm = FakeSlurm(nodes=PLACES)
    neighbours = NeighbourProbes(slurm.address_of, connects=lambda *_: None)
    neighbours.told(["n1"])
    neighbours.probe()
    slurm.nodes = None
    assert _probe(order("probe_peer", **_place("n1")), neighbours, slurm).detail["errno"] == errno.ETIMEDOUT
    for other in (_place("n2"), {**_place("n1"), "address": "10.0.0.99"}):
        with pytest.raises(Unavailable, match="did not answer"):
            _probe(order("probe_peer", **other), neighbours, slurm)


@pytest.mark.parametrize("name", ["n[1-2]", "n1,n2", "-n", "", "n1 n2", "all\n"])
def test_what_is_not_the_name_of_one_node_is_asked_of_nobody(name: str) -> None:
    with pytest.raises(Rejected, match="not the name of one node"):
        SlurmNode("n1", None, "/nowhere/scontrol", None).address_of(name)


@pytest.fixture
def trapping() -> Iterator[subprocess.Popen[bytes]]:
    code = (
        "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: None); print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.stdout.close()
    process.wait()


def registered(name: str | None = "USR1", job_id: int = 7, uid: int | None = None) -> SaveSignals:
    signals = SaveSignals()
    signals.registered(job_id, os.getuid() if uid is None else uid, 0, name)
    return signals


def test_a_job_is_asked_to_save_only_where_it_listens_and_only_by_its_owner(trapping: subprocess.Popen[bytes]) -> None:
    with subprocess.Popen(["sleep", "60"]) as deaf:
        ask = verbs.ask_job_to_save(FakeSlurm(frozenset({trapping.pid, deaf.pid})), registered())
        done = ask(order("ask_job_to_save", job_id=7, uid=os.getuid(), signal="USR1"))
        assert (done.ok, done.detail["pids"]) == (True, [trapping.pid])
        assert deaf.poll() is None
        deaf.kill()
    with pytest.raises(Rejected, match="no process"):
        ask(order("ask_job_to_save", job_id=7, uid=os.getuid() + 1, signal="USR1"))
    with pytest.raises(Rejected, match="KILL"):
        ask(order("ask_job_to_save", job_id=7, uid=os.getuid(), signal="KILL"))
    with pytest.raises(Rejected, match="uid"):
        ask(order("ask_job_to_save", job_id=7, signal="USR1"))
    assert trapping.poll() is None
    assert handles(trapping.pid, signal.SIGUSR1)
    assert not handles(trapping.pid, signal.SIGUSR2)


@pytest.mark.parametrize("name", sorted(SAVE_SIGNALS - {"SIGUSR1"}))
def test_no_other_signal_than_the_one_that_the_job_registered_here_is_sent(
    name: str, trapping: subprocess.Popen[bytes]
) -> None:
    ask = verbs.ask_job_to_save(FakeSlurm(frozenset({trapping.pid})), registered())
    with pytest.raises(Rejected, match=f"job 7 registered SIGUSR1 on this node, not {name}"):
        ask(order("ask_job_to_save", job_id=7, uid=os.getuid(), signal=name))
    assert trapping.poll() is None


@pytest.mark.parametrize(
    "signals", [SaveSignals(), registered(job_id=8), registered(uid=os.getuid() + 1), registered(None)]
)
def test_a_job_that_registered_none_here_is_sent_none_but_the_users_own(
    signals: SaveSignals, trapping: subprocess.Popen[bytes]
) -> None:
    """One of several nodes may have registered elsewhere: it saves on all of them, or hangs."""
    ask = verbs.ask_job_to_save(FakeSlurm(frozenset({trapping.pid})), signals)
    for name in sorted(SAVE_SIGNALS - {"SIGUSR1", "SIGUSR2"}):
        with pytest.raises(Rejected, match=f"registered no save signal on this node.*HOLDFAST_SAVE_SIGNAL={name[3:]}"):
            ask(order("ask_job_to_save", job_id=7, uid=os.getuid(), signal=name))
    done = ask(order("ask_job_to_save", job_id=7, uid=os.getuid(), signal="USR1"))
    assert (done.ok, done.detail["pids"]) == (True, [trapping.pid])
    assert not ask(order("ask_job_to_save", job_id=7, uid=os.getuid(), signal="USR2")).ok, "it does not handle it"


def test_what_a_process_has_in_its_environment_counts_for_it_alone_where_the_job_registered_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import signal, sys; signal.signal(signal.SIGUSR2, lambda *_: None); print(1, flush=True); sys.stdin.read()"

    def started(name: str | None) -> subprocess.Popen[bytes]:
        env = {**os.environ, **({} if name is None else {"HOLDFAST_SAVE_SIGNAL": name})}
        process = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, env=env)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    monkeypatch.delenv("HOLDFAST_SAVE_SIGNAL", raising=False)
    with started("USR2") as asks, started("SIGUSR2") as too, started("USR1") as other, started(None) as silent:
        pids = frozenset({asks.pid, too.pid, other.pid, silent.pid})
        ask = verbs.ask_job_to_save(FakeSlurm(pids), SaveSignals())
        done = ask(order("ask_job_to_save", job_id=7, uid=os.getuid(), signal="USR2"))
        assert (done.ok, done.detail["pids"]) == (True, sorted({asks.pid, too.pid}))
        with pytest.raises(Rejected, match="registered SIGUSR1"):
            verbs.ask_job_to_save(FakeSlurm(pids), registered())(
                order("ask_job_to_save", job_id=7, uid=os.getuid(), signal="USR2")
            )
        for process in (asks, too, other, silent):
            process.kill()


def test_another_users_many_jobs_push_out_no_registration() -> None:
    """Small jobs by the hundred on the node of a long one, which no longer received its save signal."""
    kept = SaveSignals()
    kept.registered(7, 1000, 0, "TERM")
    for job in range(100, 1100):
        kept.registered(job, 1001, 0, "USR1")
    assert kept.of(7, 1000) is signal.SIGTERM
    assert (kept.of(100, 1001), kept.of(1099, 1001)) == (None, signal.SIGUSR1)


def test_registered_signals_outlive_the_agent_and_are_bounded(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path)
    signals = SaveSignals(memory)
    for job_id in range(1, 600):
        signals.registered(job_id, 1000, 0, "USR1")
    signals.registered(599, 1000, 0, "TERM")
    signals.registered(598, 1000, 0, None)  # the same run: its registration still holds
    signals.registered(597, 1000, 1, None)  # a later run that takes none
    signals.registered(596, 1000, 1, "KILL")  # nor does one of a signal that is none
    memory.close()
    memory = AgentMemory(tmp_path)
    again = SaveSignals(memory)
    assert [again.of(job_id, 1000) for job_id in (599, 598, 597, 596)] == [signal.SIGTERM, signal.SIGUSR1, None, None]
    assert again.of(599, 1001) is None
    assert again.of(1, 1000) is None
    memory.set("save_signals", "{")
    assert SaveSignals(memory).of(599, 1000) is None
    memory.close()


def outcome_of(results: dict[str, tuple[Weighed, ...]], on_bus: int = 0, uuids: int = 2, **args: object) -> OrderResult:
    known = {name: all_checks()[name] for name in ("gpu.count", "host.disk")}
    names = [f"GPU-{n}" for n in range(uuids)]
    slurm = FakeSlurm()
    return verbs.validate(lambda _wanted: results, known, lambda: names, lambda: on_bus, slurm)(
        order("validate", **args)
    )


OK: dict[str, tuple[Weighed, ...]] = {
    "gpu.count": (Weighed(Result.ok("gpu.count")),),
    "host.disk": (Weighed(Result.skipped("host.disk")),),
}


def bad(severity: Severity) -> dict[str, tuple[Weighed, ...]]:
    return {**OK, "host.disk": (Weighed(Result.finding("host.disk", severity, failed=False, code="full")),)}


@pytest.mark.parametrize(
    ("done", "ok", "text"),
    [
        (lambda: outcome_of(OK), True, "2 checks OK, 2 GPUs"),
        (lambda: outcome_of(bad(Severity.WARNING)), True, "2 checks OK"),
        (lambda: outcome_of(bad(Severity.DEGRADED)), False, "host.disk node full"),
        (lambda: outcome_of({**OK, "gpu.count": (Weighed(Result.unknown("gpu.count")),)}), False, "unknown"),
        (lambda: outcome_of({"gpu.count": OK["gpu.count"]}), False, "host.disk did not answer"),
        (lambda: outcome_of(OK, on_bus=8), False, "2 GPUs at work, 8 expected"),
        (lambda: outcome_of(OK, expect_gpus=3), False, "2 GPUs at work, 3 expected"),
        (lambda: outcome_of(OK, uuids=0, on_bus=0), True, "0 GPUs"),
    ],
)
def test_a_node_is_valid_only_if_everything_answered_and_nothing_is_bad(done: Any, ok: bool, text: str) -> None:
    found = done()
    assert found.ok is ok
    assert text in found.summary


def test_validate_refuses_a_check_it_does_not_know() -> None:
    with pytest.raises(Rejected, match=r"gpu\.magic"):
        outcome_of(OK, checks=["gpu.magic"])


def test_a_process_is_named_by_pid_and_start_time() -> None:
    mine = start_ticks(os.getpid())
    assert mine is not None
    assert start_ticks(2**22 + 1) is None
