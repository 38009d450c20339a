"""An unreadable row ends no process, hides no other row, and leads to nothing being done twice or lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import unknown
from holdfast.model.actions.action import IntentState
from holdfast.model.incidents.incident import IncidentKind, IncidentState, RecoveryPhase
from holdfast.store import SqlStore, open_store
from holdfast_checks.result import Remedy, Severity
from recording import world
from recording.releases import Recorded, moments
from support.served_site import ServedSite
from support.simulated.site import Site

Damage = Callable[[str], str | bytes]
DAMAGES: dict[str, Damage] = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty object": lambda _text: "{}",
    "another type": lambda text: json.dumps({**json.loads(text), "type": "Elsewhere"}),
    "deep": lambda _text: "[" * 100_000,
    "half a pair": lambda text: json.dumps(
        {k: "\ud800" if isinstance(v, str) and k != "type" else v for k, v in json.loads(text).items()}
    ),
    "no utf-8": lambda text: b"\xff\xfe" + text.encode()[2:],
    "wrong fields": lambda text: json.dumps({k: [k] if k != "type" else v for k, v in json.loads(text).items()}),
}
TABLES = {
    "incidents": "id",
    "findings": "id",
    "recoveries": "id",
    "intents": "key",
    "marks": "node",
    "nodes": "name",
    "checkpoints": "job_id",
    "brakes": "kind",
    "suppressions": "id",
    "inventories": "node",
}
"""Tables with documents, and what names a row."""


def moment(scene: str) -> Recorded:
    """The last recorded moment of a scene."""
    return [m for m in moments() if m.name.rpartition("-")[0] == scene][-1]


def moment_of(scene: str, node: str, folder: Path) -> Recorded:
    """The last one of a scene in which the node has an open incident."""
    for each in reversed([m for m in moments() if m.name.rpartition("-")[0] == scene]):
        with closing(sqlite3.connect(each.database(folder / f"{each.name}.db"))) as db:
            if db.execute("SELECT 1 FROM incidents WHERE is_open AND node = ?", (node,)).fetchone():
                return each
    raise AssertionError(f"{scene} has no moment with an open incident on {node}")


@pytest.fixture(autouse=True)
def _nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "_SEEN", unknown._Seen())


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """``opened(scene, damage)``: a site that continues from the scene, after ``damage`` has changed its database."""
    stores: list[SqlStore] = []

    def open_(scene: str, damage: Callable[[sqlite3.Connection], object], suspected: str = "") -> Site:
        """``suspected``: as of the last moment in which this node has an open incident."""
        recorded = moment(scene) if not suspected else moment_of(scene, suspected, tmp_path)
        path = recorded.database(tmp_path / "holdfast.db")
        with closing(sqlite3.connect(path)) as db:
            damage(db)
            db.commit()
        store = open_store(f"sqlite:///{path}")
        stores.append(store)
        return world.around(store, recorded.world)

    yield open_
    for store in stores:
        store.close()


def damaged(db: sqlite3.Connection, table: str, how: Damage, where: str = "1", column: str = "document") -> list[Any]:
    """Damage the rows; returns what names them."""
    found = db.execute(f"SELECT {TABLES.get(table, 'key')}, {column} FROM {table} WHERE {where}").fetchall()  # noqa: S608
    assert found, f"{table} has no row where {where}"
    for key, text in found:
        set_ = f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {TABLES.get(table, 'key')} = ? AND {where}"  # noqa: S608
        db.execute(set_, (how(text), key))
    return [key for key, _ in found]


@pytest.mark.sampled
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("table", TABLES)
def test_no_damage_of_a_table_ends_anything(
    opened: Callable[..., Site], table: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    scenes = {
        "brakes": "braked",
        "suppressions": "for_a_human",
        "checkpoints": "planned",
        "findings": "replaced_beside",
    }
    scene = scenes.get(table, "dead")
    names: list[Any] = []
    site = opened(scene, lambda db: names.extend(damaged(db, table, DAMAGES[how])))
    site.run(10)
    store = site.store
    assert isinstance(store, SqlStore)
    served = ServedSite(site, store)
    for page in ("nodes", "incidents", "actions", "events", "jobs", "spares", "suppressions", "metrics"):
        assert served.call("GET", f"/v1/{page}").status_code == 200, page
    for incident in store.incidents():
        assert served.call("GET", f"/v1/incidents/{incident.id}").status_code == 200
    said = {r.getMessage() for r in caplog.records if "event=unreadable_document" in r.getMessage()}
    assert (
        any(f"table={table} key={names[0]}" in line for line in said) or table == "inventories" or how == "half a pair"
    )


def touched(site: Site, node: str) -> list[tuple[str, str]]:
    return [call for call in site.slurm.calls if call[1] == node]


def test_the_node_of_an_unreadable_incident_is_held_until_an_operator_closes_it(opened: Callable[..., Site]) -> None:
    site = opened("dead", lambda db: damaged(db, "incidents", DAMAGES["cut off"], "is_open AND node = 'n5'"), "n5")
    (held,) = [i for i in site.store.incidents(only_open=True) if i.kind is IncidentKind.UNREADABLE]
    assert (held.state, held.severity, held.remedy) == (IncidentState.AWAITING_HUMAN, Severity.DEGRADED, Remedy.HUMAN)
    site.machine(held.node).agent_up = True
    site.fault(held.node, check="host.pcie", code="fatal", minor=None)
    site.run(300, step_s=5)
    assert touched(site, held.node) == [("drain", held.node)], "and nothing else"
    assert not site.slurm.nodes[held.node].down
    assert len(site.provider.tokens) == len(set(site.provider.tokens))
    assert not site.provider.terminated["i-0005"]
    assert any(held.node in subject for subject in site.notices.sent), "an operator is notified"
    assert site.incident(held.node).id != held.id, "what happens to the node meanwhile is recorded"
    site.operate("close", held.id)
    after = site.store.incident(held.id)
    assert after is not None
    assert not after.open
    before = steps_done(site, held.node)
    assert [key for key in before if "/Drain/" not in key] == []
    site.run(60, step_s=5)
    assert len(steps_done(site, held.node)) > len(before), "and acted upon once the hold is over"


def steps_done(site: Site, node: str) -> list[str]:
    """Of the node's newest incident."""
    return [i.key for i in site.store.intents(incident_id=site.incident(node).id) if i.state is IntentState.DONE]


