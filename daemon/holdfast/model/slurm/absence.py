"""Absence from a reading of Slurm: what was there counts as gone once two readings apart lack it. Standard library only, pure.

An incomplete answer looks like a cluster that has shrunk: a job would be given up, an elastic group evicted, a drain taken for forgotten
(``docs/decisions/0021-absence-is-seen-twice.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Missing:
    """Entries that the newest reading lacks for the first time. The view shows them as they were in the reading before."""

    nodes: frozenset[str] = frozenset()
    jobs: frozenset[int] = frozenset()
    reservations: frozenset[str] = frozenset()


def seen_twice(before: ClusterView, after: ClusterView, missing: Missing) -> tuple[ClusterView, Missing]:
    """The newest reading with what it lacks for the first time, and that. ``before``: the view of the reading before, with what that one
    lacked, ``missing``."""
    nodes, new_nodes = _kept(before.nodes, after.nodes, missing.nodes)
    jobs, new_jobs = _kept(before.jobs, after.jobs, missing.jobs)
    reservations, new_reservations = _kept(before.reservations, after.reservations, missing.reservations)
    view = replace(after, nodes=nodes, jobs=jobs, reservations=reservations)
    return view, Missing(new_nodes, new_jobs, new_reservations)


def unexpected_in(view: ClusterView, missing: Missing) -> bool:
    """Whether something is missing that does not disappear on its own: a node, or a job that had not ended. ``view``: of
    :func:`seen_twice`."""
    return bool(missing.nodes) or any(
        job.state in HOLDING_STATES or job.state == "PENDING" for job in (view.jobs[n] for n in missing.jobs)
    )


def _kept(
    before: Mapping[_K, _V], after: Mapping[_K, _V], missing: frozenset[_K]
) -> tuple[Mapping[_K, _V], frozenset[_K]]:
    first = frozenset(before.keys() - after.keys() - missing)
    return ({**after, **{key: before[key] for key in first}}, first) if first else (after, first)
