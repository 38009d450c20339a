"""What HyperPod did between two looks at its list: how mode ``observe`` records and times repairs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.providers.hyperpod.answers import PodNode


class Seen(StrEnum):
    """A change that the list shows."""

    APPEARED = "appeared"
    """A node name that was not there before."""
    REPLACED = "replaced"
    """The same node name, another instance id."""
    STATUS = "status"
    """The same machine, another status."""
    VANISHED = "vanished"
    """A machine, and no other of its name: not proof of anything, the list may be late."""


@dataclass(frozen=True, slots=True)
class Sighting:
    what: Seen
    instance_id: str
    """The machine now; for ``VANISHED`` the one that was."""
    node: str
    """Empty where the name is not known (yet)."""
    status: str
    """Status now; for ``VANISHED`` the last one."""
    before: str = ""
    """Earlier instance id for ``REPLACED``, earlier status for ``STATUS``."""


def sightings(before: Sequence[PodNode], now: Sequence[PodNode]) -> tuple[Sighting, ...]:
    """Changes from one complete list to the next, in order of the new list, vanished machines last."""
    return (*_arrivals(before, now), *_departures(before, now))


def _arrivals(before: Sequence[PodNode], now: Sequence[PodNode]) -> Iterator[Sighting]:
    known = {node.instance_id: node for node in before}
    holders = {node.node: node.instance_id for node in before if node.node}
    for node in now:
        earlier = known.get(node.instance_id)
        if earlier is None or (node.node and not earlier.node):
            # A new machine gets its name some time after its id: it is told when the name is there.
            old = holders.get(node.node, "") if node.node else ""
            if old:
                yield Sighting(Seen.REPLACED, node.instance_id, node.node, node.status, old)
                continue
        if earlier is None:
            yield Sighting(Seen.APPEARED, node.instance_id, node.node, node.status)
        elif earlier.status != node.status:
            yield Sighting(Seen.STATUS, node.instance_id, node.node, node.status, earlier.status)


def _departures(before: Sequence[PodNode], now: Sequence[PodNode]) -> Iterator[Sighting]:
    ids, names = {node.instance_id for node in now}, {node.node for node in now if node.node}
    for node in before:
        if node.instance_id not in ids and node.node not in names:
            yield Sighting(Seen.VANISHED, node.instance_id, node.node, node.status)
