"""The doctor on what processes could not read and have set aside."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from holdfast.doctor import diagnose
from holdfast.doctor.edge import DoctorSite, _rooms_aside
from holdfast.doctor.facts import Aside, DoctorFacts
from holdfast.model.agents.report import AgentView
from holdfast.model.errors import Rejected
from holdfast.model.policies.policy import Policy
from holdfast_checks.aside import FilesSetAside

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SINCE = datetime(2026, 2, 27, 3, 4, tzinfo=UTC)


def said(facts: DoctorFacts) -> dict[str, str]:
    return {one.id: one.what for one in diagnose(facts)}


def test_it_says_how_many_since_when_and_where() -> None:
    sound = AgentView("n1", "i-1", "b", NOW, NOW)
    facts = DoctorFacts(NOW, Policy(), "root", agents={"n1": (sound,)})
    before = said(facts)
    aside = replace(sound, node="n2", set_aside=3, set_aside_since=SINCE)
    rows, rooms = Aside(2, SINCE), Aside(1)
    told = said(replace(facts, agents={"n1": (sound,), "n2": (aside,)}, unreadable_rows=rows, unreadable_rooms=rooms))
    assert {name: told[name] for name in told.keys() - before.keys()} == {
        "agents.unreadable": "3 files or items that agents cannot read since 2026-02-27 03:04 UTC: n2",
        "site.unreadable_rows": "2 rows of the store cannot be read since 2026-02-27 03:04 UTC",
        "quorum.unreadable": "1 rendezvous of elastic jobs cannot be read",
    }


def test_a_quorum_service_of_an_earlier_release_has_set_nothing_aside() -> None:
    def refuses() -> FilesSetAside:
        raise Rejected("do is one of open, close")

    assert _rooms_aside(DoctorSite(rooms_aside=refuses)) == Aside()
    assert _rooms_aside(DoctorSite(rooms_aside=lambda: FilesSetAside(1, SINCE.timestamp()))) == Aside(1, SINCE)
