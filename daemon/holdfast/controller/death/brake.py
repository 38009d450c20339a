"""Many nodes silent at once are one cause: a cut network, a bad roll-out, a lost rack. Pure.

Nothing is concluded from it about any of them until power says off; the operator is told once, with what their jobs do meanwhile."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.controller import facts, hands_off
from holdfast.controller.death import domains, evidence
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.incident import Incident, IncidentKind
from holdfast.model.lookback import DEATHS_S

FLEET = "the cluster"


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that fell silent within ten minutes of each other."""

    where: str
    """Their failure domain, or :data:`FLEET`."""
    nodes: tuple[str, ...]
    """Also those that report again since less than ten minutes: the last ones of a cut that ends are not deaths."""
    silent: int
    """How many of them do not report now."""
    since: datetime
    """When the first of them was last heard."""
    jobs_advance: bool
    """The steps of a job of theirs still advance on its other nodes."""
    most: int
    """How many deaths at once are allowed there."""

    @property
    def text(self) -> str:
        """``31 nodes of 10.2.3.0/24 do not report; their job advances``."""
        jobs = "; their job advances" if self.jobs_advance else ""
        return f"{self.silent} nodes of {self.where} do not report{jobs}"


def silent_since(world: World, silent: Collection[str]) -> dict[str, datetime]:
    """Node → when it was last heard, of silent nodes that count as deaths: neither asleep nor taken out of service by someone else."""
    view = world.view
    if view is None:
        return {}
    fault_at = {i.node: i.fault_at for i in world.book.open_incidents() if i.dead or i.kind is IncidentKind.SILENCE}
    found: dict[str, datetime] = {}
    for name in silent:
        shown = view.nodes.get(name)
        if (
            shown is None
            or facts.drained_by_others(world, shown)
            or hands_off.explains_silence(world, name) is not None
        ):
            continue
        heard = max((a.last_heard for a in world.agents.get(name, ())), default=None)
        found[name] = heard or fault_at.get(name) or world.listening_since or world.now
    return found


def _silent_before(world: World) -> dict[str, datetime]:
    """Node → when it was last heard, of nodes that were silent and report again since less than ten minutes."""
    return {
        i.node: i.fault_at
        for i in world.book.incidents.values()
        if i.kind is IncidentKind.SILENCE
        and i.closed_at is not None
        and world.now - i.closed_at <= timedelta(seconds=DEATHS_S)
    }


def groups(world: World, silent: Collection[str]) -> tuple[Group, ...]:
    """Where more nodes fell silent at once than deaths are believed. ``silent``: all silent nodes."""
    view = world.view
    now_silent = silent_since(world, silent)
    death = world.policy.death
    if view is None or not now_silent:
        return ()
    since = {**_silent_before(world), **now_silent}
    found = [
        (domain, members, max(1, math.floor(len(members) * death.deaths_domain_share)))
        for domain, members in domains.domains(view, death, world.background.addresses).items()
    ]
    most = max(death.deaths_10min, math.floor(len(view.nodes) * death.deaths_10min_share))
    found.append((FLEET, tuple(since), most))
    together = (
        Group(
            where,
            nodes,
            sum(1 for n in nodes if n in now_silent),
            min(since[n] for n in nodes),
            _jobs_advance(world, view, nodes),
            limit,
        )
        for where, members, limit in found
        for nodes in _together({n: since[n] for n in members if n in since}, limit)
    )
    return _widest(together)


def _together(since: Mapping[str, datetime], most: int) -> list[tuple[str, ...]]:
    """Largest sets of more than ``most`` nodes that fell silent within ten minutes, one for each node that begins one."""
    ordered = sorted(since, key=lambda n: (since[n], n))
    found: list[tuple[str, ...]] = []
    end = 0
    for begin, name in enumerate(ordered):
        while end < len(ordered) and since[ordered[end]] - since[name] <= timedelta(seconds=DEATHS_S):
            end += 1
        if end - begin > most and not (found and set(ordered[begin:end]) <= set(found[-1])):
            found.append(tuple(ordered[begin:end]))
    return found


def _widest(found: Iterable[Group]) -> tuple[Group, ...]:
    """A group whose nodes are all in another is no cause of its own; of two with the same nodes the domain has the name."""
    ordered = sorted(found, key=lambda g: (-len(g.nodes), g.where == FLEET, g.since, g.where))
    kept: list[Group] = []
    for group in ordered:
        if not any(set(group.nodes) <= set(other.nodes) for other in kept):
            kept.append(group)
    return tuple(kept)


def _jobs_advance(world: World, view: ClusterView, nodes: tuple[str, ...]) -> bool:
    away = frozenset(nodes)
    jobs = (j for j in view.jobs.values() if facts.holds(j) and away & set(j.nodes))
    return any(evidence.advances(world, job, away) for job in jobs)


def braked(found: Iterable[Group]) -> dict[str, Group]:
    """Node → the group that it belongs to."""
    return {name: group for group in reversed(tuple(found)) for name in group.nodes}


def holds(world: World, incident: Incident, held: Mapping[str, Group]) -> Group | None:
    """The group that keeps this node from being touched; None: none does, or its power is off."""
    group = held.get(incident.node)
    return None if group is None or evidence.power_off(world, incident) is not None else group
