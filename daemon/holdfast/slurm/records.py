"""Splitting ``scontrol -o`` output into records and keys. Pure.

What users choose is printed unescaped: a job's name (and, without accounting, its account) may hold spaces,
``Key=value``
and even line breaks (tried on 22.05: ``--job-name`` with a second line ``JobId=77 …`` prints a forged record). So names
and
accounts are read apart, between marks that nobody can guess (:func:`own_texts`), cut out of the records exactly
(:func:`without_texts`), and a record counts only if its shape then leaves no doubt (:func:`judge`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from holdfast.model.cluster import HOLDING_STATES

_JOB_START = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_KEY = re.compile(r"(?:^|\s)([A-Za-z_][A-Za-z0-9_/]*(?::[A-Za-z:]+)?)=")
_ONCE = ("JobName", "UserId", "Account", "Requeue", "Restarts", "BatchFlag", "JobState", "SubmitTime", "NodeList")
_FREE = "Command|SubmitLine|WorkDir|Comment|AdminComment|SystemComment|StdErr|StdIn|StdOut|Power|MailUser|MailType|Tres[A-Za-z]+"
"""Keys that may follow a value of free text; all of them come after every key that matters."""
_AFTER_NAME = (" HetJobIdSet=", " SLUID=", " UserId=")
_AFTER_ACCOUNT = (" QOS=",)
_MOVING = (" RunTime=", " LastSchedEval=", " Scheduler=")
"""What slurmctld changes all the time in the record of a job to which nothing happens."""
_MOVING_OF_NODE = (" CPULoad=", " FreeMem=")
_PLAIN = re.compile(r"[^\s=]*")
_EMPTY = frozenset({"(null)", "N/A", "none", "None", "Unknown"})


@dataclass(frozen=True, slots=True)
class OwnTexts:
    """What a user named a job and its account, exactly as Slurm holds it."""

    name: str
    account: str

    @property
    def may_forge(self) -> bool:
        """Whether a record seems to begin within one of them."""
        return any(_JOB_START.search(text) is not None for text in (self.name, self.account))


@dataclass(frozen=True, slots=True)
class Record:
    """A job's record, or what is made to look like one."""

    job_id: int
    text: str
    key: str
    """The text without what changes by itself, such as RunTime: the same as long as nothing else has changed."""


@dataclass(frozen=True, slots=True)
class Split:
    """Records that are beyond doubt by job id, and the ids whose records are not."""

    sure: Mapping[int, Record]
    doubtful: frozenset[int]


def own_texts_format(mark: str) -> str:
    """``squeue -o`` format whose output :func:`own_texts` reads. ``mark``: fresh random text for each call."""
    return f"{mark}%A{mark}%j{mark}%a{mark}"


def own_texts(text: str, mark: str) -> dict[int, OwnTexts]:
    """Job id → the user's texts, for every job of the listing."""
    found = re.findall(rf"{mark}(\d+){mark}(.*?){mark}(.*?){mark}", text, re.DOTALL)
    return {int(job_id): OwnTexts(name, account) for job_id, name, account in found}


def holders_format(mark: str) -> str:
    """``squeue -o`` format whose output :func:`holders` reads. ``mark``: fresh random text for each call."""
    return f"%T{own_texts_format(mark)}"


def holders(text: str, mark: str) -> dict[int, OwnTexts]:
    """Job id → the user's texts, for every job of the listing that holds its nodes by its state."""
    found = re.findall(rf"([A-Z_]+){mark}(\d+){mark}(.*?){mark}(.*?){mark}", text, re.DOTALL)
    return {int(job_id): OwnTexts(name, account) for state, job_id, name, account in found if state in HOLDING_STATES}


def without_texts(text: str, texts: Iterable[OwnTexts]) -> str:
    """The records without names and accounts that could be mistaken for something else."""
    texts = set(texts)
    names = [own.name for own in texts if not _PLAIN.fullmatch(own.name)]
    accounts = [own.account for own in texts if not _PLAIN.fullmatch(own.account)]
    # One pass from the left, the longest first: a name that holds another job's name is cut as a whole.
    cuts = [rf"(?<=\sJobName=)(?:{_any_of(names)})(?=\s(?:HetJobIdSet|SLUID|UserId)=)"] if names else []
    cuts += [rf"(?<=\sAccount=)(?:{_any_of(accounts)})(?=\sQOS=)"] if accounts else []
    return re.sub("|".join(cuts), "", text) if cuts else text


