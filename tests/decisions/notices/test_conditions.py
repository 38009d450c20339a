"""Conditions of no incident: one call, one end, and the next occurrence is another one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from decisions.recovery.test_file_systems import hangs, well
from holdfast.condition_note import read_conditions, write_conditions
from holdfast.decisions.notices import over, plan
from holdfast.decisions.notices.conditions import SETTLE_S, follow
from holdfast.decisions.notices.texts import MessageWriter
from holdfast.model.book import Book
from holdfast.model.conditions import ConditionKind, Conditions, LastingCondition, SeenConditions
from holdfast.model.notice import Matter, Message, NoticeLevel, NoticePolicy, NoticeState, Topic
from support.simulated import Site
from support.simulated.clock import EPOCH
from support.simulated.site import POLICY

FS = (ConditionKind.FILE_SYSTEM, "fs1")
SILENCE = (ConditionKind.SILENCE, "rack1")
ALL = frozenset(ConditionKind)


def later(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def seen(*found: tuple[ConditionKind, str], silent: tuple[str, ...] = ()) -> SeenConditions:
    return SeenConditions(dict.fromkeys(found, silent), ALL, frozenset(silent))


def test_what_comes_back_within_the_settling_time_is_the_same_and_later_another() -> None:
    first = follow(Conditions(), seen(FS), EPOCH)
    (begun,) = first.lasting
    assert begun == LastingCondition(*FS, EPOCH)
    away = follow(first, seen(), later(10))
    assert away.keys == {begun.key}, "not over yet"
    back = follow(away, seen(FS), later(20))
    assert back.lasting == (begun,)
    gone = follow(follow(back, seen(), later(30)), seen(), later(30 + SETTLE_S))
    assert gone == Conditions()
    (again,) = follow(gone, seen(FS), later(300)).lasting
    assert again.key != begun.key


def test_missing_data_begins_and_ends_nothing() -> None:
    first = follow(Conditions(), seen(FS, SILENCE, silent=("n1",)), EPOCH)
    blind = SeenConditions({(ConditionKind.SPARES, ""): ()}, frozenset())
    assert follow(follow(first, blind, later(10)), blind, later(9999)) == first


def test_silence_is_over_with_its_last_node() -> None:
    """A group of which two nodes are left is no group any more, and the two do not report."""
    first = follow(Conditions(), seen(SILENCE, silent=("n1", "n2", "n3")), EPOCH)
    one_left = replace(seen(), silent=frozenset({"n3"}))
    still = follow(follow(first, one_left, later(10)), one_left, later(1000))
    assert still.keys == first.keys
    assert follow(follow(still, seen(), later(1010)), seen(), later(2000)) == Conditions()


def test_the_record_is_read_as_it_was_written_and_garbage_is_none() -> None:
    first = follow(Conditions(), seen(FS, SILENCE, silent=("n1",)), EPOCH)
    assert read_conditions(write_conditions(first)) == first
    assert (read_conditions(None), read_conditions("[1]")) == (None, None)


@pytest.mark.parametrize(
    ("conditions", "ended"),
    [(None, None), (Conditions(), True), (Conditions((LastingCondition(*FS, EPOCH),)), False)],
)
def test_a_matter_is_over_when_its_condition_is_and_not_known_without_a_record(
    conditions: Conditions | None, ended: bool | None
) -> None:
    matter = Matter(Topic.FILE_SYSTEM, "t", "s", condition=LastingCondition(*FS, EPOCH).key)
    assert over.is_over(Book(), matter, conditions) is ended


def test_hourly_repetitions_have_one_end() -> None:
    policy, state, sent = NoticePolicy(), NoticeState(), list[Message]()
    for hour in range(3):
        matter = Matter(Topic.NODES_DO_NOT_REPORT, f"silent.{hour}", "n1", condition="silence/n1@1", since=later(hour))
        state, _ = plan.take(state, matter, policy, later(3600 * hour))
        state, made = plan.make(state, policy, later(3600 * hour), MessageWriter())
        sent += made
    state = plan.end(state, lambda _matter: True, later(9000))
    state, made = plan.make(state, policy, later(9000), MessageWriter())
    assert ([m.over for m in sent], [(m.over, m.stands_for) for m in made]) == ([False] * 3, [(True, 1)])
    assert made[0].level is NoticeLevel.NEEDS_SOMEBODY
    assert "Nothing has to be done for it any more" in made[0].body


def _subjects(site: Site) -> list[str]:
    return [m.subject.split(" on ")[0] for m in site.notices.messages]


def test_a_file_system_that_answers_again_is_over_once_and_the_next_time_is_called_for_again() -> None:
    site = Site(6)
    for _ in range(2):
        hangs(site, "n1", "n2", "n3")
        site.run(60, step_s=5)
        well(site, "n1", "n2", "n3")
        site.run(400, step_s=10)
        site.start_controller()
        site.start_actor()
        site.run(60, step_s=5)
    call = "fs1:/export does not answer"
    assert _subjects(site) == [call, f"over: {call}", call, f"over: {call}"]


def test_an_end_without_a_call_is_not_announced() -> None:
    """Nodes that fall silent for less than the time after which anyone is notified."""
    site = Site(16)
    for name in ("n1", "n2"):
        site.machine(name).agent_up = False
    site.run(40, step_s=5)
    for name in ("n1", "n2"):
        site.machine(name).agent_up = True
    site.run(600, step_s=10)
    assert [m for m in site.notices.messages if m.topic is Topic.NODES_DO_NOT_REPORT] == []


def test_a_pool_that_is_full_again_is_over() -> None:
    site = Site(4, spares=("n4",), policy=replace(POLICY, spares=replace(POLICY.spares, wanted=2, short_s=600)))
    site.run(1500, step_s=30)
    assert [m.over for m in site.notices.messages] == [False]
    site.slurm.set_reservation_nodes(POLICY.spare_reservation, ("n3", "n4"))
    site.run(600, step_s=30)
    assert [m.over for m in site.notices.messages] == [False, True]
