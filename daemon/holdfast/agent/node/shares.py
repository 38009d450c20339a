"""Fair shares of the outbox: no user's statements keep another's from being sent or stored. Pure.

Any user on the node may send many statements. So the next report takes one item of each user, then a second of each, and so on; and when
the outbox is full, items of the user with the most waiting items are dropped."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

ENVELOPE_BYTES = 32
"""Bytes of an item on the wire in addition to its body: its age and a comma."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One waiting item."""

    number: int
    """Number of the item; items are ordered by it."""
    size: int
    """Size of its body as sent, in bytes."""
    owner: str
    """The user whose statement it is; empty: the node's own."""
    boot_id: str = ""
    lasting: bool = False
    """Dropped last of its owner's items when there is no room: of progress only one item of each run waits."""


def said_by(uid: object, key: str) -> str:
    """Name of an item with a user's statement. ``key``: it replaces a waiting item with this key; empty: none."""
    return f"said/{uid}/{key}"


def owner_of(name: object) -> str:
    """Owner from the item's name; empty: the node's own."""
    kind, _, rest = name.partition("/") if isinstance(name, str) else ("", "", "")
    return rest.partition("/")[0] if kind == "said" else ""


def next_report(waiting: Iterable[Waiting], most_items: int, most_bytes: int) -> list[int]:
    """The items of the next report in order: the oldest of each owner, then each one's second; all from the boot of the oldest, at least
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
    """Items to drop, so that there are this many ``items`` and bytes less: each time the oldest of the owner with the most."""
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
