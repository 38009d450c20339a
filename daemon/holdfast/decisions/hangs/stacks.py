"""Stacks of a hung job's ranks, grouped by what they wait in, with the odd ranks named. Pure.

Ranks in the same collective look alike and wait for another rank; the one that holds them up is elsewhere. So a rank that waits for no
other while others wait is odd; if there is none, a rank outside the majority is. Otherwise none is odd: stacks alone cannot show the
cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_FRAME = re.compile(r"(?P<name>.*) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)")
_PLUMBING = re.compile(
    r"(?:^|/)(?:torch|torchft|holdfast_train|numpy|asyncio|concurrent|multiprocessing|grpc|contextlib|functools|threading|queue|"
    r"selectors|socket|ssl|subprocess|urllib|http)(?:/|\.py$)|^<frozen |^<string>$|^$"
)
"""Files of libraries and of Python itself, not of the job's own code, in py-spy's short form or as a whole path."""
_AMONG_RANKS = re.compile(r"(?:^|/)(?:torch/(?:distributed|futures|cuda)|torchft|holdfast_train)/")
_WAITS = re.compile(
    r"^(?:wait|wait_\w+|\w*barrier|synchronize|all_?reduce\w*|all_?gather\w*|reduce_?scatter\w*|all_?to_?all\w*|broadcast\w*|"
    r"gather\w*|scatter\w*|reduce|i?recv|i?send|batch_isend_irecv|should_commit|start_quorum|_async_quorum|init_process_group)$"
)
"""Functions, of these files only, in which a rank waits for other ranks. A data loader's queue is waited for elsewhere."""
_NAMED = 8
"""Most ranks named in a line; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of the job, as its node's agent saw it."""

    node: str
    rank: int | None
    """None: not known."""
    pid: int
    frames: tuple[str, ...]
    """``function (file:line)``, innermost first; empty: not read."""
    error: str = ""
    """Reason why it was not read."""

    @property
    def name(self) -> str:
        return f"{'pid ' + str(self.pid) if self.rank is None else 'rank ' + str(self.rank)} on {self.node}"


@dataclass(frozen=True, slots=True)
class StackShape:
    """Position of a rank: the frame in the job's own code, and the call made from there."""

    at: str
    """Innermost frame that is the job's own; the innermost of all where none is."""
    calls: str = ""
    """Function of a library that the job's own code called."""
    waits: bool = False
    """It waits for other ranks."""

    @property
    def text(self) -> str:
        return f"{self.calls} from {self.at}" if self.calls else self.at


@dataclass(frozen=True, slots=True)
class StackGroup:
    shape: StackShape
    ranks: tuple[Rank, ...]

    @property
    def text(self) -> str:
        return f"{_who(self.ranks)}: {self.shape.text}"


@dataclass(frozen=True, slots=True)
class Grouping:
    """All ranks of a job by shape, the largest group first."""

    groups: tuple[StackGroup, ...]
    odd: tuple[Rank, ...]
    """Ranks that may hold the others up; empty: none is suspect."""
    unread: tuple[Rank, ...] = ()

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """Those that were read."""
        return tuple(rank for group in self.groups for rank in group.ranks)

    @property
    def odd_nodes(self) -> tuple[str, ...]:
        """Nodes of odd ranks, unless that is where all ranks are: then no node stands out."""
        odd = {rank.node for rank in self.odd}
        everywhere = {rank.node for rank in self.ranks}
        return tuple(sorted(odd)) if odd < everywhere else ()

    @property
    def text(self) -> str:
        """One line for people."""
        if not self.groups:
            return "no stack could be read" + (f" ({self.unread[0].error})" if self.unread else "")
        parts = [group.text for group in self.groups[:_NAMED]]
        if len(self.groups) > _NAMED:
            parts.append(f"{len(self.groups) - _NAMED} more shapes")
        if self.unread:
            parts.append(f"{_who(self.unread)}: not read ({self.unread[0].error})")
        return "; ".join(parts)


def ranks_of(node: str, detail: Mapping[str, Any]) -> tuple[Rank, ...]:
    """Ranks in an agent's outcome. A process that is no rank (a launcher, a data loader's worker) is left out, unless none is a rank.

    Entries that are malformed are ignored."""
    listed = detail.get("ranks")
    found = [rank for raw in listed if (rank := _rank(node, raw)) is not None] if isinstance(listed, list) else []
    ranks = [each for each in found if each.rank is not None]
    return tuple(ranks or found)


def _rank(node: str, raw: object) -> Rank | None:
    if not isinstance(raw, Mapping):
        return None
    pid, rank, frames = raw.get("pid"), raw.get("rank"), raw.get("frames")
    if not isinstance(pid, int):
        return None
    stack = tuple(f for f in frames if isinstance(f, str)) if isinstance(frames, list) else ()
    error = "" if stack else str(raw.get("error") or "it has no Python frames")[:200]
    return Rank(node, rank if isinstance(rank, int) and not isinstance(rank, bool) else None, pid, stack, error)


def group(ranks: Iterable[Rank]) -> Grouping:
    """Group the ranks by position. A rank that was not read is neither odd nor a reason to call another rank odd."""
    by_shape: dict[StackShape, list[Rank]] = {}
    unread: list[Rank] = []
    for rank in sorted(ranks, key=lambda r: (r.rank is None, r.rank or 0, r.node, r.pid)):
        if rank.frames:
            by_shape.setdefault(shape_of(rank.frames), []).append(rank)
        else:
            unread.append(rank)
    groups = [StackGroup(shape, tuple(members)) for shape, members in by_shape.items()]
    groups.sort(key=lambda g: (-len(g.ranks), g.shape.text))
    return Grouping(tuple(groups), _odd(groups), tuple(unread))


def _odd(groups: list[StackGroup]) -> tuple[Rank, ...]:
    total = sum(len(g.ranks) for g in groups)
    at_work = [rank for g in groups if not g.shape.waits for rank in g.ranks]
    if at_work and 2 * len(at_work) <= total:
        return tuple(at_work)
    if groups and 2 * len(groups[0].ranks) > total:
        wait = groups[0].shape.waits  # if it does, one that waits elsewhere is odd, too: they wait for each other
        return tuple(rank for g in groups[1:] if wait or not g.shape.waits for rank in g.ranks)
    return ()


def shape_of(frames: tuple[str, ...]) -> StackShape:
    """Shape of frames that are innermost first; not empty."""
    waits, calls = False, ""
    for frame in frames:
        name, file = _split(frame)
        if not _PLUMBING.search(file):
            return StackShape(frame, calls, waits)
        among_ranks = _AMONG_RANKS.search(file) is not None and _WAITS.match(name) is not None
        calls = name if among_ranks or not waits else calls
        waits = waits or among_ranks
    return StackShape(frames[0], "", waits)


def _split(frame: str) -> tuple[str, str]:
    """Function (without what it is nested in) and file."""
    match = _FRAME.fullmatch(frame)
    if match is None:
        return frame, "?"
    return match["name"].rpartition(".")[2], match["file"]


def _who(ranks: tuple[Rank, ...]) -> str:
    if len(ranks) > _NAMED:
        return f"{len(ranks)} ranks on {len({r.node for r in ranks})} nodes"
    return ", ".join(rank.name for rank in ranks)
