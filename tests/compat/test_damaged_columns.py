"""Any column of a recorded store is overwritten: the store is read, turns and pages continue, no other row is hidden.

SQLite keeps a value of any type in any column; PostgreSQL refuses all of these but garbage in texts and documents."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import JSON, text

from holdfast import unknown
from holdfast.api.client import NO_HEADERS, ApiClient
from holdfast.cli.app import run
from holdfast.model.actions.action import IntentState, SendOrder, UnknownAction
from holdfast.model.actions.steps import StepKey
from holdfast.model.incidents.incident import IncidentKind
from holdfast.store import SqlStore, open_store
from holdfast.store.columns import SafeText
from holdfast.store.engines import parse_url, writer_engine
from holdfast.store.tables import metadata
from recording import world
from recording.releases import Recorded, moments
from recording.stores import copy_to_postgresql
from support.postgres import PostgresServer
from support.served_site import ServedSite
from support.simulated.clock import EPOCH
from support.simulated.site import Site

DAMAGES = {
    "no utf-8": "CAST(x'7b22fffe' AS TEXT)",
    "garbage": "'gar bage'",
    "empty": "''",
    "null": "NULL",
    "huge": "99999999999999999999999999",
    "infinite": "1e999",
    "nan": "'NaN'",
    "fraction": "0.5",
    "bytes": "x'fffe00'",
    "deep": "'" + "[" * 20_000 + "'",
    "half a pair": "'\"\\ud800\"'",
}
TURNED = ("garbage", "huge")
"""Damages with which a site runs on; with the others the store is only read."""
SCENES = {"checkpoints": "planned", "suppressions": "for_a_human", "findings": "for_a_human", "brakes": "braked"}
COLUMNS = [
    (table.name, column.name)
    for table in metadata.sorted_tables
    for column in table.columns
    if table.name not in ("evidence", "tokens")
]
Damaged = Callable[[str, str, str], SqlStore | None]


def moment(table: str) -> Recorded:
    """The last recorded moment of a scene that has rows of the table."""
    return [m for m in moments() if m.name.rpartition("-")[0] == SCENES.get(table, "dead")][-1]


@pytest.fixture(autouse=True)
def _nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "_SEEN", unknown._Seen())


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Databases of the recorded scenes, brought up to this release once."""
    folder = tmp_path_factory.mktemp("templates")

    def template(table: str) -> Path:
        path = folder / f"{moment(table).name}.db"
        if not path.exists():
            open_store(f"sqlite:///{moment(table).database(path)}").close()
        return path

    return template


@pytest.fixture
def damaged(templates: Callable[[str], Path], tmp_path: Path) -> Iterator[Damaged]:
    """``damaged(table, column, value)``: a store whose last row of the table has this value; None: the schema refuses it."""
    stores: list[SqlStore] = []

    def open_(table: str, column: str, value: str) -> SqlStore | None:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
        with closing(sqlite3.connect(templates(table))) as before, closing(sqlite3.connect(path)) as db:
            before.backup(db)
            try:
                db.execute(
                    f"UPDATE {table} SET {column} = {value} WHERE rowid = (SELECT max(rowid) FROM {table})"  # noqa: S608
                )
            except sqlite3.IntegrityError:
                return None
            db.commit()
        stores.append(open_store(f"sqlite:///{path}"))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


def read_all(store: SqlStore, recorded: Recorded) -> dict[str, set[object]]:
    """Every way of reading the store; returns what names the found rows."""
    book = store.load_book(EPOCH + timedelta(seconds=recorded.world["elapsed_s"]))
    store.due_intents()
    store.lease()
    for node in book.nodes:
        store.inventories(node)
    return {
        "book.incidents": set(book.incidents),
        "book.intents": set(book.intents),
        "book.nodes": set(book.nodes),
        "incidents": {i.id for i in store.incidents()},
        "intents": {i.key for i in store.intents()},
        "recoveries": {r.id for r in store.recoveries()},
        "findings": {f.finding.id for f in store.findings()},
        "events": set(range(len(store.events()))),
    }


