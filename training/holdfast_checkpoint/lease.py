"""Who of an elastic job may write: the fence (:mod:`holdfast_checkpoint.fence`) for a job of many Slurm jobs that come and go.

The run of an elastic job is a *term*: its room, and the id of the quorum in which the writer is the lowest member. Quorum
ids only grow, and one quorum has one lowest member, so a world that lost sight of the others holds an older term and can
commit no more once the others wrote; what slips through does not count beyond the step that their term began at.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast_checkpoint import durable
from holdfast_checkpoint.confined import Bad, Walk, open_root
from holdfast_checkpoint.fence import FOLDER, Fence, add_fence, effective, fenced_off, read_fences
from holdfast_checkpoint.layouts.archives import load_json
from holdfast_checkpoint.manifest import dump_json
from holdfast_checkpoint.model import FencedOff, TakenOver, Unreadable, Verdict
from holdfast_checkpoint.runs import RunId

_SIGN = "holder.json"
_SIGN_TRIES = 5
_LEFT = re.compile(r"left-j([A-Za-z0-9_]{1,64})-r(\d{1,9})\.\d{1,9}\.\d{1,9}")


@dataclass(frozen=True)
class Term:
    """One quorum of one room, as far as writing goes."""

    room: str
    quorum_id: int
    began_step: int
    """Steps that were committed when this quorum came about: a state that is older is common to all who may write."""
    formerly: str = ""
    """Name that this world had before its quorum's ids began anew; empty when they never did."""
    over: bool = False
    """For the one save of the last who left: nobody commits a step in this quorum any more."""

    @property
    def run(self) -> RunId:
        return RunId(self.room, (self.quorum_id, int(self.over), 0))

    @property
    def rooms(self) -> frozenset[str]:
        return frozenset({self.room, self.formerly} - {""})


def start(directory: str, term: Term, member: str, *, resumed_name: str = "") -> None:
    """Takes the directory for a world that has just come about, from a checkpoint (its folder's name) or from nothing.

    Raises FencedOff when this room already went on in a newer quorum, Unreadable, OSError."""
    os.makedirs(directory, exist_ok=True)
    _add(directory, term, member, resumed_name, lambda fences: _refuse_other(fences, term, member))


def take(directory: str, term: Term, member: str) -> None:
    """Takes the right to write in this term, for a world that goes on. Again by the same member: nothing changes.

    Raises TakenOver when another job started here since, FencedOff for a newer quorum or another member of this one,
    Unreadable, OSError."""

    def refuse(fences: Sequence[Fence]) -> None:
        _refuse_other(fences, term, member)
        _refuse_foreign(fences, term)

    _add(directory, term, member, "", refuse)
    _sweep(directory, term)


def check(directory: str, term: Term, member: str) -> None:
    """Looks again, right before a commit. Raises as :func:`take`."""
    fences = _fences(directory)
    _refuse_foreign(fences, term)
    newer = fenced_off(fences, term.run)
    if newer is not None:
        raise FencedOff(f"{directory} is held by a newer quorum, {newer.run}; {term.run} can write no more")
    if not any(f.run == term.run and f.member == member for f in fences):
        raise FencedOff(f"the fence of {term.run} in {directory} is gone, or another member's")


def left(directory: str, term: Term, rank: int, present: int) -> bool:
    """Writes down that this member, the rank-th of so many, leaves the quorum; True for the last one.

    Two that leave at the same moment may both be told so; only one of them gets the term that is ``over``. OSError."""
    folder = os.path.join(directory, FOLDER, f"left-{term.run}")
    os.makedirs(folder, exist_ok=True)
    durable.write_new(os.path.join(folder, f"{rank:05d}"), b"")
    durable.sync_folder(folder)
    return len(os.listdir(folder)) >= present


def show_life(directory: str, room: str, count: int, *, ended: bool = False) -> None:
    """A sign that the room's world is alive; a count that moves, since clocks of nodes differ. Raises OSError."""
    data = dump_json({"v": 1, "room": room, "count": count, "ended": ended})
    folder = os.path.join(directory, FOLDER)
    # A name of its own: who wrote until now may be at it at the same moment.
    temporary = os.path.join(folder, f".{_SIGN}.{room}.{os.getpid()}.{threading.get_ident()}.tmp")
    durable.write_new(temporary, data)
    os.rename(temporary, os.path.join(folder, _SIGN))
    durable.sync_folder(folder)


def alive_elsewhere(
    directory: str, rooms: frozenset[str], watch_s: float, sleep: Callable[[float], None]
) -> str | None:
    """The other room whose world is alive here: its sign moves while it is watched for that long. None: nobody's does.

    Does not wait when the last sign is our own, says that its world ended, or is not there."""
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
    """Another job that started after this world last wrote has the directory."""
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
    """(room, count) that a world which did not say that it ended showed last; None for any other, and for what makes no sense.
    Raises Unreadable."""
    for _ in range(_SIGN_TRIES):  # it may be replaced between the look at it and its opening
        try:
            with open_root(directory, Walk()) as root, root.folder(FOLDER) as folder, folder.file(_SIGN) as file:
                said = load_json(file.read_small(), _SIGN)
                break
        except FileNotFoundError:
            return None
        except Bad as error:
            if error.verdict is Verdict.UNREADABLE:
                raise Unreadable(f"{directory}: {error.reason}") from error
    else:
        return None
    room, count = said.get("room"), said.get("count")
    if said.get("ended") is not False or not isinstance(room, str) or type(count) is not int:
        return None
    return room, count


def _sweep(directory: str, term: Term) -> None:
    """What those who left earlier quorums wrote down is of no use any more."""
    root = os.path.join(directory, FOLDER)
    for name in os.listdir(root):
        match = _LEFT.fullmatch(name)
        if match and match[1] in term.rooms and (match[1] != term.room or int(match[2]) < term.quorum_id):
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)
