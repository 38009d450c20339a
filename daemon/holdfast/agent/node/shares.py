"""Whose words wait in the outbox, and in which turn they go: no user's words keep another's from being sent or kept. Pure.

Any user on the node may say much. So the next report takes one item of each, then a second of each, and so on; and when the outbox is full,
the words go of whom the most wait."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

ENVELOPE_BYTES = 32
"""What an item has on the wire beside its body: its age and a comma."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One item that waits."""

    number: int
    """Items are in the order of their numbers."""
    size: int
    """Of its body as it is sent, in bytes."""
    owner: str
    """Whose words it holds; empty: the node's own."""
    boot_id: str = ""
    lasting: bool = False
    """Of its owner's words it goes last when there is no room: of progress one item of each run waits."""


def said_by(uid: object, key: str) -> str:
    """The name of an item that holds a user's words. ``key``: what it replaces while it waits, empty: nothing."""
    return f"said/{uid}/{key}"


def owner_of(name: object) -> str:
    """By the item's name; empty: the node's own."""
    kind, _, rest = name.partition("/") if isinstance(name, str) else ("", "", "")
    return rest.partition("/")[0] if kind == "said" else ""


def next_report(waiting: Iterable[Waiting], most_items: int, most_bytes: int) -> list[int]:
    """The items of the next report in their order: the oldest of each owner, then each one's second; all of the oldest's boot, at least
    one. ``waiting``: in order."""
    rows = list(waiting)
    queues: defaultdict[str, deque[Waiting]] = defaultdict(deque)
    for row in rows:
        if row.boot_id == rows[0].boot_id:
            queues[row.owner].append(row)
    taken: list[int] = []
    total = 0
    while queues:
        for owner in list(queues):
            row = queues[owner].popleft()
            if not queues[owner]:
                del queues[owner]
            total += row.size + ENVELOPE_BYTES
            if taken and (total > most_bytes or len(taken) >= most_items):
                return sorted(taken)
            taken.append(row.number)
    return sorted(taken)


def too_many(waiting: Iterable[Waiting], items: int, size: int) -> list[int]:
    """Items that go, so that there are so many ``items`` and bytes less: each time the oldest of whom the most wait."""
    queues: defaultdict[str, deque[Waiting]] = defaultdict(deque)
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for row in sorted(waiting, key=lambda r: (r.lasting, r.number)):
        queues[row.owner].append(row)
        count[row.owner] += 1
        total[row.owner] += row.size
    gone: list[int] = []
    while queues and (items > 0 or size > 0):
        of = total if size > 0 else count
        owner = max(queues, key=lambda o: of[o])
        row = queues[owner].popleft()
        if not queues[owner]:
            del queues[owner]
        count[owner] -= 1
        total[owner] -= row.size
        items, size = items - 1, size - row.size
        gone.append(row.number)
    return gone