def run_on(store: SqlStore, recorded: Recorded) -> Site:
    """A few turns; what was done before is not done again."""
    done = {i.key: i for i in store.intents() if i.state is IntentState.DONE}
    site = world.around(store, recorded.world)
    site.run(3)
    again = [
        i.key
        for i in store.intents()
        if i.state is IntentState.DONE and i.key not in done and _of(i.key) in map(_of, done)
    ]
    assert not again, "done twice"
    assert all(n == 1 for n in site.slurm.requeued.values())
    assert all(n == 1 for n in site.provider.terminated.values())
    return site


def _of(key: str) -> tuple[str, object]:
    parsed = StepKey.parse(key)
    return parsed.incident_id, parsed.step


def column_and_kind(table: str, column: str, how: str) -> set[object]:
    """Each column, and each damage of a column of each type."""
    return {(table, column), (type(metadata.tables[table].columns[column].type).__name__, how)}


@pytest.mark.slow
@pytest.mark.sampled(of=column_and_kind)
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[f"{t}.{c}" for t, c in COLUMNS])
def test_no_value_of_a_column_ends_anything(damaged: Damaged, table: str, column: str, how: str) -> None:
    recorded = moment(table)
    sound = damaged(table, column, column)
    assert sound is not None
    whole = read_all(sound, recorded)
    if (store := damaged(table, column, DAMAGES[how])) is None:
        return
    found = read_all(store, recorded)
    for noun, names in whole.items():
        assert len(names - found[noun]) <= 1, f"other {noun} are hidden"
    if how in TURNED:
        run_on(store, recorded)


PAGES = ("nodes", "incidents", "actions", "events", "jobs", "spares", "suppressions", "metrics")