def _any_of(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


def without_own(text: str, own: OwnTexts) -> str:
    """One record without the name and account of its job where these could be mistaken for something else."""
    for key, value, after in ((" JobName=", own.name, _AFTER_NAME), (" Account=", own.account, _AFTER_ACCOUNT)):
        start = text.find(key) + len(key)
        end = start + len(value)
        if not _PLAIN.fullmatch(value) and start >= len(key) and text.startswith(value, start):
            text = text[:start] + text[end:] if text.startswith(after, end) else text
    return text


def split(text: str) -> list[Record]:
    """The records of ``scontrol show job -d -o``, in their order."""
    starts = list(_JOB_START.finditer(text))
    ends = [*(start.start() for start in starts), len(text)][1:]
    return [_record(int(start[1]), text[start.start() : end].strip()) for start, end in zip(starts, ends, strict=True)]


def _record(job_id: int, text: str) -> Record:
    return Record(job_id, text, _without_values(text, _MOVING))


def _without_values(text: str, keys: Iterable[str]) -> str:
    """The text without the first value of each key; the keys stay."""
    for key in keys:
        start = text.find(key)
        if start >= 0:
            end = text.find(" ", start + len(key))
            text = text[: start + len(key)] + (text[end:] if end >= 0 else "")
    return text


def judge(found: Iterable[Record], known: Collection[int], beyond_doubt: Callable[[Record], bool]) -> Split:
    """Which records count. ``known``: ids from the listing that :func:`own_texts` read. ``beyond_doubt``: whether a record's own shape
    leaves none; asked of ids that are known alone.

    Doubtful: an id that is not known or appears twice, the record before such a one, and a record whose shape leaves doubt."""
    sure: dict[int, Record] = {}
    doubtful: set[int] = set()
    before: int | None = None
    for record in found:
        if record.job_id not in known or record.job_id in sure:
            doubtful |= {record.job_id} if before is None else {record.job_id, before}
        elif not beyond_doubt(record):
            doubtful.add(record.job_id)
        else:
            sure[record.job_id] = record
        before = record.job_id
    return Split({job_id: record for job_id, record in sure.items() if job_id not in doubtful}, frozenset(doubtful))


def first_record(text: str, job_id: int) -> str | None:
    """The job's own record from ``scontrol show job -d -o ID``; None when it is not there or still leaves doubt.

    Nobody else's text stands in that output (elements of one array belong to one user)."""
    starts = list(_JOB_START.finditer(text))
    for number, start in enumerate(starts):
        if int(start[1]) == job_id:
            end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
            record = text[start.start() : end].strip()
            return record if unmistakable(record) else None
    return None


def unmistakable(record: str) -> bool:
    """Whether each decisive key stands exactly once before the first key of free text."""
    found = _KEY.findall(record.partition(" Command=")[0])
    return all(found.count(key) == 1 for key in _ONCE)


def fields(record: str) -> dict[str, str]:
    """Keys and values of one record. A key's first appearance counts; ``(null)``, ``N/A``, ``none`` … become empty."""
    found: dict[str, str] = {}
    keys = list(_KEY.finditer(record))
    for number, key in enumerate(keys):
        end = keys[number + 1].start() if number + 1 < len(keys) else len(record)
        value = record[key.end() : end].strip()
        found.setdefault(key[1], "" if value in _EMPTY else value)
    return found


def free_text(record: str, key: str) -> str:
    """A value such as Comment: everything up to the next key that may follow, single equals signs included."""
    found = re.search(rf"\s{key}=(.*?)\s*(?=\s(?:{_FREE})=|$)", record, re.DOTALL)
    value = found[1] if found else ""
    return "" if value == "(null)" else value


def printable(text: str) -> str:
    """On one line: control characters become spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def lines(text: str) -> list[str]:
    """Records of nodes or reservations, one a line; what they hold, administrators wrote."""
    return [line.strip() for line in text.splitlines() if "Name=" in line.partition(" ")[0]]


def node_key(line: str) -> str:
    """A node's line without what each answer of its slurmd changes and no one decides by."""
    return _without_values(line, _MOVING_OF_NODE)
