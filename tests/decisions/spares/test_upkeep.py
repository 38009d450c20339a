"""Spares are checked hourly and nightly, and what fails is taken out like any other node."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.decisions.spares.order_spare_checks import night
from holdfast.decisions.spares.spare_checks import follow_upkeep
from holdfast.model.actions.action import Intent, IntentState, SendOrder, Verb
from holdfast.model.book import Book, Change, World
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.policies.policy import Mode, SparePolicy
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.site import POLICY

_KEY = "upkeep/SendOrder/check.light/n4.1/1"


def _site(nodes: int = 4, spares: tuple[str, ...] = ("n3", "n4"), mode: Mode = Mode.ACT, **policy: object) -> Site:
    chosen = replace(POLICY, mode=mode, spares=SparePolicy(**policy))  # type: ignore[arg-type]
    return Site(nodes, spares=spares, policy=chosen)


def _orders(site: Site, verb: Verb) -> list[str]:
    """Nodes that were ordered to be checked, in order."""
    actions = [i.action for i in site.store.intents(incident_id="upkeep")]
    return [a.node for a in actions if isinstance(a, SendOrder) and a.verb is verb]


def test_a_light_check_every_hour() -> None:
    site = _site()
    site.run(20)
    assert sorted(_orders(site, Verb.VALIDATE)) == ["n3", "n4"]
    record = site.book.nodes["n3"]
    assert (record.check_note, record.deep_at) == ("", None)
    assert record.checked_at is not None
    site.run(3500, step_s=50)
    assert len(_orders(site, Verb.VALIDATE)) == 2
    site.run(200, step_s=10)
    assert len(_orders(site, Verb.VALIDATE)) == 4
    assert not site.store.incidents()


def test_none_in_observe_mode_and_while_paused() -> None:
    site = _site(mode=Mode.OBSERVE)
    site.run(60, step_s=10)
    assert not site.store.intents(incident_id="upkeep")
    site = Site(4, spares=("n4",), warm=False)
    site.operate("pause")
    site.run(60, step_s=10)
    assert not site.store.intents(incident_id="upkeep")


def test_a_spare_that_fails_its_light_check_is_not_an_incident_without_a_bad_result() -> None:
    site = _site(spares=("n4",))
    site.machine("n4").healthy = False  # the validation names nothing
    site.run(3700, step_s=20)
    assert site.book.nodes["n4"].checked_at is not None
    assert not site.store.incidents()
    failed = [i for i in site.store.intents(incident_id="upkeep") if i.state is IntentState.FAILED]
    assert 1 <= len(failed) <= 2, "once an hour at most"


def test_each_spare_has_its_turn_at_night_one_at_a_time() -> None:
    site = _site(8, spares=("n5", "n6", "n7", "n8"), deep_from="12:10", deep_until="13:10")
    site.run(500, step_s=20)
    assert _orders(site, Verb.CHECK) == []
    site.run(3600, step_s=10)
    assert sorted(_orders(site, Verb.CHECK)) == ["n5", "n6", "n7", "n8"]
    deep = [i for i in site.store.intents(incident_id="upkeep") if "/check.deep/" in i.key]
    planned = [i.planned_at for i in deep]
    assert max(planned) - min(planned) > timedelta(minutes=5), "spread over the window"
    site.run(1200, step_s=60)
    assert len(_orders(site, Verb.CHECK)) == 4, "once a night"


def test_what_a_deep_check_finds_is_repaired_and_the_node_stays_a_spare() -> None:
    site = _site(spares=("n4",), deep_from="12:00", deep_until="15:00")
    site.machine("n4").deep_ok = False
    for _ in range(400):
        site.run(30, step_s=10)
        if site.store.incidents():
            break
    incident = site.incident("n4")
    assert (incident.check, incident.remedy) == ("dcgm.diag2", Remedy.REPLACE)
    assert incident.note == "found by the deep check of a spare" or incident.state is not IncidentState.OPEN
    kinds = [e.kind for e in site.store.events(incident_id=incident.id)][:2]
    assert kinds == [EventKind.FAULT_OCCURRED, EventKind.INCIDENT_OPENED]
    site.run(900, step_s=5)
    assert not site.incident("n4").open, site.story(incident.id)
    assert site.machine("n4").instance_id != incident.instance_id
    assert site.slurm.reservations["holdfast-spares"].nodes == ("n4",)
    assert len(site.store.incidents(node="n4")) == 1


@pytest.mark.parametrize(
    ("words", "severity", "remedy"),
    [
        ({"verdict": "failed", "severity": "fatal"}, Severity.FATAL, Remedy.REBOOT),
        ({"verdict": "failed", "severity": "degraded", "remedy": "none"}, Severity.DEGRADED, Remedy.REBOOT),
        ({"verdict": "doomed", "severity": "fatal", "remedy": "replace"}, Severity.FATAL, Remedy.REPLACE),
        ({"verdict": "failed", "severity": "apocalyptic", "remedy": "melt"}, Severity.DEGRADED, Remedy.HUMAN),
        ({"verdict": "failed"}, None, None),
        ({"verdict": "failed", "severity": "warning", "remedy": "replace"}, None, None),
        ({"verdict": "ok", "severity": "fatal"}, None, None),
    ],
)
def test_a_fault_that_a_check_by_order_found_is_never_lost_to_a_word(
    words: dict[str, str], severity: Severity | None, remedy: Remedy | None
) -> None:
    site = _site(spares=("n4",))
    record = replace(site.book.nodes["n4"], checked_at=None)
    order = SendOrder("n4", record.instance_id, record.boot_id, Verb.VALIDATE, 60.0, {})
    at = site.clock.now()
    result = {"results": [{"check": "host.x", **words}, "no result", {"check": 3}]}
    intent = Intent(_KEY, "upkeep", order, "hourly", 1, IntentState.FAILED, at, finished_at=at, result=result)
    world = World(at, POLICY, Book(nodes={"n4": record}, intents={_KEY: intent}), None)
    found = [(i.severity, i.remedy) for i in follow_upkeep(world, lambda _at: "new").incidents]
    assert found == ([] if severity is None else [(severity, remedy)])


def test_one_under_test_is_not_taken_unless_there_is_no_other() -> None:
    def taken(*spares: str) -> str | None:
        site = _site(5, spares=spares, deep_from="12:00", deep_until="23:59")
        job = site.slurm.submit(2, comment="holdfast", exclusive=True)
        site.agents.obey = lambda: None  # type: ignore[method-assign]  # the check goes on and on
        order = SendOrder("n4", "i-0004", site.machine("n4").boot_id, Verb.CHECK, 1500.0, {"checks": ["dcgm.diag2"]})
        assert site.loop.lease is not None
        key, fence, now = "upkeep/SendOrder/check.deep/n4.1/1", site.loop.lease.fence, site.clock.now()
        intent = Intent(key, "upkeep", order, "deep check", fence, IntentState.PLANNED, now)
        site.store.commit(Change(intents=(intent,)), fence)
        site.fault("n1")
        site.react()
        return site.recovery(job.job_id).spare

    assert taken("n4", "n5") == "n5"
    assert taken("n4") == "n4"


@pytest.mark.parametrize(
    ("now", "opens", "closes", "zone", "begin"),
    [
        ("2026-03-01T03:00", "02:00", "05:00", "UTC", "2026-03-01T02:00"),
        ("2026-03-01T05:00", "02:00", "05:00", "UTC", None),
        ("2026-03-01T01:59", "02:00", "05:00", "UTC", None),
        ("2026-03-01T23:00", "22:00", "03:00", "UTC", "2026-03-01T22:00"),
        ("2026-03-02T02:00", "22:00", "03:00", "UTC", "2026-03-01T22:00"),
        ("2026-03-01T01:30", "02:00", "05:00", "Europe/Berlin", "2026-03-01T01:00"),
        ("2026-07-01T00:30", "02:00", "05:00", "Europe/Berlin", "2026-07-01T00:00"),
        ("2026-03-01T10:00", "02:00", "05:00", "America/Los_Angeles", "2026-03-01T10:00"),
        ("2026-03-01T02:00", "02:00", "02:00", "UTC", None),
    ],
)
def test_the_night(now: str, opens: str, closes: str, zone: str, begin: str | None) -> None:
    policy = replace(POLICY, spares=SparePolicy(deep_from=opens, deep_until=closes, zone=zone))
    found = night(World(datetime.fromisoformat(now).replace(tzinfo=UTC), policy, Book(), None))
    expected = None if begin is None else datetime.fromisoformat(begin).replace(tzinfo=UTC)
    assert (found[0] if found else None) == expected
