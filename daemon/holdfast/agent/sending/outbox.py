"""Outbox: items for the controller, on disk before they count, limited in size, sent as reports that keep their name.

A report is named by the highest item number in it, and sealed (its items recorded) before it is sent, so that the same name never
stands for other items. Two lanes are never mixed in one report: findings, clears and outcomes go first, the rest after them.
A sealed report keeps its name and items until it was answered, also across ``kill -9``. Users take turns
(:mod:`holdfast.agent.node.shares`). An item that cannot be read stays in its row, in a lane that is never sent; if it was about a fault,
that fault is still reported.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.agent.node.shares import Waiting, next_report, owner_of, said_by, too_many
from holdfast.agent.sending import kept
from holdfast.agent.sending.deadletters import DeadLetters
from holdfast.agent.sending.kept import COLUMNS, KeptItem
from holdfast.agent.sending.memory import ASIDE, ASIDE_SINCE, AgentMemory, set_in

log = logging.getLogger(__name__)

BATCH_BYTES = 900_000
"""Size limit of a report: below the API's 1 MiB, with room for the envelope. Counted as sent: UTF-8."""
BATCH_ITEMS = 500
BULK_ITEMS = 100
"""Maximum of non-urgent items per report: what the controller accepts from one node in two seconds, so that a fault never waits longer."""
_URGENT, _BULK = 0, 1
_LANE = {"finding": _URGENT, "clear": _URGENT, "order_outcome": _URGENT}
_RANK = {"progress": 0, "statement": 2, "inventory": 1, "clear": 3}
"""Drop order when the outbox is full: users' statements, then the rest, low rank first. Findings and outcomes (rank 9) are kept."""
_SAID = (_RANK["progress"], _RANK["statement"])
_SPARE = 16
"""A full outbox frees one 16th of its content, so that it need not search for items to drop each time."""
_REPEATED = 4
"""Rank of a finding when an earlier finding of the same fault still waits: the earlier one is enough when there is no room for both."""
_KEPT = 9
_MEMORY_ITEMS = 1000
"""Maximum items in memory while the disk refuses writes; findings beyond it are still kept."""


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """One thing to report; ``body`` is the wire's item without its age."""

    body: Mapping[str, Any]
    monotonic_s: float
    """When it happened on this boot's CLOCK_MONOTONIC: the age is counted from here."""
    key: str = ""
    """Waiting items with the same key replace each other (progress); empty: never replaced."""

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def is_progress(self) -> bool:
        return self.body.get("statement") == "progress"

    @property
    def name(self) -> str:
        """Subject of the item: its user and key, or for a finding the fault that it reports."""
        if self.kind == "statement":
            return said_by(self.body.get("uid"), self.key)
        if self.kind != "finding":
            return self.key
        return "/".join(["finding", *(str(self.body.get(part, "")) for part in ("check", "component", "code"))])


@dataclass(frozen=True, slots=True)
class Batch:
    """One report in flight."""

    sequence: int
    boot_id: str
    items: tuple[dict[str, Any], ...]
    """Items as on the wire, with the current ``age_s``."""
    numbers: tuple[int, ...]


