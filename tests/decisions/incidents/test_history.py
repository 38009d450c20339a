"""Lemons: tables of outages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.controller.observing.background import write_lemons
from holdfast.decisions.incidents.node_history import explained, lemons, outages
from holdfast.model.background import Lemon, Outage
from holdfast.model.event import Event, EventKind
from holdfast.model.policies.policy import HistoryPolicy
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.site import POLICY

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FRESH_S = 1800.0


def _faults(*days_ago: float, machine: str = "") -> list[Outage]:
    """Each back after an hour."""
    ats = [NOW - timedelta(days=d) for d in days_ago]
    return [Outage("n1", f"i{n}", machine, "gpu.xid 79", at, at + timedelta(hours=1)) for n, at in enumerate(ats)]


def _lemon(known: list[Outage], users: int = 0, machine: str = "") -> Lemon | None:
    excluded = {"n1": users} if users else {}
    return lemons(known, {"n1": machine}, excluded, HistoryPolicy(), FRESH_S, NOW).get("n1")


@pytest.mark.parametrize(
    ("days_ago", "lemon", "score"),
    [
        ((), None, 0),
        ((1,), False, 1),
        ((1, 5), True, 2),
        ((1, 9), False, 2),
        ((1, 12, 24), True, 3),
        ((1, 12, 31), False, 2),
        ((20, 25), True, 2),
        ((27, 33), True, 1),
        ((29, 33), None, 0),
        ((35, 36), None, 0),
    ],
)
def test_two_in_a_week_or_three_in_four_weeks(days_ago: tuple[float, ...], lemon: bool | None, score: int) -> None:
    found = _lemon(_faults(*days_ago))
    if lemon is None:
        assert found is None
        return
    assert found is not None
    assert found.holds(NOW) is lemon
    assert found.score == score


def test_it_ends_four_weeks_after_the_fault_that_made_it_one() -> None:
    found = _lemon(_faults(20, 25))
    assert found is not None
    assert found.until == NOW + timedelta(days=8)
    assert found.reasons[0] == "lemon until 2026-03-09: 2 faults in 7 days, 2 are enough"


def test_a_fault_soon_after_the_repair_counts_twice() -> None:
    first, second = _faults(10, 10 - 1.2 / 24)
    found = _lemon([first, second])
    assert found is not None
    assert found.score == 3
    assert "1 fault within 30 min after its return" in found.reasons


def test_only_the_machine_that_serves_counts() -> None:
    assert _lemon(_faults(1, 2, machine="i-old"), machine="i-new") is None
    kept = _lemon(_faults(1, 2, machine="i-new"), machine="i-new")
    assert kept is not None
    assert kept.holds(NOW)


def test_users_alone_make_no_lemon() -> None:
    assert _lemon([], users=2) is None
    found = _lemon([], users=4)
    assert found == Lemon(1, None, ("excluded by 4 users",))


def test_outages_are_made_of_the_events() -> None:
    def event(kind: EventKind, incident: str, hours: float, by: str = "ours") -> Event:
        return Event(NOW + timedelta(hours=hours), kind, incident, "n1", text="out", detail={"by": by})

    found = outages(
        [
            event(EventKind.NODE_OUT, "a", 0),
            event(EventKind.NODE_RETURNED, "a", 2),
            event(EventKind.NODE_OUT, "b", 3, by="foreign"),
            event(EventKind.NODE_OUT, "c", 4),
            event(EventKind.NODE_RETURNED, "x", 5),
        ],
        {},
        (),
    )
    assert not any(o.by_others for o in found), "in records of older releases Holdfast's own return alone is there"
    assert [(o.incident_id, o.back_at) for o in found] == [("a", NOW + timedelta(hours=2)), ("c", None)]


def test_a_site_remembers_what_happened_to_a_node() -> None:
    site = Site(4)
    site.slurm.submit(1, user="bob", uid=1001, excluded=("n3",), required=("n4",))
    for _ in range(2):
        site.fault("n1")
        site.run(400)
        assert not site.incident("n1").open
    site.read_background()
    background = site.loop.observer.background.newest
    assert [(o.node, o.back_at is not None) for o in background.outages] == [("n1", True), ("n1", True)]
    assert background.topology.switches == {}
    # Each machine was replaced: the one that serves now has no history.
    assert background.lemons == {}


@pytest.mark.parametrize("short_days", [7, 60])
def test_a_short_window_that_is_the_longer_one_is_read_whole(short_days: int) -> None:
    """Two faults, 40 days apart, and then 20 days without one: within 60 days they make a lemon."""
    policy = HistoryPolicy(short_window_s=short_days * 86_400, lemon_s=30 * 86_400, window_s=86_400)
    site = Site(2, policy=replace(POLICY, history=policy, spares=replace(POLICY.spares, rate_window_s=0)))
    for days in (40, 20):
        site.fault("n1", remedy=Remedy.REBOOT, code=str(days))
        site.run(600, step_s=5)
        site.run(days * 86_400, step_s=3600)
    site.read_background()
    background = site.loop.observer.background.newest
    assert background.lemon("n1", site.clock.now()) is (short_days == 60)


def test_lemons_are_listed_for_the_lua_module(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "lemons"
    site = Site(3, policy=replace(POLICY, history=HistoryPolicy(lemon_file=str(path), short_faults=1)))
    site.fault("n2", remedy=Remedy.REBOOT)
    site.run(900, step_s=3)
    site.read_background()
    assert site.loop.observer.background.newest.outages
    until, *names = path.read_text().splitlines()
    assert int(until.removeprefix("# until ")) == int(site.clock.now().timestamp()) + 900
    assert site.machine("n2").instance_id == "i-0002", "rebooted: a replaced machine would take its history with it"
    assert names == ["n2"]
    write_lemons(tmp_path / "nowhere" / "lemons", ("n1",), site.clock.now())
    assert "event=lemons_not_written" in caplog.text


def _drain(days_ago: float, node: str | None = "n1", *, scores: bool = True) -> Event:
    detail = {"scores": scores, "category": "health check"}
    at = NOW - timedelta(days=days_ago)
    return Event(
        at, EventKind.NODE_DRAINED_BY_OTHERS, None, node, text="health check: drained by root: NHC", detail=detail
    )


def _back(days_ago: float) -> Event:
    return Event(NOW - timedelta(days=days_ago), EventKind.NODE_RESUMED_BY_OTHERS, None, "n1")


def _ours(days_ago: float) -> Event:
    return Event(NOW - timedelta(days=days_ago), EventKind.NODE_OUT, "i1", "n1", text="ours", detail={"by": "ours"})


@pytest.mark.parametrize(
    ("events", "counted"),
    [
        ([_drain(3), _back(2)], 1),
        ([_drain(3), _back(2), _drain(1)], 2),
        ([_drain(3), _drain(2.5), _back(2)], 1),
        ([_drain(3, scores=False), _back(2)], 0),
        ([_drain(3, node=None)], 0),
        ([_drain(3), _ours(2.9), _back(2)], 1),
        ([_drain(3), _back(2), _ours(1)], 2),
        ([_drain(3), _ours(2.9)], 1),
    ],
    ids=[
        "once",
        "twice",
        "reworded",
        "no rule counts it",
        "of many at once",
        "taken over",
        "another",
        "taken over, out",
    ],
)
def test_drains_of_others_count_only_by_a_rule_and_once(events: list[Event], counted: int) -> None:
    known = outages(events, {}, ())
    assert len(known) == counted
    found = lemons(known, {}, {}, HistoryPolicy(), FRESH_S, NOW).get("n1")
    assert (found.score if found is not None else 0) == counted


def test_what_is_explained_adds_up_to_the_score() -> None:
    known = _faults(1, 1.045, 12, 40)
    lemon = _lemon(known)
    assert lemon is not None
    faults = explained(known, {}, HistoryPolicy(), FRESH_S, NOW)["n1"]
    assert sum(f.weight for f in faults) == lemon.score
    assert [f.until is None for f in faults] == [False, False, False, True]
