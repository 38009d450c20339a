"""Who never comes back to a room: what of it must be kept, and what may be forgotten. Pure.

A fence protects the training from a process that comes back late: one that hung, or whose node was cut off, and whose group has a later
start, or whose state was given up. Without it such a process would take its group's place. Kept, therefore, for as long as the room is
open:

* who is of the last quorum, and gone: otherwise the others would wait for it;
* of each group and job the newest start that was met (``newest``): every earlier one is gone, whether or not it is on the list;
* the newest :data:`GONE_MAX` of all others. A job's own starts come nowhere near that number: only who makes up names does, and he
  loses his own oldest fences.

Forgotten earlier are those whose loss changes nothing: what ``newest`` says as well, and single Managers that left or were replaced."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from holdfast.model.rooms import run_of
from holdfast.quorum.identity import Identity
from holdfast.quorum.nouns import Departure, Gone

GONE_MAX = 1000
"""Entries of ``gone`` beside those of the last quorum's members."""
NEWEST_MAX = 4096
"""Groups and jobs whose newest start is remembered."""
KEPT_S = 7 * 86_400.0
"""What may be forgotten is kept this long where there is space: its text says why a process was refused."""


@functools.lru_cache(maxsize=4 * GONE_MAX)  # a full list is judged by its names again whenever another one is gone
def run_and_restarts(name: str) -> tuple[str, int] | None:
    """``GROUP~JOB`` and the restarts of a start, or of a Manager, that is named as Slurm counts; None: it is named otherwise."""
    run = run_of(name)
    if run is None or not name.startswith(run.selector):  # ``01`` is another text than ``1``, and so another group
        return None
    return f"{run.group}~{run.job_id}", run.restarts


def is_outdated(newest: Mapping[str, int], name: str) -> bool:
    """A later run of the same job was met under this group."""
    told = run_and_restarts(name)
    return told is not None and told[1] < newest.get(told[0], -1)


def note_met(newest: dict[str, int], who: Identity) -> None:
    """This one was met: earlier runs of its job are gone from now on."""
    told = run_and_restarts(who.started)
    if told is None or told[1] <= newest.get(told[0], -1):
        return
    newest.pop(told[0], None)
    newest[told[0]] = told[1]  # the newest last
    while len(newest) > NEWEST_MAX:
        del newest[next(iter(newest))]


def forgettable(
    gone: Mapping[str, Gone],
    since_s: Mapping[str, float],
    newest: Mapping[str, int],
    members: Iterable[Identity],
    now_s: float,
) -> list[str]:
    """Entries to forget now. ``since_s``: since when each is there; all times in seconds since 1970. ``members``: of the last quorum."""
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


def _worth(name: str, gone: Gone, newest: Mapping[str, int]) -> int:
    if is_outdated(newest, name):
        return _SAID_TWICE
    if gone.why is Departure.EVICTED:
        return _VERDICT
    return _MANAGER if ":" in name else _FENCE