class Outbox:
    """The outbox. Thread-safe. ``put`` never raises for a full disk: it keeps the items in memory and returns False."""

    def __init__(
        self, memory: AgentMemory, boot_id: str, *, max_items: int = 10_000, max_bytes: int = 16 * 1024 * 1024
    ) -> None:
        self._memory = memory
        self._boot_id = boot_id
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._overflow: list[OutboxItem] = []
        self._dead = DeadLetters()
        self._accepted: set[int] = set()
        """Items that the controller accepted but the disk refused to delete."""
        self._placed_s: dict[int, float] = {}
        """Item of progress → since when it, or an item that it replaced, has waited (CLOCK_MONOTONIC)."""
        self._lock = threading.Lock()
        self.id = memory.get("outbox_id") or ""
        with memory.transaction(durable=False) as db:
            db.execute("UPDATE items SET lane = ? WHERE lane NOT IN (?, ?, ?)", (_URGENT, _URGENT, _BULK, ASIDE))
            self._count, self._bytes = _waiting(db)

    def __len__(self) -> int:
        return int(self._count) + len(self._overflow)

    def put(self, items: Iterable[OutboxItem], facts: Mapping[str, str] | None = None, *, durable: bool = True) -> bool:
        """Add items, and set facts (a cursor, the open findings) in the same transaction. False: in memory only."""
        with self._lock:
            fresh = [*self._overflow, *items]
            try:
                self._write(fresh, facts or {}, durable=durable)
            except sqlite3.Error as error:
                if not self._overflow:
                    log.error(
                        "event=outbox_disk_refused path=%s error=%r effect=items_kept_in_memory",
                        self._memory.path,
                        str(error),
                    )
                self._overflow = _bounded(fresh)
                return False
            if self._overflow:
                log.warning("event=outbox_disk_back items=%d", len(self._overflow))
            self._overflow = []
            return True

    def _write(self, items: list[OutboxItem], facts: Mapping[str, str], *, durable: bool) -> None:
        with self._memory.transaction(durable=durable) as db:
            for item in items:
                self._insert(db, item)
            for key, value in facts.items():
                set_in(db, key, value)
            count, size = _waiting(db)
            dropped = self._make_room(db, count, size)
            if dropped:
                count, size = _waiting(db)
        self._count, self._bytes = count, size

    def _insert(self, db: sqlite3.Connection, item: OutboxItem) -> None:
        body = _unicode(json.dumps(item.body, separators=(",", ":"), ensure_ascii=False))
        name = _unicode(item.name)
        wall_s = time.time() - (time.monotonic() - item.monotonic_s)
        rank = _RANK.get("progress" if item.is_progress else item.kind, _KEPT)
        if item.kind == "finding" and db.execute("SELECT 1 FROM items WHERE key = ?", (name,)).fetchone():
            rank = _REPEATED
        lane, size = _LANE.get(item.kind, _BULK), len(body.encode())
        if item.key and self._replace(
            db, item, (rank, self._boot_id, item.monotonic_s, wall_s, size, body, name, lane)
        ):
            return
        values = (lane, rank, name, self._boot_id, item.monotonic_s, wall_s, size, body)
        number = db.execute(
            "INSERT INTO items (lane, rank, key, boot_id, monotonic_s, wall_s, size, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        ).lastrowid
        if item.is_progress and number is not None:
            self._placed_s[number] = item.monotonic_s

    def _replace(self, db: sqlite3.Connection, item: OutboxItem, values: tuple[object, ...]) -> bool:
        """Replace the item of the same name that is in no report yet. False: there is none."""
        row = db.execute(
            "SELECT seq, monotonic_s FROM items WHERE key = ? AND lane = ? AND report IS NULL", values[-2:]
        ).fetchone()
        if row is None:
            return False
        db.execute(
            "UPDATE items SET rank = ?, boot_id = ?, monotonic_s = ?, wall_s = ?, size = ?, body = ? WHERE seq = ?",
            (*values[:-2], row[0]),
        )
        if item.is_progress:
            self._placed_s.setdefault(row[0], item.monotonic_s)
        return True

    def _make_room(self, db: sqlite3.Connection, count: int, size: int) -> int:
        if count <= self._max_items and size <= self._max_bytes:
            return 0
        items = count - self._max_items + self._max_items // _SPARE if count > self._max_items else 0
        surplus = size - self._max_bytes + self._max_bytes // _SPARE if size > self._max_bytes else 0
        rows = db.execute(
            "SELECT seq, size, key, rank FROM items WHERE rank < ? AND lane <> ? ORDER BY rank, seq", (_KEPT, ASIDE)
        ).fetchall()
        sizes = {row[0]: kept.whole(row[1]) for row in rows}
        said = [
            Waiting(seq, sizes[seq], owner_of(key), lasting=rank == _RANK["progress"])
            for seq, _size, key, rank in rows
            if rank in _SAID
        ]
        gone = too_many(said, items, surplus)
        items, surplus = items - len(gone), surplus - sum(sizes[seq] for seq in gone)
        for seq in (row[0] for row in rows if row[3] not in _SAID):
            if items <= 0 and surplus <= 0:
                break
            gone.append(seq)
            items, surplus = items - 1, surplus - sizes[seq]
        db.executemany("DELETE FROM items WHERE seq = ?", [(seq,) for seq in gone])
        left, size = count - len(gone), size - sum(sizes[seq] for seq in gone)
        log.warning("event=outbox_full dropped=%d items=%d bytes=%d", len(gone), left, size)
        return len(gone)

    def words_wait_s(self) -> float:
        """How long the oldest progress report has waited, counted from the first item that it replaced: all earlier progress of any job
        here has been sent. 0: none waits."""
        with self._lock:
            oldest = [item.monotonic_s for item in self._overflow if item.is_progress]
            if self._count:
                oldest += self._places()
            return max(0.0, time.monotonic() - min(oldest, default=math.inf))

    def _places(self) -> list[float]:
        query = f"SELECT seq, boot_id, monotonic_s FROM items WHERE rank = {_RANK['progress']} AND lane <> {ASIDE}"  # noqa: S608
        try:
            rows = self._memory.read(query)
        except sqlite3.Error:
            return list(self._placed_s.values())
        now_s = {seq: at_s for seq, boot_id, at_s in rows if boot_id == self._boot_id and isinstance(at_s, float)}
        self._placed_s = {seq: self._placed_s.get(seq, at_s) for seq, at_s in now_s.items()}
        return list(self._placed_s.values())

    def next_batch(self) -> Batch | None:
        """The report to send now: a sealed one again, else the oldest of the urgent lane, else of the other. None: nothing."""
        with self._lock:
            if not len(self) and not self._accepted:
                return None  # the usual case at a heartbeat: the disk is not read
            try:
                with self._memory.transaction(durable=False) as db:
                    rows = self._choose(db)
            except sqlite3.Error as error:
                log.warning(
                    "event=outbox_disk_refused path=%s error=%r effect=sent_unsealed", self._memory.path, str(error)
                )
                rows = self._unsealed()
            if rows:
                return _batch(rows, self._boot_id)
            return self._from_memory()

    def _choose(self, db: sqlite3.Connection) -> list[KeptItem]:
        self._forget_accepted(db)
        while True:
            rows = self._oldest(db)
            unreadable = [row for row in rows if row.body is None]
            for row in unreadable:
                self._put_aside(db, row)
            if not unreadable:
                self._seal(db, [row.seq for row in rows if row.report is None])
                return rows
            self._count, self._bytes = _waiting(db)

    def _oldest(self, db: sqlite3.Connection) -> list[KeptItem]:
        for lane in (_URGENT, _BULK):
            sealed = db.execute("SELECT min(report) FROM items WHERE lane = ?", (lane,)).fetchone()[0]
            if sealed is not None:
                return self._rows(db, "report = ? AND lane <> ? ORDER BY seq", (sealed, ASIDE))
            found = db.execute(
                "SELECT seq, size, key, boot_id, monotonic_s FROM items WHERE lane = ? AND report IS NULL ORDER BY seq",
                (lane,),
            )
            waiting = (
                Waiting(seq, kept.whole(size), owner_of(key), of if kept.is_placed(of, at_s) else self._boot_id)
                for seq, size, key, of, at_s in found
            )
            numbers = next_report(waiting, BATCH_ITEMS if lane == _URGENT else BULK_ITEMS, BATCH_BYTES)
            if numbers:
                marks = ", ".join("?" * len(numbers))
                return self._rows(db, f"seq IN ({marks}) ORDER BY seq", tuple(numbers))
        return []

    def _rows(self, db: sqlite3.Connection, where: str, values: tuple[object, ...]) -> list[KeptItem]:
        found = db.execute(f"SELECT {COLUMNS} FROM items WHERE {where}", values)  # noqa: S608
        return [KeptItem.read(row, self._boot_id) for row in found]

    def _put_aside(self, db: sqlite3.Connection, row: KeptItem) -> None:
        """Keep the row unchanged and unsent; if it was about a fault, a finding replaces it in the outbox."""
        db.execute("UPDATE items SET lane = ?, rank = ?, report = NULL WHERE seq = ?", (ASIDE, _KEPT, row.seq))
        if db.execute("SELECT count(*) FROM items WHERE lane = ?", (ASIDE,)).fetchone()[0] == 1:
            set_in(db, ASIDE_SINCE, str(time.time()))
        body = kept.instead(row.key)
        if body is not None:
            self._insert(db, OutboxItem(body, row.monotonic_s))
        effect = "reported as a fault for an operator" if body is not None else "not sent"
        log.error("event=item_unreadable item=%d about=%r effect=%r do=%r", row.seq, row.key, effect, kept.DO)

    def _unsealed(self) -> list[KeptItem]:
        """While the disk refuses writes: only the oldest item, as a report whose name need not be recorded on disk."""
        query = f"SELECT {COLUMNS} FROM items WHERE lane <> {ASIDE} ORDER BY lane, seq"  # noqa: S608
        try:
            rows = [
                KeptItem.read(row, self._boot_id) for row in self._memory.read(query) if row[0] not in self._accepted
            ]
        except sqlite3.Error as error:
            log.error("event=outbox_read_failed path=%s error=%r", self._memory.path, str(error))
            return []
        return [row for row in rows if row.body is not None][:1]

    def _forget_accepted(self, db: sqlite3.Connection) -> None:
        if self._accepted:
            db.executemany("DELETE FROM items WHERE seq = ?", [(number,) for number in self._accepted])
            self._accepted.clear()

    @staticmethod
    def _seal(db: sqlite3.Connection, numbers: list[int]) -> None:
        """Combine these into one report, named by the last."""
        db.executemany("UPDATE items SET report = ? WHERE seq = ?", [(numbers[-1], number) for number in numbers])

    def _from_memory(self) -> Batch | None:
        """While the disk refuses writes: one item at a time, named far above every number that the disk will assign."""
        if not self._overflow:
            return None
        item = self._overflow[0]
        sequence = (1 << 53) + time.monotonic_ns() // 1000
        return Batch(
            sequence, self._boot_id, ({**item.body, "age_s": max(0.0, time.monotonic() - item.monotonic_s)},), ()
        )

    def accepted(self, batch: Batch) -> None:
        """Delete a report that the controller has on its disk."""
        self._remove(batch)

    def _remove(self, batch: Batch) -> None:
        with self._lock:
            if not batch.numbers:
                del self._overflow[:1]
                return
            try:
                with self._memory.transaction(durable=False) as db:
                    db.executemany("DELETE FROM items WHERE seq = ?", [(number,) for number in batch.numbers])
                    self._count, self._bytes = _waiting(db)
            except sqlite3.Error as error:
                self._accepted.update(batch.numbers)
                log.warning(
                    "event=outbox_disk_refused path=%s error=%r effect=forgotten_later", self._memory.path, str(error)
                )

    def split(self, batch: Batch) -> bool:
        """Split a report that the controller refused into two reports. False: the disk refused."""
        middle = len(batch.numbers) // 2
        halves = (batch.numbers[:middle], batch.numbers[middle:])
        try:
            with self._lock, self._memory.transaction(durable=False) as db:
                for half in halves:
                    self._seal(db, list(half))
        except sqlite3.Error as error:
            log.warning(
                "event=outbox_disk_refused path=%s error=%r effect=report_not_split", self._memory.path, str(error)
            )
            return False
        return True

    def park(self, batch: Batch, folder: Path, reason: str) -> bool:
        """Remove a report that no controller will ever accept; :meth:`write_off` keeps it. False: the disk refused, it stays."""
        if not self.write_off(batch, batch.items, folder, reason):
            return False
        self._remove(batch)
        return True

    def write_off(self, batch: Batch, items: tuple[Mapping[str, Any], ...], folder: Path, reason: str) -> bool:
        """Write items of a report to the dead letters, except jobs' statements. False: the disk refused."""
        return self._dead.write(batch.sequence, batch.boot_id, items, folder, reason)


def _waiting(db: sqlite3.Connection) -> tuple[int, int]:
    """Number and bytes of the items that are to be sent."""
    size = "CASE WHEN typeof(size) = 'integer' THEN size ELSE 0 END"
    count, total = db.execute(f"SELECT count(*), total({size}) FROM items WHERE lane <> ?", (ASIDE,)).fetchone()  # noqa: S608
    return count, int(total)


def _batch(rows: list[KeptItem], boot_id: str) -> Batch:
    last = rows[-1]
    name = last.seq if last.report is None else last.report  # a sealed report whose last item cannot be read
    return Batch(name, rows[0].boot_id, tuple(row.wire(boot_id) for row in rows), tuple(row.seq for row in rows))


def _bounded(items: list[OutboxItem]) -> list[OutboxItem]:
    """Newest item of each key, then the newest items within the limit; findings and outcomes always."""
    last = {item.key: index for index, item in enumerate(items) if item.key}
    kept = [item for index, item in enumerate(items) if not item.key or last[item.key] == index]
    spare = [
        Waiting(index, 1, owner_of(item.name), lasting=item.is_progress)
        for index, item in enumerate(kept)
        if item.kind not in ("finding", "order_outcome")
    ]
    gone = set(too_many(spare, len(kept) - _MEMORY_ITEMS, 0))
    return [item for index, item in enumerate(kept) if index not in gone]


def _unicode(text: str) -> str:
    """The text without lone surrogates, which can be neither stored nor sent: a check's text may contain one."""
    return text.encode(errors="replace").decode()
