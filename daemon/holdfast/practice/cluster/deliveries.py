"""Planned defects of the next machines of a practice site, in order: set from outside, consumed one by one as they boot."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from holdfast.practice.cluster.host import PracticeHost
from holdfast.practice.nvml import state as nvml

_FILE = "etc/deliveries.json"


class Delivery(StrEnum):
    """Kind of a machine to be delivered."""

    GOOD = "good"
    FAULTY = "faulty"
    """It comes without its last GPU."""
    SAME = "same"
    """The old hardware comes back: the same GPU UUIDs, under any id."""


def arrange(folder: Path, deliveries: Sequence[Delivery]) -> None:
    """The next machines of the site in this folder; those after them are good."""
    with _book(folder) as book:
        book[:] = [str(one) for one in deliveries]


def install_next(folder: Path, host: PracticeHost, instance_id: str) -> Delivery:
    """Put the next delivery's hardware into a host. Takes it off the list."""
    with _book(folder) as book:
        delivery = Delivery(book.pop(0)) if book else Delivery.GOOD
    host.replace_hardware(instance_id, same=delivery is Delivery.SAME)
    if delivery is Delivery.FAULTY:
        nvml.remove_gpu(host.nvml_state, len(nvml.read(host.nvml_state).gpus) - 1)
    return delivery


@contextmanager
def _book(folder: Path) -> Iterator[list[str]]:
    with (folder / _FILE).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        book: list[str] = json.loads(file.read() or "[]")
        yield book
        file.truncate(0)
        file.write(json.dumps(book))
