"""Nodes without an agent: only the head node's connects show whether they answer. Pure.

They are no witnesses and never get a verdict. But one that answered before and no longer does may be cut off together with a node that fell
silent (docs/decisions/0024). So the head node connects to each now and then, and again once a node falls silent, those of its failure
domain first. A node that never answered does not count: a firewall or another port may be the cause."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

from holdfast.decisions.death import domains, ordered
from holdfast.model.agents.reach import HeadProbe
from holdfast.model.book import World

EVERY_S = 300.0
"""Between two connects to a node while nothing is silent: slurmd logs each as an error."""
MOST = 512
"""Asked in one round of connects."""
FAILURES = 2
"""A node does not answer once this many connects in a row got no answer: one may be lost."""


def names(world: World) -> list[str]:
    """Nodes whose agent has never reported, and that Slurm's power saving has not switched off."""
    if world.view is None:
        return []
    agents, known = world.agents, world.book.nodes
    return [
        name
        for name, shown in world.view.nodes.items()
        if not agents.get(name) and (name not in known or not known[name].boot_id) and not shown.asleep
    ]


def to_ask(world: World, silent: Collection[str], asked: Mapping[str, HeadProbe]) -> tuple[str, ...]:
    """Nodes to connect to now, the most urgent first. ``silent``: all silent nodes; ``asked``: the newest connect to each node."""
    beats = (
        a.last_heard + timedelta(seconds=2 * a.heartbeat_interval_s) for n in silent for a in world.agents.get(n, ())
    )
    newest = max((at for at in beats if at <= world.now), default=None)
    around = {_domain(world, name) for name in silent} - {None}
    urgent: list[tuple[int, datetime, str]] = []
    for name in names(world):
        probe = asked.get(name)
        if probe is None:
            urgent.append((3, world.now, name))
        elif probe.answered_at is not None and 0 < probe.failures < FAILURES:
            urgent.append((0, probe.at, name))
        elif probe.answered_at is not None and newest is not None and probe.at <= newest:
            urgent.append((1 if _domain(world, name) in around else 2, probe.at, name))
        elif world.now - probe.at >= timedelta(seconds=EVERY_S):
            urgent.append((3, probe.at, name))
    return tuple(name for _, _, name in sorted(urgent)[:MOST])


def stopped(world: World) -> Iterator[tuple[str, datetime, datetime]]:
    """Those that answered before and do not now: name, when they last did, and when they did not for the first time."""
    for name in names(world):
        probe = world.head.get(name)
        if probe is None or probe.failures < FAILURES or not (probe.answered_at and probe.failing_since):
            continue
        if not ordered.by_slurm(world, name, probe.answered_at):
            yield name, probe.answered_at, probe.failing_since


def awaited(world: World, node: str, since: datetime) -> bool:
    """Whether it is still to be seen if a node of the same failure domain, which answered before, answered after this."""
    domain = _domain(world, node)
    return domain is not None and any(
        _pending(world.head.get(name), since) for name in names(world) if _domain(world, name) == domain
    )


def _pending(probe: HeadProbe | None, since: datetime) -> bool:
    if probe is None or probe.answered_at is None:
        return False
    return probe.at <= since if probe.answered else probe.failures < FAILURES


def _domain(world: World, name: str) -> str | None:
    shown = world.view.nodes.get(name) if world.view is not None else None
    return domains.domain_of(shown, world.policy.death, world.background.addresses) if shown is not None else None
