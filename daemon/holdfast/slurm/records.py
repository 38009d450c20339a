"""Splitting ``scontrol -o`` output into records and keys. Pure.

What users choose is printed unescaped: a job's name (and, without accounting, its account) may hold spaces, ``Key=value``
and even line breaks (tried on 22.05: ``--job-name`` with a second line ``JobId=77 …`` prints a forged record). So names
and accounts are read apart, between marks that nobody can guess (:func:`own_texts`), cut out of the records exactly
(:func:`without_texts`, :func:`clean`), and a record counts only if its shape then leaves no doubt (:func:`judge`).

A name may be changed between the two readings, by its owner and at any time. So a plain name is compared too, the record has
to be of the user that the other reading shows, and what only a longer name could have pushed back is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from holdfast.model.cluster import HOLDING_STATES

_JOB_START = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_KEY = re.compile(r"(?:^|\s)([A-Za-z_][A-Za-z0-9_/]*(?::[A-Za-z:]+)?)=")
_AFTER_TEXTS = ("JobState", "Requeue", "Restarts", "BatchFlag", "SubmitTime", "NodeList")
"""Decisive keys that Slurm prints after the name and the account."""
_ONCE = ("JobName", "UserId", "Account", "QOS", *_AFTER_TEXTS)
_FREE = "Command|SubmitLine|WorkDir|Comment|AdminComment|SystemComment|StdErr|StdIn|StdOut|Power|MailUser|MailType|Tres[A-Za-z]+"
"""Keys that may follow a value of free text; all of them come after every key that matters."""
_AFTER_NAME = re.compile(r"(?: (?:HetJobIdSet|SLUID)=\S+)* UserId=[^=]*\((\d+)\) GroupId=")
_AFTER_ACCOUNT = " QOS="
_CUT = "\0"
"""In place of a text that was cut out; no text of Slurm can hold it."""
_MOVING = (" RunTime=", " LastSchedEval=", " Scheduler=")
"""What slurmctld changes all the time in the record of a job to which nothing happens."""
_MOVING_OF_NODE = (" CPULoad=", " FreeMem=")
_PLAIN = re.compile(r"[^\s=]*")
_EMPTY = frozenset({"(null)", "N/A", "none", "None", "Unknown"})


@dataclass(frozen=True, slots=True)
class OwnTexts:
    """What a user named a job and its account, exactly as Slurm holds it, and who the user is."""

    name: str
    account: str
    uid: int

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
    return f"{mark}%A{mark}%U{mark}%j{mark}%a{mark}"


def own_texts(text: str, mark: str) -> dict[int, OwnTexts]:
    """Job id → the user's texts, for every job of the listing."""
    found = re.findall(rf"{mark}(\d+){mark}(\d+){mark}(.*?){mark}(.*?){mark}", text, re.DOTALL)
    return {int(job_id): OwnTexts(name, account, int(uid)) for job_id, uid, name, account in found}


def elements_format(mark: str) -> str:
    """``squeue -o`` format whose output :func:`elements` reads. ``mark``: fresh random text for each call."""
    return f"%F{own_texts_format(mark)}"


def elements(text: str, mark: str, arrays: Collection[int]) -> dict[int, OwnTexts]:
    """Job id → the user's texts, for every job of the listing that is an element of one of these arrays."""
    lines = re.findall(rf"(\d+){mark}(\d+){mark}\d+{mark}.*?{mark}.*?{mark}", text, re.DOTALL)
    theirs = {int(job_id) for array, job_id in lines if int(array) in arrays}
    return {job_id: own for job_id, own in own_texts(text, mark).items() if job_id in theirs}


def holders_format(mark: str) -> str:
    """``squeue -o`` format whose output :func:`holders` reads. ``mark``: fresh random text for each call."""
    return f"%T{own_texts_format(mark)}"


