"""A node with an unreadable incident may have any fault: no job is led to it, and it is only drained."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.decisions.common import node_incidents
from holdfast.model.incidents.incident import IncidentKind
from holdfast.store import SqlStore, open_store
from holdfast_checks.result import Remedy, Severity
from support.simulated.site import Site

Damage = Callable[[str], None]


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[tuple[Site, Damage]]:
    """A site, and what makes the record of one of its incidents unreadable."""
    path = tmp_path / "holdfast.db"
    store = open_store(f"sqlite:///{path}")
    assert isinstance(store, SqlStore)

    def damage(incident: str) -> None:
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE incidents SET document = substr(document, 1, 40) WHERE id = ?", (incident,))
            db.commit()

    yield Site(3, store=store), damage
    store.close()


def test_a_fault_that_can_be_read_is_drained_and_nothing_more_is_done(damaged: tuple[Site, Damage]) -> None:
    site, damage = damaged
    site.fault("n1", check="gpu.thermal", severity=Severity.WARNING, remedy=Remedy.NONE)
    site.turn()
    unread = site.incident("n1").id
    damage(unread)
    site.fault("n1")
    site.run(300, step_s=5)
    assert site.book.incidents[unread].kind is IncidentKind.UNREADABLE
    assert site.slurm.nodes["n1"].drain
    assert (site.provider.tokens, site.slurm.undrained) == ({}, [])


def test_no_recovered_job_is_led_to_its_node_and_a_planned_drain_is_done(damaged: tuple[Site, Damage]) -> None:
    site, damage = damaged
    site.fault("n1")
    site.turn()
    damage(site.incident("n1").id)
    site.turn()
    assert site.loop.world is not None
    assert "n1" in node_incidents.suspect_nodes(site.loop.world)
    site.run(5)
    assert site.slurm.nodes["n1"].drain


def test_a_machine_whose_end_was_planned_is_not_ended_until_the_incident_is_closed(
    damaged: tuple[Site, Damage],
) -> None:
    site, damage = damaged
    site.fault("n1")
    for _ in range(400):
        site.clock.advance(1)
        site.world_moves()
        site.turn()
        if any(i.kind == "Terminate" for i in site.store.due_intents()):
            break
        site.act()
        site.agents.obey()
    assert any(i.kind == "Terminate" for i in site.store.due_intents())
    damage(site.incident("n1").id)
    site.run(300, step_s=5)
    assert dict(site.provider.terminated) == {}
