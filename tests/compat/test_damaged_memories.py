"""Damaged memories, and those of another release: put aside, logged once, and the process that reads them at its start continues.

Every file and table that a Holdfast process reads back is in one of the lists here; the store's own are in ``test_unreadable_rows``."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.agent import SEEN_RIGHT_KEY, STANDING_KEY
from holdfast.agent.findings.finding_state import OpenFindings
from holdfast.agent.orders.orders import Orders
from holdfast.agent.selfcheck import running
from holdfast.agent.sending.memory import FILE, AgentMemory
from holdfast.agent.sending.outbox import Outbox, OutboxItem
from holdfast.agent.sending.reporting import STATUS_FILE
from holdfast.agent.sending.sender import Sender
from holdfast.agent.sources import kernel
from holdfast.agent.sources.gpus import INVENTORY_KEY, KnownGpus
from holdfast.agent.sources.kernel import CURSOR_KEY
from holdfast.controller import lease_holder
from holdfast.controller.wakeup import Alone
from holdfast.launcher.notices import LeaveNotice, append
from holdfast.quorum.service import read_key
from holdfast_checkpoint import lease
from holdfast_checks import manifest
from holdfast_checks.active import baseline
from holdfast_checks.cli import keep
from holdfast_checks.probes import known
from holdfast_checks.registry import NotGathered
from holdfast_checks.seen_right import SeenRight
from holdfast_train.failure.events import read_event
from recording.agents import DONE, ME, Wire, _remember

NEWER = """ALTER TABLE items ADD COLUMN shard TEXT NOT NULL DEFAULT 'a'; ALTER TABLE orders ADD COLUMN colour TEXT;
CREATE TABLE dreams (night INTEGER); PRAGMA user_version=7;"""
"""An agent of a later release has added what this one may skip."""
UNFIT = """DROP INDEX items_by_key; ALTER TABLE items RENAME TO before_it; CREATE TABLE items (seq INTEGER PRIMARY KEY, lane INTEGER,
  key TEXT, boot_id TEXT, monotonic_s REAL, wall_s REAL, body TEXT, must TEXT NOT NULL);
INSERT INTO items SELECT seq, lane, key, boot_id, monotonic_s, wall_s, body, 'x' FROM before_it; DROP TABLE before_it;
PRAGMA user_version=9;"""
"""A later release's table into which this one can write nothing."""
NOT_UTF8 = b"\xff\xfe\x00 no text"
VALUES: dict[str, object] = {
    "cut off": '{"kind": "find',
    "empty": "",
    "a list": "[1, 2]",
    "a number": "7",
    "null": "null",
    "deep": "[" * 100_000,
    "half a pair": '["\\ud800", {"a": "\\udfff"}]',
    "huge number": '["x", 1e999]',
    "blob": NOT_UTF8,
    "wrong types": '[["a", {}, 3, []], [1], "text", null]',
}
FILES: dict[str, bytes] = {
    "empty": b"",
    "garbage": bytes(range(256)) * 64,
    "text": b"no database at all\n" * 500,
    "a list": b"[1, 2]",
    "a number": b"7",
    "null": b"null",
    "deep": b"[" * 100_000,
    "not utf-8": NOT_UTF8,
    "half a pair": b'{"a": "\\ud800", "version": "\\udc00"}',
    "another version": b'{"version": 99, "v": 99, "boot_id": 3, "samples": [], "types": 4}',
}


@dataclass
class Ran:
    """What an agent did that started from a folder and sent everything that waited."""

    sent: list[dict[str, Any]]
    failing: tuple[str, ...]
    left: int
    told: list[OutboxItem]

    @property
    def items(self) -> list[dict[str, Any]]:
        return [item for body in self.sent for item in body["items"]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.items if item["kind"] == kind]


def start_agent(folder: Path) -> Ran:
    """The parts of an agent that read its memory, in their order, until all is sent and each order was asked for once more."""
    with closing(AgentMemory(folder)) as memory:
        outbox, standing, seen, told = Outbox(memory, ME.boot_id), OpenFindings(), SeenRight(), list[OutboxItem]()
        standing.load(memory.get(STANDING_KEY))
        seen.load(memory.get(SEEN_RIGHT_KEY))
        kernel._cursor(memory.get(CURSOR_KEY))
        KnownGpus.remembered(memory.get(INVENTORY_KEY), ME.boot_id).wire()
        orders = Orders(Wire.__new__(Wire), memory, ME, {}, told.append)
        orders._thread.start = lambda: None  # type: ignore[method-assign]
        orders.start()
        for name in [str(row[0]) for row in memory.read("SELECT id FROM orders")]:
            orders._book._answered_s[name] = float("-inf")
            assert not orders.take({"id": name, "verb": "validate", "expires_s": 60}), "carried out twice"
        outbox.put([OutboxItem({"kind": "finding", "check": "new.one", "code": "1"}, time.monotonic())])
        wire = Wire()
        sender = Sender(wire, outbox, ME, folder)
        for _ in range(200):
            if outbox.next_batch() is None:
                break
            sender._send_reports()
        return Ran([body for _, body in wire.sent], standing.failing, len(outbox), told)


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The folder of an agent that was killed with much in its memory."""
    folder = tmp_path / "agent"
    _remember(folder).close()
    return folder


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Log lines about something that cannot be read."""
    caplog.set_level(logging.WARNING)

    def lines() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        return [line for line in messages if line.partition(" ")[0].endswith("_unreadable")]

    return lines


