"""Nodes whose heartbeat is overdue and that are not silent yet: the head node asks their kernels. Pure.

Those that are cut off with a node may report again before they count as silent, and so leave it to be judged alone (docs/decisions/0024).
An overdue heartbeat alone shows nothing: an agent restarts, is slow, or reports an interval that it does not keep. A kernel that does not
answer either is evidence that no agent can fake."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

from holdfast.decisions.common.once import once_per_world
from holdfast.model.agents.reach import HeadProbe
from holdfast.model.book import World

OVERDUE_S = 1.0
"""A heartbeat that comes so much later than it was due is overdue."""
LEAST_S = 5.0
"""No agent is late before this, whatever interval it says: the shortest that the controller gives
(``controller/timing/pace.py``), overdue."""
MOST = 64
"""Asked in one round of connects: where the controller itself was held up, every agent is late. One companion is enough to show a cut."""


@once_per_world
def nodes(world: World) -> Mapping[str, datetime]:
    """Nodes whose agents' heartbeats are all overdue, with the time of the last report; silent ones too."""
    intervals = {a.heartbeat_interval_s for agents in world.agents.values() for a in agents}
    before = {s: world.now - timedelta(seconds=max(LEAST_S, s + OVERDUE_S)) for s in intervals}
    return {
        node: max(a.last_heard for a in agents)
        for node, agents in world.agents.items()
        if agents and all(a.last_heard < before[a.heartbeat_interval_s] for a in agents)
    }


def to_ask(world: World, silent: Collection[str], asked: Mapping[str, HeadProbe]) -> tuple[str, ...]:
    """Nodes to connect to now, once for each gap between heartbeats. ``silent``: all silent nodes, which are asked anyway; ``asked``: the
    newest connect to each node."""
    if world.view is None:
        return ()
    quiet, shown = frozenset(silent), world.view.nodes
    due = [
        (heard, name)
        for name, heard in nodes(world).items()
        if name not in quiet
        and name in shown
        and not (shown[name].asleep or shown[name].reboot_issued)
        and not (name in asked and asked[name].at > heard)
    ]
    return tuple(name for _, name in sorted(due)[:MOST])


def unreached(world: World) -> Iterator[str]:
    """Late nodes whose kernel has not answered the head node either since their last report."""
    for name, heard in nodes(world).items():
        probe = world.head.get(name)
        if probe is not None and not probe.answered and probe.at > heard:
            yield name
