"""Write permission in an elastic job: the fence (:mod:`holdfast_checkpoint.fence`) for a job of many Slurm jobs that start and end.

The run of an elastic job is a *term*: its rendezvous, and the id of the quorum in which the writer is the lowest member. Quorum
ids only grow, and one quorum has one lowest member, so a world that lost contact with the others holds an older term and can no
longer commit once the others wrote; what still gets through does not count beyond the step at which their term started.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast_checkpoint import durable
from holdfast_checkpoint.base.confined import Bad, Walk, open_root
from holdfast_checkpoint.base.manifest import dump_json
from holdfast_checkpoint.base.model import CheckpointVerdict, FencedOff, TakenOver, Unreadable
from holdfast_checkpoint.base.runs import RunId
from holdfast_checkpoint.fence import FOLDER, Fence, add_fence, effective, fenced_off, read_fences
from holdfast_checkpoint.layouts.archives import load_json

_SIGN = "holder.json"
_SIGN_TRIES = 5
_LEFT = re.compile(r"left-j([A-Za-z0-9_]{1,64})-r(\d{1,9})\.\d{1,9}\.\d{1,9}")


@dataclass(frozen=True)
class Term:
    """One quorum of one rendezvous, as the holder of the right to write."""

    room: str
    quorum_id: int
    began_step: int
    """Steps committed when this quorum formed: any older state is common to all groups that may write."""
    formerly: str = ""
    """Name of this world before its quorum ids restarted; empty when they never did."""
    over: bool = False
    """For the one save of the last member to leave: no step is committed in this quorum any more."""

    @property
    def run(self) -> RunId:
        return RunId(self.room, (self.quorum_id, int(self.over), 0))

    @property
    def rooms(self) -> frozenset[str]:
        return frozenset({self.room, self.formerly} - {""})


def start(directory: str, term: Term, member: str, *, resumed_name: str = "") -> None:
    """Take the directory for a new world, which starts from a checkpoint (its folder's name) or from zero.

    Raises FencedOff when this rendezvous already continued in a newer quorum, Unreadable, OSError."""
    os.makedirs(directory, exist_ok=True)
    _add(directory, term, member, resumed_name, lambda fences: _refuse_other(fences, term, member))


def take(directory: str, term: Term, member: str) -> None:
    """Take the right to write in this term, for a continuing world. Repeated by the same member, it changes nothing.

    Raises TakenOver when another job started here since, FencedOff for a newer quorum or another member of this one,
    Unreadable, OSError."""

    def refuse(fences: Sequence[Fence]) -> None:
        _refuse_other(fences, term, member)
        _refuse_foreign(fences, term)

    _add(directory, term, member, "", refuse)
    _sweep(directory, term)


def check(directory: str, term: Term, member: str) -> None:
    """Check again, right before a commit. Raises as :func:`take`."""
    fences = _fences(directory)
    _refuse_foreign(fences, term)
    newer = fenced_off(fences, term.run)
    if newer is not None:
        raise FencedOff(f"{directory} is held by a newer quorum, {newer.run}; {term.run} can write no more")
    if not any(f.run == term.run and f.member == member for f in fences):
        raise FencedOff(f"the fence of {term.run} in {directory} is gone, or another member's")


def left(directory: str, term: Term, rank: int, present: int) -> bool:
    """Record that this member, with this rank of all present, leaves the quorum; True for the last one.

    Two that leave at the same time may both get True; only one of them gets the term that is ``over``. Raises OSError."""
    folder = os.path.join(directory, FOLDER, f"left-{term.run}")
    os.makedirs(folder, exist_ok=True)
    durable.write_new(os.path.join(folder, f"{rank:05d}"), b"")
    durable.sync_folder(folder)
    return len(os.listdir(folder)) >= present


def show_life(directory: str, room: str, count: int, *, ended: bool = False) -> None:
    """Write a sign of life of the world: a growing counter, since clocks of nodes differ. Raises OSError."""
    data = dump_json({"v": 1, "room": room, "count": count, "ended": ended})
    folder = os.path.join(directory, FOLDER)
    # A unique name: the previous writer may write at the same time.
    temporary = os.path.join(folder, f".{_SIGN}.{room}.{os.getpid()}.{threading.get_ident()}.tmp")
    durable.write_new(temporary, data)
    os.rename(temporary, os.path.join(folder, _SIGN))
    durable.sync_folder(folder)


def alive_elsewhere(
    directory: str, rooms: frozenset[str], watch_s: float, sleep: Callable[[float], None]
) -> str | None:
    """The other rendezvous whose world is alive here: its counter grows while it is watched for this long. None: there is none.

    Does not wait when the last sign is our own, marks the end of its world, or does not exist."""
    first = sign(directory)
    if first is None or first[0] in rooms:
        return None
    for _ in range(20):
        sleep(watch_s / 20)
        now = sign(directory)
        if now is None:
            return None
        if now != first:
            return now[0]
    return None


def _add(directory: str, term: Term, member: str, resumed_name: str, refuse: Callable[[Sequence[Fence]], None]) -> None:
    if any(f.run == term.run and f.member == member for f in _fences(directory)):
        check(directory, term, member)
        return
    try:
        with open_root(directory, Walk()) as root:
            add_fence(
                directory,
                root,
                term.run,
                resumed_step=term.began_step,
                resumed_name=resumed_name,
                member=member,
                refuse=refuse,
            )
    except Bad as error:
        raise Unreadable(f"{directory}: {error.reason}") from error


def _refuse_other(fences: Sequence[Fence], term: Term, member: str) -> None:
    other = next((f.member for f in fences if f.run == term.run and f.member != member), None)
    if other is not None:
        raise FencedOff(f"{other or 'another member'} writes for {term.run}")


def _refuse_foreign(fences: Sequence[Fence], term: Term) -> None:
    """Whether another job that started after this world last wrote has the directory."""
    row = effective(fences)
    own = max((f.sequence for f in row if f.run.job_id in term.rooms), default=None)
    if own is None:
        raise FencedOff(f"the fences of {term.room} are gone; it can write no more")
    for fence in row:
        if fence.sequence > own and fence.run.job_id not in term.rooms:
            raise TakenOver(f"another job ({fence.run}) has taken the directory over from {term.room}")


def _fences(directory: str) -> tuple[Fence, ...]:
    try:
        with open_root(directory, Walk()) as root:
            return read_fences(root)[0]
    except FileNotFoundError:
        return ()
    except Bad as error:
        raise Unreadable(f"{directory}: {error.reason}") from error


def sign(directory: str) -> tuple[str, int] | None:
    """(rendezvous, counter) of the last sign of a world that did not report its end; None for any other, and for an invalid sign.
    Raises Unreadable."""
    for _ in range(_SIGN_TRIES):  # it may be replaced between stat and open
        try:
            with open_root(directory, Walk()) as root, root.folder(FOLDER) as folder, folder.file(_SIGN) as file:
                said = load_json(file.read_small(), _SIGN)
                break
        except FileNotFoundError:
            return None
        except Bad as error:
            if error.verdict is CheckpointVerdict.UNREADABLE:
                raise Unreadable(f"{directory}: {error.reason}") from error
    else:
        return None
    room, count = said.get("room"), said.get("count")
    if said.get("ended") is not False or not isinstance(room, str) or type(count) is not int:
        return None
    return room, count


def _sweep(directory: str, term: Term) -> None:
    """Delete the records of members that left earlier quorums."""
    root = os.path.join(directory, FOLDER)
    for name in os.listdir(root):
        match = _LEFT.fullmatch(name)
        if match and match[1] in term.rooms and (match[1] != term.room or int(match[2]) < term.quorum_id):
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)