def sound(tmp_path: Path) -> Ran:
    """What the same agent does with an undamaged memory."""
    _remember(tmp_path / "sound").close()
    return start_agent(tmp_path / "sound")


def faults(items: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return sorted((i["check"], str(i.get("component", "")), str(i.get("code", ""))) for i in items)


def put_aside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".unreadable-" in path.name)


@pytest.mark.parametrize("how", [h for h in FILES if h != "empty"])
def test_a_file_that_is_no_database_is_put_aside(agent: Path, how: str, errors: Callable[[], list[str]]) -> None:
    for name in (f"{FILE}-wal", f"{FILE}-shm"):
        (agent / name).unlink(missing_ok=True)
    (agent / FILE).write_bytes(FILES[how])
    ran = start_agent(agent)
    assert (faults(ran.of("finding")), ran.left) == ([("new.one", "", "1")], 0)
    (kept,) = put_aside(agent)
    assert (agent / kept).read_bytes() == FILES[how]
    (line,) = errors()
    assert kept in line
    assert " do=" in line
    with closing(AgentMemory(agent)) as memory:
        aside = memory.set_aside()
        assert (aside.count, aside.since_s is not None and abs(aside.since_s - time.time()) < 600) == (1, True)
    start_agent(agent)
    assert put_aside(agent) == [kept]


