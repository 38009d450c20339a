"""What ``squeue`` is asked, in the way that 22.05 to 26.05 all answer.

It lists a requeued element of an array in the line of those that have not started, under their id. ``-r`` gives each of these, a hundred
thousand perhaps, a line. (22.05 has ``--array-unique`` against both; 24.11 does not know it.)"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable

from holdfast.model.errors import NotFound
from holdfast.slurm import records

_Run = Callable[..., str]
SQUEUE = ("squeue", "-h", "-a", "-t", "all")
_EACH = (*SQUEUE, "-r")
"""A line for each element: only where those that have not started are not asked for."""
_IDS_AT_A_TIME = 10_000
"""In one argument, which Linux limits to 128 KiB."""


def texts(run: _Run, *which: str) -> dict[int, records.OwnTexts]:
    """Users' texts by job id; an array's line is of those that have not started."""
    mark = secrets.token_hex(8)
    return records.own_texts(run(*SQUEUE, *which, "-o", records.own_texts_format(mark)), mark)


def texts_of(run: _Run, records_text: str, *which: str) -> dict[int, records.OwnTexts]:
    """The same; records of ``scontrol`` that the listing has in an array's line are asked for by their ids.

    Only elements of a listed array count: a record that a user forged may bear the id of anybody's job."""
    listed = texts(run, *which)
    missing = sorted({record.job_id for record in records.split(records_text)} - set(listed))
    found: dict[int, records.OwnTexts] = {}
    for start in range(0, len(missing), _IDS_AT_A_TIME):
        ids = ",".join(map(str, missing[start : start + _IDS_AT_A_TIME]))
        with contextlib.suppress(NotFound):
            mark = secrets.token_hex(8)
            listing = run(*_EACH, "-j", ids, "-o", records.elements_format(mark))
            found |= records.elements(listing, mark, listed)
    return listed | found


def holders_of(run: _Run, node: str) -> dict[int, records.OwnTexts]:
    """Users' texts of the jobs that hold a node. Raises NotFound where squeue does not know the node."""
    mark = secrets.token_hex(8)
    return records.holders(run(*_EACH, "-w", node, "-o", records.holders_format(mark)), mark)


def states_in(run: _Run, reservation: str) -> dict[int, str]:
    """State by id of every job that a reservation is for."""
    lines = run(*_EACH, "-R", reservation, "-o", "%A %T").splitlines()
    return {int(job_id): state for job_id, state in (line.split() for line in lines)}


def array_of(run: _Run, job_id: int) -> tuple[str, str] | None:
    """Id of the array whose element the job is, and its task or tasks as squeue lists them; None: it is of none."""
    found = [line.split() for line in run(*SQUEUE, "-j", str(job_id), "-o", "%A %F %K").splitlines()]
    mine = [
        (array, task.partition("%")[0]) for number, array, task in found if number == str(job_id) and task[:1].isdigit()
    ]
    return mine[0] if mine else None