@pytest.mark.slow
@pytest.mark.parametrize("table", [t for t in metadata.tables if t not in ("evidence", "tokens", "stamps", "lease")])
def test_pages_and_views_show_the_rest(
    damaged: Damaged, table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = moment(table)
    for column in metadata.tables[table].columns:
        store = damaged(table, column.name, DAMAGES["garbage"])
        if store is None:
            continue
        site = world.around(store, recorded.world)
        site.turn()
        served = ServedSite(site, store)

        def send(
            _client: ApiClient,
            method: str,
            path: str,
            body: bytes | None,
            headers: Mapping[str, str] = NO_HEADERS,
            served: ServedSite = served,
        ) -> bytes:
            got = served.call(method, path, content=body, headers=dict(headers))
            assert got.status_code == 200, f"{path}: {got.text}"
            return got.content

        monkeypatch.setenv("HOLDFAST_TOKEN", "any")
        monkeypatch.setattr(ApiClient, "_send", send)
        for page in (*PAGES, *(f"incidents/{i.id}" for i in store.incidents())):
            assert served.call("GET", f"/v1/{page}").status_code == 200, f"{column.name}: {page}"
        for verb in (("nodes",), ("incidents",), ("jobs",), *(("incident", "show", i.id) for i in store.incidents())):
            assert run(verb) == 0, column.name
        capsys.readouterr()


WORDS = [
    float("nan"),
    float("inf"),
    0.5,
    10**26,
    10**18,
    "",
    "gar bage",
    None,
    [],
    "\ud800",
    True,
    "9999-12-31T23:59:59+00:00",
]


@pytest.mark.parametrize("table", ["incidents", "intents", "recoveries", "findings", "nodes"])
def test_no_value_in_a_document_ends_a_turn(damaged: Damaged, table: str) -> None:
    """Each field of the newest row's document, each with one of these values in turn."""
    recorded = moment(table)
    sound = damaged(table, "document", "document")
    assert sound is not None
    whole = read_all(sound, recorded)
    with closing(sqlite3.connect(str(sound._url.database))) as db:
        (document,) = db.execute(f"SELECT document FROM {table} ORDER BY rowid DESC LIMIT 1").fetchone()  # noqa: S608
    for number, field in enumerate(sorted(json.loads(document))):
        word = WORDS[number % len(WORDS)]
        changed = json.dumps({**json.loads(document), field: word}).replace("Infinity", "1e999").replace("'", "''")
        store = damaged(table, "document", f"'{changed}'")
        assert store is not None
        found = read_all(store, recorded)
        for noun, names in whole.items():
            assert len(names - found[noun]) <= 1, f"{field}={word!r}: other {noun} are hidden"
        if number % 4 == 0:
            run_on(store, recorded)


def test_attempts_without_number_end_no_turn(damaged: Damaged) -> None:
    store = damaged("incidents", "document", "json_set(document, '$.repair_attempt', 9000000000000000)")
    assert store is not None
    run_on(store, moment("incidents"))


def test_a_time_that_is_none_is_reported_with_its_place(damaged: Damaged, caplog: pytest.LogCaptureFixture) -> None:
    store = damaged("incidents", "opened_at", "'gar bage'")
    assert store is not None
    read_all(store, moment("incidents"))
    (line,) = [r.getMessage() for r in caplog.records if "event=unreadable_document" in r.getMessage()]
    assert "table=incidents key=opened_at='gar bage'" in line


@pytest.mark.parametrize(("column", "value"), [("fence", "'garbage'"), ("expires_at", "'garbage'"), ("fence", "0.5")])
def test_a_lease_that_cannot_be_read_is_taken_with_a_greater_fence(damaged: Damaged, column: str, value: str) -> None:
    sound = damaged("lease", "holder", "holder")
    store = damaged("lease", column, value)
    assert sound is not None
    assert store is not None
    before, now = sound.lease(), EPOCH + timedelta(days=1)
    taken = store.take_lease("another", now, 15.0)
    assert before is not None
    assert taken is not None
    assert taken.fence > before.fence
    assert store.lease() == taken


@pytest.mark.parametrize("mismatch", ["id", "node"])
def test_an_incident_with_anothers_document_is_for_an_operator(damaged: Damaged, mismatch: str) -> None:
    store = damaged("incidents", "document", f"json_set(document, '$.{mismatch}', 'n3')")
    assert store is not None
    found = [i for i in store.incidents() if i.kind is IncidentKind.UNREADABLE]
    assert len(found) == 1
    assert "n3" not in (found[0].id, found[0].node)


@pytest.mark.parametrize("key", ["", "gar bage", "another/Drain/n1/1"])
def test_a_step_with_anothers_key_counts_as_failed(damaged: Damaged, key: str) -> None:
    store = damaged("intents", "document", f"json_set(document, '$.key', '{key}')")
    assert store is not None
    (unread,) = [i for i in store.intents() if isinstance(i.action, UnknownAction)]
    assert unread.state is IntentState.FAILED
    assert unread.key not in ("", key)
    run_on(store, moment("intents"))


def test_the_actor_is_given_no_order_of_an_agent(damaged: Damaged) -> None:
    """A damaged kind must not make a step of the actor's out of an order."""
    store = damaged("intents", "kind", "'Drain'")
    assert store is not None
    assert not [i for i in store.due_intents() if isinstance(i.action, SendOrder)]


@pytest.mark.slow
@pytest.mark.postgresql
def test_no_text_or_document_ends_anything_on_postgresql(
    templates: Callable[[str], Path], postgres_server: PostgresServer
) -> None:
    for table, column in COLUMNS:
        if table not in ("incidents", "intents", "recoveries", "nodes") or column in ("id", "key", "name"):
            continue
        kind = metadata.tables[table].c[column].type
        value = "'\"gar bage\"'" if isinstance(kind, JSON) else "'gar bage'" if isinstance(kind, SafeText) else ""
        if not value:
            continue
        url = postgres_server.url(postgres_server.create())
        copy_to_postgresql(templates(table), url)
        engine = writer_engine(parse_url(url))
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE {table} SET {column} = {value}"))  # noqa: S608
        engine.dispose()
        with closing(open_store(url)) as store:
            read_all(store, moment(table))
            world.around(store, moment(table).world).run(2)