def test_what_can_be_read_of_a_damaged_file_is_kept(agent: Path, tmp_path: Path) -> None:
    """Pages of the table of orders are gone; the items can still be read."""
    with closing(sqlite3.connect(agent / FILE)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'orders'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (agent / FILE).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    ran = start_agent(agent)
    assert faults(ran.of("finding")) == faults(sound(tmp_path).of("finding"))
    assert ran.failing
    assert len([n for n in put_aside(agent) if not n.endswith(("-wal", "-shm"))]) == 1


@pytest.mark.parametrize("script", [NEWER, UNFIT], ids=["more columns", "unfit columns"])
def test_the_memory_of_a_newer_release_is_gone_on_from(agent: Path, script: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(agent / FILE)) as db:
        db.executescript(script)
    ran, whole = start_agent(agent), sound(tmp_path)
    assert faults(ran.of("finding")) == faults(whole.of("finding"))
    assert (ran.failing, ran.left) == (whole.failing, 0)
    assert len(ran.told) == len(whole.told)
    assert bool(put_aside(agent)) is (script is UNFIT)
    with closing(sqlite3.connect(agent / FILE)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
    assert version == (7 if script is NEWER else 1), "a newer release must find its own version again"


def test_a_disk_that_refuses_is_no_damage(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is put aside: with the disk the memory is there again."""
    before = (agent / FILE).read_bytes()

    def refuse(*_arguments: object, **_options: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(OSError, match="disk is full"):
        AgentMemory(agent)
    assert put_aside(agent) == []
    assert (agent / FILE).read_bytes() == before


ROWS = [
    *(("items", column) for column in ("body", "boot_id", "monotonic_s", "wall_s", "size", "key", "lane", "rank")),
    ("orders", "outcome"),
    *((f"meta:{key}", "value") for key in (STANDING_KEY, SEEN_RIGHT_KEY, CURSOR_KEY, INVENTORY_KEY, "outbox_id")),
]


@pytest.mark.sampled
@pytest.mark.parametrize("how", VALUES)
@pytest.mark.parametrize(("table", "column"), ROWS, ids=[f"{t}.{c}" for t, c in ROWS])
def test_no_value_of_the_agents_memory_ends_it(agent: Path, table: str, column: str, how: str) -> None:
    name, _, key = table.partition(":")
    with closing(sqlite3.connect(agent / FILE)) as db:
        where = "key = ?" if key else "? = ''"
        if key:
            db.execute("INSERT OR IGNORE INTO meta VALUES (?, '')", (key,))
        text = column in ("body", "outcome", "value")  # else of whatever type the damage is
        value = "CAST(? AS TEXT)" if text else "?"
        db.execute(f"UPDATE {name} SET {column} = {value} WHERE {where}", (VALUES[how], key))  # noqa: S608
        db.commit()
    ran = start_agent(agent)
    assert ("new.one", "", "1") in faults(ran.of("finding"))
    assert ran.left == 0


@pytest.mark.parametrize("how", VALUES)
def test_a_fault_whose_item_cannot_be_read_is_told_all_the_same(
    agent: Path, how: str, tmp_path: Path, errors: Callable[[], list[str]]
) -> None:
    with closing(sqlite3.connect(agent / FILE)) as db:
        (seq,) = db.execute("SELECT min(seq) FROM items WHERE key LIKE 'finding/gpu.remap/%'").fetchone()
        db.execute("UPDATE items SET body = CAST(? AS TEXT) WHERE seq = ?", (VALUES[how], seq))
        db.commit()
    ran = start_agent(agent)
    assert set(faults(ran.of("finding"))) == set(faults(sound(tmp_path).of("finding")))
    instead = [i for i in ran.of("finding") if i["check"] == "gpu.remap" and i["remedy"] == "human"]
    assert [(i["severity"], i["component"]) for i in instead] == [("degraded", "GPU-2")]
    (line,) = errors()
    assert " do=" in line
    with closing(sqlite3.connect(agent / FILE)) as db:
        db.text_factory = bytes
        (kept,) = [row[0] for row in db.execute("SELECT body FROM items WHERE seq = ?", (seq,))]
    assert kept == (VALUES[how] if isinstance(VALUES[how], bytes) else str(VALUES[how]).encode())
    assert not [i for i in start_agent(agent).of("finding") if i["check"] == "gpu.remap"], "reported twice"
    with closing(AgentMemory(agent)) as memory:
        assert memory.set_aside().count == 1


def test_a_standing_finding_beside_one_that_cannot_be_read_is_kept() -> None:
    standing = OpenFindings()
    standing.load('[["gpu.ecc", "GPU-1", "", "failed/fatal/reboot"], 7, ["a"], ["gpu.x", 3, null, 5]]')
    assert standing.failing == ("gpu.ecc",)


@pytest.mark.parametrize("how", VALUES)
def test_an_outcome_that_cannot_be_read_is_answered_as_a_failure(agent: Path, how: str) -> None:
    with closing(sqlite3.connect(agent / FILE)) as db:
        db.execute("UPDATE orders SET outcome = ? WHERE id LIKE '%validate%'", (VALUES[how],))
        db.commit()
    told = {str(item.body["order_id"]).split("/")[2]: item.body for item in start_agent(agent).told}
    assert told["validate"]["ok"] is False
    assert set(told) == {*DONE, "reset_gpu"}


def _claimed(path: Path) -> None:
    lease_holder.current(path)
    lock = Alone(path)
    lease_holder.claim(lock, "me")
    lock.release()


def _told(path: Path) -> None:
    """The launcher appends, the training reads."""
    read_event(str(path))
    append(path, LeaveNotice("drain", datetime(2026, 3, 1, 12, tzinfo=UTC)))
    event = read_event(str(path))
    assert event is None or event.reason == "drain"


def _refused(kind: type[Exception], read: Callable[[], object]) -> None:
    """Its reader says so, and its callers take it for a file that is not there."""
    try:
        read()
    except kind:
        return


READERS: dict[str, Callable[[Path], object]] = {
    "known_efa.json": lambda path: known.load(path.parent, "known_efa"),
    "samples.json": lambda path: keep.load(path, "boot-1"),
    "manifest.json": lambda path: _refused(NotGathered, lambda: manifest.load_manifest(path)),
    "baseline.json": lambda path: _refused(baseline.BadBaseline, lambda: baseline._read(path)),
    "quorum.key": read_key,
    "controller.lock": _claimed,
    STATUS_FILE: lambda path: running(path.parent),
    "events.jsonl": _told,
    ".holdfast/holder.json": lambda path: lease.sign(str(path.parents[1])),
}
"""Other files that a process reads back: the node's, the quorum service's, the controller's, the launcher's, a job's."""


@pytest.mark.parametrize("how", FILES)
@pytest.mark.parametrize("name", READERS)
def test_no_file_ends_who_reads_it(tmp_path: Path, name: str, how: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(FILES[how])
    READERS[name](path)


@pytest.mark.parametrize("name", ["known_efa.json", "samples.json", "quorum.key"])
def test_a_file_that_will_be_written_again_is_put_aside_first(
    tmp_path: Path, name: str, errors: Callable[[], list[str]]
) -> None:
    (tmp_path / name).write_bytes(b"[1, 2")
    READERS[name](tmp_path / name)
    READERS[name](tmp_path / name)
    (kept,) = put_aside(tmp_path)
    assert (tmp_path / kept).read_bytes() == b"[1, 2"
    (line,) = errors()
    assert kept in line
    assert " do=" in line
