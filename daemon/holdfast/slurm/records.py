"""Split ``scontrol -o`` output into records and keys. Pure.

Users' texts are printed unescaped: a job's name, network, comment and a dozen other texts may hold spaces, ``Key=value``
and even line breaks (tried on 22.05: ``--job-name`` with a second line ``JobId=77 …`` prints a forged record). So decisions about a job
use only values from ``squeue`` (:mod:`holdfast.slurm.squeue`). Values that only ``scontrol`` shows (:mod:`holdfast.slurm.details`)
count if a job has exactly one record, and are read between the user's texts that ``squeue`` has shown."""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.slurm.squeue import SqueueRow

_JOB_START = re.compile(r"\nJobId=([0-9]{1,10}) (?=JobName=|ArrayJobId=|HetJobId=)")
_NODE_START = re.compile(r"\nNodeName=(\S+) ")
_KEY = re.compile(r"(?:^|\s)([A-Za-z_][A-Za-z0-9_/]*(?::[A-Za-z:]+)?)=")
_AFTER_NAME = re.compile(r" (?:(?:HetJobIdSet|SLUID)=\S+ )*UserId=[^=]*\((\d+)\) GroupId=")
_QOS = re.compile(r" QOS=\S*")
_MOVING = (re.compile(r" RunTime=[0-9:-]+ TimeLimit="), re.compile(r" LastSchedEval=\S+ Scheduler=\S+ "))
"""Values that slurmctld changes all the time in the record of an otherwise unchanged job."""
_MOVING_OF_NODE = (" CPULoad=", " FreeMem=")
EMPTY = frozenset({"(null)", "N/A", "none", "None", "NONE", "Unknown"})


def still(text: str) -> str:
    """The jobs' records without values that change all the time, such as RunTime: equal as long as nothing else has changed."""
    for moving in _MOVING:
        text = moving.sub(" ", text)
    return text


def jobs(text: str) -> dict[str, list[str]]:
    """Job id → texts that start like a record of it. More than one: a user's text looks like a record."""
    return _split(_JOB_START, text)


def nodes(text: str) -> dict[str, list[str]]:
    """The same for nodes. A node's reason and comment are operators' texts, and root on that node chooses its OS name."""
    return _split(_NODE_START, text)


def _split(start: re.Pattern[str], text: str) -> dict[str, list[str]]:
    text = f"\n{text}"
    starts = list(start.finditer(text))
    ends = [*(one.start() for one in starts), len(text)][1:]
    found: dict[str, list[str]] = {}
    for one, end in zip(starts, ends, strict=True):
        found.setdefault(one[1], []).append(text[one.start() : end].strip())
    return found


class Own(NamedTuple):
    """Slurm's own output for a job, without its user's texts."""

    head: str
    """Its ids."""
    state: str
    """From its state to its partition."""
    held: str
    """The excluded nodes, the nodes that it holds, and the resources that it holds there."""
    rest: str
    """From the per-node requests on; a user's text may follow."""


def slurms_own(record: str, row: SqueueRow) -> Own | None:
    """Slurm's own part of the record; None where the record does not match the row: it may be from when the job had another name."""
    head, _, rest = record.partition(" JobName=")
    after = _AFTER_NAME.match(rest, len(row.name)) if rest.startswith(row.name) else None
    if after is None or int(after[1]) != row.user_id or not head.startswith(f"JobId={row.job_id}"):
        return None
    rest = _behind(rest[after.end() :].partition(" Account=")[2], row.account)
    qos = _QOS.match(rest)
    rest = rest[qos.end() :] if qos is not None else ""
    if rest.startswith(" WCKey="):
        rest = _behind(rest.removeprefix(" WCKey="), row.wckey)
    state, _, rest = rest.partition(" AllocNode:Sid=")
    held, more, rest = _behind(rest, row.alloc_node).partition(" MinCPUsNode=")
    return Own(head, state, held, rest) if more and state.startswith(f" JobState={row.state} ") else None


def _behind(text: str, value: str) -> str:
    return text[len(value) :] if text.startswith(value) else ""


def fields(record: str) -> dict[str, str]:
    """Keys and values of one record. A key's first appearance counts; ``(null)``, ``N/A``, ``none`` … become empty."""
    found: dict[str, str] = {}
    keys = list(_KEY.finditer(record))
    for number, key in enumerate(keys):
        end = keys[number + 1].start() if number + 1 < len(keys) else len(record)
        value = record[key.end() : end].strip()
        found.setdefault(key[1], "" if value in EMPTY else value)
    return found


def printable(text: str) -> str:
    """On one line: control characters become spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def lines(text: str) -> list[str]:
    """Records of reservations, one a line; administrators wrote their content."""
    return [line.strip() for line in text.split("\n") if "Name=" in line.partition(" ")[0]]


def node_key(line: str) -> str:
    """A node's line without values that each answer of its slurmd changes and that no decision uses."""
    for key in _MOVING_OF_NODE:
        start = line.find(key)
        if start >= 0:
            end = line.find(" ", start + len(key))
            line = line[: start + len(key)] + (line[end:] if end >= 0 else "")
    return line
