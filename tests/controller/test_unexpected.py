"""Unexpected input ends no process: one answer of Slurm, one step, one poll of the provider, one task of the agent."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from holdfast import unexpected
from holdfast.actor import actor, carry_out, second_look
from holdfast.actor.provider_watch import PROVIDER
from holdfast.agent.sources.kernel import UNJUDGED, KernelLog
from holdfast.agent.timing.loop import Loop
from holdfast.controller.observing.observe import SLURM
from holdfast.controller.quorum.quorum_watch import _survived
from holdfast.model.actions.action import Drain, Intent, IntentState
from holdfast.model.book import Book
from support.simulated import Site


@pytest.fixture(autouse=True)
def _nothing_failed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = unexpected.Unexpected()
    for name in ("failed", "passed", "standing", "counts"):
        monkeypatch.setattr(unexpected, name, getattr(fresh, name))


def breaks(*_args: object, **_named: object) -> None:
    raise ZeroDivisionError("drill")


def test_an_answer_of_slurm_that_cannot_be_read_leaves_the_view_to_age(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(2)
    before = site.loop.observer.slurm.view
    with monkeypatch.context() as patched:
        patched.setattr(site.slurm, "view", breaks)
        patched.setattr(site.slurm, "job", breaks)
        site.loop.observer.slurm.refresh()
        site.loop.observer.slurm.refresh_jobs([100])
    assert site.loop.observer.slurm.view is before
    assert site.loop.observer.slurm.error == "ZeroDivisionError: drill"
    assert unexpected.standing() == {SLURM: "ZeroDivisionError: drill"}
    site.loop.observer.slurm.refresh()
    assert not unexpected.standing()


def test_a_step_that_raises_is_settled_and_repeated_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(3)
    monkeypatch.setattr(carry_out, "_drain", breaks)
    site.fault("n1")
    site.run(120)
    tried = [i for i in site.store.intents() if isinstance(i.action, Drain)]
    assert 2 <= len(tried) <= 20
    assert {i.state for i in tried} <= {IntentState.FAILED, IntentState.PLANNED}
    assert "unexpected: ZeroDivisionError: drill" in {i.outcome for i in tried}
    assert unexpected.counts()[carry_out.STEP] == sum(i.state is IntentState.FAILED for i in tried)


def test_one_step_that_cannot_be_taken_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(3)
    plain = second_look.outlived

    def picky(book: Book, intent: Intent) -> object:
        if intent.action.target.node == "n1":
            breaks()
        return plain(book, intent)

    monkeypatch.setattr("holdfast.actor.actor.outlived", picky)
    site.fault("n1")
    site.fault("n2")
    site.run(10)
    assert site.slurm.nodes["n2"].drain
    assert not site.slurm.nodes["n1"].drain
    assert unexpected.standing() == {actor.TAKE: "ZeroDivisionError: drill"}


def test_the_actor_outlives_a_look_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    site, stop, looks = Site(2), threading.Event(), list[int]()
    monkeypatch.setattr(site.store, "due_intents", breaks)

    def turned() -> None:
        looks.append(1)
        if len(looks) == 3:
            stop.set()

    site.actor.turned = turned
    site.actor.run(stop)
    assert len(looks) == 3
    assert actor.HAND_OUT in unexpected.standing()


def test_the_look_at_the_provider_outlives_what_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    site, stop = Site(2), threading.Event()
    monkeypatch.setattr(site.provider, "notices", breaks)
    monkeypatch.setattr(stop, "wait", lambda _s: stop.set())
    site.watch.run(stop)
    assert unexpected.standing() == {PROVIDER: "ZeroDivisionError: drill"}


def test_readings_beside_the_turn_outlive_what_raises() -> None:
    site = Site(2)
    asyncio.run(site.loop._in_background("background", breaks))
    assert unexpected.standing() == {"background": "ZeroDivisionError: drill"}
    asyncio.run(site.loop._in_background("background", lambda: None))
    assert not unexpected.standing()
    assert asyncio.run(_survived("quorum_record", breaks)) is False
    assert "quorum_record" in unexpected.standing()
    assert asyncio.run(_survived("quorum_record", lambda: 1)) is True


def test_a_task_of_the_agent_that_raises_ends_nothing() -> None:
    done: list[str] = []
    loop = Loop({"odd": (60.0, breaks), "plain": (60.0, lambda: done.append("plain"))})
    loop.call(breaks)
    loop.call(lambda: done.append("call"))
    loop.turn(0.0)
    loop.close()
    assert done == ["call", "plain"]
    assert set(unexpected.standing()) == {"odd", "call"}


def test_a_line_of_the_kernel_that_raises_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kmsg"
    path.write_text("")
    log = KernelLog(path, "boot", None)
    with path.open("a") as kmsg:
        kmsg.write("4,1,1000000,-;odd line\n")
    monkeypatch.setattr("holdfast.agent.sources.kernel.judge_record", breaks)
    assert log.read({}, 5.0) == []
    assert log.settled
    log.close()
    assert unexpected.counts() == {UNJUDGED: 1}
    assert "odd line" in caplog.text


def test_an_error_is_logged_with_its_trace_once(caplog: pytest.LogCaptureFixture) -> None:
    mine = unexpected.Unexpected()
    for _ in range(3):
        mine.failed("turn", KeyError("n1"), "row 7")
    assert mine.counts() == {"turn": 3}
    (line,) = caplog.records
    assert "part=turn about=row 7" in line.getMessage()
    assert line.exc_info is not None
    mine.passed("turn")
    mine.passed("turn")
    assert not mine.standing()
    assert mine.counts() == {"turn": 3}