def holders(text: str, mark: str) -> dict[int, OwnTexts]:
    """Job id → the user's texts, for every job of the listing that holds its nodes by its state."""
    states = re.findall(rf"([A-Z_]+){mark}(\d+){mark}\d+{mark}.*?{mark}.*?{mark}", text, re.DOTALL)
    holding = {int(job_id) for state, job_id in states if state in HOLDING_STATES}
    return {job_id: own for job_id, own in own_texts(text, mark).items() if job_id in holding}


def without_texts(text: str, texts: Iterable[OwnTexts]) -> str:
    """The records without names and accounts that could be mistaken for the start of a record."""
    forging = {own for own in texts if own.may_forge}
    names = [own.name for own in forging if not _PLAIN.fullmatch(own.name)]
    accounts = [own.account for own in forging if not _PLAIN.fullmatch(own.account)]
    # One pass from the left, the longest first: a name that holds another job's name is cut as a whole.
    cuts = [rf"(?<=\sJobName=)(?:{_any_of(names)})(?=\s(?:HetJobIdSet|SLUID|UserId)=)"] if names else []
    cuts += [rf"(?<=\sAccount=)(?:{_any_of(accounts)})(?=\sQOS=)"] if accounts else []
    return re.sub("|".join(cuts), _CUT, text) if cuts else text


def _any_of(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


def clean(record: str, own: OwnTexts) -> str | None:
    """A record of :func:`without_texts` without its job's name and account; None where it leaves doubt.

    Doubt: it shows another name, account or user than ``own``, which was read at another moment, or its shape leaves some."""
    head, _, rest = record.partition(" JobName=")
    rest = _without(rest, own.name)
    after = _AFTER_NAME.match(rest)
    if after is None or int(after[1]) != own.uid:
        return None
    middle, key, rest = rest.partition(" Account=")
    rest = _without(rest, own.account)
    text = f"{head} JobName={middle}{key}{rest}"
    return text if rest.startswith(_AFTER_ACCOUNT) and _unmistakable(text) else None


def _without(text: str, value: str) -> str:
    """What follows the value at the start of the text; empty where another value is there."""
    value = _CUT if text.startswith(_CUT) else value
    return text[len(value) :] if text.startswith(value) else ""


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

    Doubtful: an id that is not known or appears twice, the record before each such one, and a record whose shape leaves doubt."""
    sure: dict[int, Record] = {}
    doubtful: set[int | None] = set()
    before: dict[int, int | None] = {}
    """Record → the one before it."""
    last: int | None = None
    for record in found:
        if record.job_id not in known:
            doubtful |= {record.job_id, last}
        elif record.job_id in before:
            doubtful |= {record.job_id, last, before[record.job_id]}
        elif not beyond_doubt(record):
            doubtful.add(record.job_id)
        else:
            sure[record.job_id] = record
        before.setdefault(record.job_id, last)
        last = record.job_id
    beyond = {job_id: record for job_id, record in sure.items() if job_id not in doubtful}
    return Split(beyond, frozenset(job_id for job_id in doubtful if job_id is not None))


def first_record(text: str, job_id: int, texts: Mapping[int, OwnTexts]) -> str | None:
    """The job's own record, cleaned, from ``scontrol show job -d -o ID``; None when it is not there or still leaves doubt.

    Nobody else's text stands in that output (elements of one array belong to one user)."""
    own = texts.get(job_id)
    found = (record for record in split(without_texts(text, texts.values())) if record.job_id == job_id)
    record = next(found, None)
    return clean(record.text, own) if record is not None and own is not None else None


def _unmistakable(record: str) -> bool:
    """Whether each decisive key stands exactly once before the first key of free text, and not all of them after it: what a forger
    puts before that key pushes Slurm's own words behind it."""
    head, _, tail = record.partition(" Command=")
    found = _KEY.findall(head)
    return all(found.count(key) == 1 for key in _ONCE) and not all(f" {key}=" in tail for key in _AFTER_TEXTS)


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