def test_a_closed_unreadable_incident_stays_closed(opened: Callable[..., Site]) -> None:
    site = opened("replaced_beside", lambda db: damaged(db, "incidents", DAMAGES["cut off"], "NOT is_open"))
    found = [i for i in site.store.incidents() if i.kind is IncidentKind.UNREADABLE]
    assert found
    assert not any(i.open for i in found)
    site.run(30)
    assert not any(i.open and i.kind is IncidentKind.UNREADABLE for i in site.store.incidents())


def test_an_unreadable_step_is_not_repeated(opened: Callable[..., Site]) -> None:
    site = opened("replaced_beside", lambda db: damaged(db, "intents", DAMAGES["cut off"]))
    assert {i.state for i in site.store.intents()} <= {IntentState.FAILED, IntentState.WITHHELD}
    assert site.store.due_intents() == ()
    before = {i.key for i in site.store.intents()}
    site.run(120, step_s=5)
    again = {(i.incident_id, i.step) for i in site.store.intents() if i.key not in before}
    assert not again & {(i.incident_id, i.step) for i in site.store.intents() if i.key in before}
    assert all(n == 1 for n in site.slurm.requeued.values())


def test_an_unreadable_recovery_is_left_alone(opened: Callable[..., Site]) -> None:
    site = opened("hung", lambda db: damaged(db, "recoveries", DAMAGES["cut off"]))
    found = site.store.recoveries()
    assert found
    assert {r.phase for r in found} == {RecoveryPhase.LEFT_ALONE}
    requeued = dict(site.slurm.requeued)
    site.run(60)
    assert all(n == 1 for run, n in site.slurm.requeued.items() if run in requeued)


def test_an_unreadable_brake_holds(opened: Callable[..., Site]) -> None:
    site = opened("braked", lambda db: damaged(db, "brakes", DAMAGES["cut off"]))
    assert all(b.released_at is None for b in site.book.brakes.values())
    free = next(n for n in site.slurm.nodes if not site.book.open_on(n))
    site.operate("resume")
    site.fault(free)
    site.run(10)
    assert not site.slurm.nodes[free].drain
    for kind in list(site.book.brakes):
        site.operate("release_brake", kind)
    assert all(b.released_at is not None for b in site.book.brakes.values())


def test_an_unreadable_note_of_the_provider_means_that_nothing_is_known_of_it(opened: Callable[..., Site]) -> None:
    site = opened("planned", lambda db: damaged(db, "notes", DAMAGES["cut off"], "key = 'provider'", column="value"))
    assert site.book.provider is None
    site.run(30)
    assert site.book.provider is not None, "the actor looks again"


def test_an_unknown_step_is_settled_and_never_carried_out(opened: Callable[..., Site]) -> None:
    def newer(db: sqlite3.Connection) -> None:
        for name in ("Teleport", "SendOrder"):
            (text,) = db.execute("SELECT document FROM intents WHERE kind = 'SendOrder' LIMIT 1").fetchone()
            document = json.loads(text)
            key = f"{document['incident_id']}/{name}/n1.9/1"
            levitate = {**document["action"], "verb": "levitate"}
            action = levitate if name == "SendOrder" else {"type": "Teleport", "node": "n1"}
            document |= {"key": key, "action": action, "state": "planned", "finished_at": None}
            columns = (key, document["incident_id"], name, "n1", "planned", 0, "2026-03-01 12:00:00.000000", 0)
            db.execute("INSERT INTO intents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*columns, json.dumps(document)))

    site = opened("dead", newer)
    site.run(5)
    found = {i.kind: i for i in site.store.intents() if i.step.target == "n1.9"}
    assert {i.state for i in found.values()} == {IntentState.FAILED}
    assert set(found) == {"Teleport", "SendOrder"}
    assert "another release" in found["Teleport"].outcome
    assert not any("n1.9" in taken for machine in site.machines.values() for taken in machine.taken)


def test_an_event_of_an_unknown_kind_is_shown(opened: Callable[..., Site]) -> None:
    def newer(db: sqlite3.Connection) -> None:
        db.execute("UPDATE events SET kind = 'node.levitated' WHERE id = (SELECT min(id) FROM events)")
        db.execute("UPDATE events SET detail = '{' WHERE id = (SELECT max(id) FROM events)")

    site = opened("dead", newer)
    first, *_, last = site.store.events()
    assert first.kind.value == "unknown"
    assert first.text.startswith("node.levitated: ")
    assert last.detail == {}
    site.run(5)
