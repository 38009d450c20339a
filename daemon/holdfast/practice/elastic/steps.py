"""Records of an elastic job's groups (``training/examples/watched.py``) and their verification. Pure, except for reading files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StepAttempt:
    """One attempt of one group at a step, recorded when it started."""

    at_s: float
    """Unix time."""
    group: int
    start: str
    """Which start of the group."""
    step: int
    quorum: int
    share: tuple[int, ...]
    """Micro-batches assigned to this group."""
    present: int
    """Groups that took part; 0 after the last step."""
    digest: str
    """Digest of all parameters before the step."""


class StepReader:
    """Incremental reader of a running job's records: each line is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._at: dict[Path, int] = {}
        """Bytes read of each group's file."""
        self._found: list[StepAttempt] = []

    def all(self) -> list[StepAttempt]:
        """All records so far, by time. An incomplete line is left for the next read."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._at.get(path, 0))
                whole, newline, _unfinished = file.read().rpartition(b"\n")
            self._at[path] = self._at.get(path, 0) + len(whole) + len(newline)
            for line in whole.splitlines():
                said = json.loads(line)
                self._found.append(StepAttempt(**{**said, "share": tuple(said["share"])}))
        self._found.sort(key=lambda a: a.at_s)
        return list(self._found)


def read(folder: Path) -> list[StepAttempt]:
    """All records so far, by time."""
    return StepReader(folder).all()


def committed(attempts: Iterable[StepAttempt]) -> list[StepAttempt]:
    """Attempts that led to the next step: the same start of the group continued with step + 1. A group that received that state from a
    peer, because its own attempt failed, continues there too: it computes nothing in the step in which it is healed."""
    by_start: dict[tuple[int, str], list[StepAttempt]] = defaultdict(list)
    for one in attempts:
        by_start[one.group, one.start].append(one)
    pairs = (pair for mine in by_start.values() for pair in pairwise(mine))
    return [a for a, b in pairs if b.step == a.step + 1 and (b.share or not b.present)]


def problems(attempts: Sequence[StepAttempt], micro_batches: int) -> list[str]:
    """One line for each step whose micro-batches were not done exactly once, or after which the groups differ; empty: no errors."""
    found = []
    done = committed(attempts)
    quorums: dict[int, set[int]] = defaultdict(set)
    digests: dict[int, set[str]] = defaultdict(set)
    for one in done:
        quorums[one.step].add(one.quorum)
    for one in attempts:
        digests[one.step].add(one.digest)
    for step in range(max(quorums, default=-1) + 1):
        if len(quorums[step]) != 1:
            found.append(f"step {step} was committed in {len(quorums[step])} quorums")
            continue
        (quorum,) = quorums[step]
        last = {(a.group, a.start): a for a in attempts if a.step == step and a.quorum == quorum}
        shares = sorted(i for a in last.values() for i in a.share)
        if shares != list(range(micro_batches)):
            found.append(f"step {step}: micro-batches {shares}")
    found += [f"step {step}: {len(seen)} different models" for step, seen in sorted(digests.items()) if len(seen) > 1]
    return found


def stall_s(attempts: Sequence[StepAttempt], around_s: float, groups: Iterable[int], within_s: float = 30.0) -> float:
    """The longest time between two attempts of one start of these groups, of which the second started within ``within_s`` after
    that time; includes the duration of a normal step."""
    gaps = [0.0]
    for group in groups:
        mine = [a for a in attempts if a.group == group]
        gaps += [
            b.at_s - a.at_s
            for a, b in pairwise(mine)
            if a.start == b.start and b.at_s >= around_s and a.at_s <= around_s + within_s
        ]
    return max(gaps)


def first_s(attempts: Iterable[StepAttempt], group: int, since_s: float) -> float | None:
    """When a group first started a step after that time; None: it has not."""
    return min((a.at_s for a in attempts if a.group == group and a.at_s > since_s), default=None)


def usual_step_s(attempts: Sequence[StepAttempt], until_s: float, last: int = 50) -> float:
    """Median time of a step of one group before that time."""
    mine = [a for a in attempts if a.at_s < until_s and a.group == 0][-last:]
    gaps = sorted(b.at_s - a.at_s for a, b in pairwise(mine) if a.start == b.start)
    return gaps[len(gaps) // 2] if gaps else 0.0
