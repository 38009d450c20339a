"""Fences of a rendezvous: members that must never rejoin, which of them are kept and which are forgotten. Pure.

A fence protects the training from a process that returns late: it hung, or its node was cut off, and meanwhile its group was started
again or its state was given up. Without the fence such a process would take its group's place. Kept while the rendezvous is open:

* members of the last quorum that are gone: otherwise the others would wait for them;
* the newest start seen of each group and job (``newest``): every earlier start is gone, whether or not it is listed;
* the newest :data:`GONE_MAX` of all others. The starts of a real job stay far below that number; a process that invents names
  only loses its own oldest fences.

Entries whose loss changes nothing are forgotten earlier: those that ``newest`` covers, and single Managers that left or were replaced."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from holdfast.model.elastic_jobs.rooms import run_of
from holdfast.quorum.identity import GroupIdentity
from holdfast.quorum.nouns import Departure, GoneMember

GONE_MAX = 1000
"""Limit of entries in ``gone``, not counting members of the last quorum."""
NEWEST_MAX = 4096
"""Groups and jobs whose newest start is remembered."""
KEPT_S = 7 * 86_400.0
"""Entries that may be forgotten are kept this long if there is space: their text explains why a process was refused."""


@functools.lru_cache(maxsize=4 * GONE_MAX)  # a full list is checked by name again whenever another member is gone
def run_and_restarts(name: str) -> tuple[str, int] | None:
    """``GROUP~JOB`` and the restart count of a start or Manager named ``JOB.RESTARTS``; None: it has another form of name."""
    run = run_of(name)
    if run is None or not name.startswith(run.selector):  # ``01`` is another text than ``1``, and so another group
        return None
    return f"{run.group}~{run.job_id}", run.restarts


def is_outdated(newest: Mapping[str, int], name: str) -> bool:
    """Whether a later run of the same job was seen for this group."""
    told = run_and_restarts(name)
    return told is not None and told[1] < newest.get(told[0], -1)


def note_met(newest: dict[str, int], who: GroupIdentity) -> None:
    """Record that this start was seen: earlier runs of its job are gone from now on."""
    told = run_and_restarts(who.started)
    if told is None or told[1] <= newest.get(told[0], -1):
        return
    newest.pop(told[0], None)
    newest[told[0]] = told[1]  # the newest last
    while len(newest) > NEWEST_MAX:
        del newest[next(iter(newest))]


def forgettable(
    gone: Mapping[str, GoneMember],
    since_s: Mapping[str, float],
    newest: Mapping[str, int],
    members: Iterable[GroupIdentity],
    now_s: float,
) -> list[str]:
    """Entries to forget now. ``since_s``: when each was added; all times in seconds since 1970. ``members``: of the last quorum."""
    oldest_s = min(since_s.values(), default=now_s)
    if len(gone) <= GONE_MAX and now_s - oldest_s < KEPT_S:
        return []
    protected = {name for who in members for name in (who.fence, who.alone, str(who))}
    worth = {name: _worth(name, each, newest) for name, each in gone.items() if name not in protected}
    in_order = sorted(worth, key=lambda name: (worth[name], since_s.get(name, now_s)))
    excess = len(worth) - GONE_MAX
    old = (worth[name] < _FENCE and now_s - since_s.get(name, now_s) >= KEPT_S for name in in_order)
    return [name for place, (name, is_old) in enumerate(zip(in_order, old, strict=True)) if place < excess or is_old]


_SAID_TWICE, _MANAGER, _FENCE, _VERDICT = range(4)


def _worth(name: str, gone: GoneMember, newest: Mapping[str, int]) -> int:
    if is_outdated(newest, name):
        return _SAID_TWICE
    if gone.why is Departure.EVICTED:
        return _VERDICT
    return _MANAGER if ":" in name else _FENCE
