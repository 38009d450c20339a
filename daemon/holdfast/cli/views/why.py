"""The verb that says why a job died."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import Json, Url
from holdfast.cli.common.show import as_json, line, moment
from holdfast.model.errors import Usage

if TYPE_CHECKING:
    from holdfast.api.answers.job_shapes import JobEndShape, WhyShape

_CAUSES = {
    "node_fault": "a fault of a node",
    "out_of_memory": "out of memory",
    "full_disk": "full disk or spent quota",
    "time_limit": "time limit",
    "users_code": "the program itself",
    "stopped": "cancelled or preempted",
    "no_file": "output or input file",
    "unknown": "unknown",
}
_CHARS = 160
_JOB = re.compile(r"(?P<id>[1-9]\d{0,9})(?:_(?P<task>\d{1,9})|\+\d{1,9})?")
"""Slurm's id of a job; of an array's element ``4_2``, of a heterogeneous job's component ``7+1``."""


def why(
    job_id: Annotated[
        str,
        typer.Argument(metavar="JOBID", help="Slurm's id of the job; of an array's element 4_2.", show_default=False),
    ],
    url: Url = None,
    as_data: Json = False,
) -> None:
    """Why a job died: a fault of a node, memory, a full disk, the time limit, the program, or unknown; what comes next; what to do."""
    got = ApiClient(url).get(_path(job_id))
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.job_shapes import WhyShape  # noqa: PLC0415

    for sentence in why_lines(read(WhyShape, got)):
        line(sentence)


def _path(job_id: str) -> str:
    found = _JOB.fullmatch(job_id)
    if found is None:
        raise Usage(f"{job_id} is no id of a job: 4711, or 4711_2 for element 2 of an array")
    number, task = found.groups()
    return f"/v1/jobs/{number}/why" + (f"?task={task}" if task else "")


def why_lines(job: WhyShape) -> Iterator[str]:
    """What is known, oldest run first."""
    named = f" ({job.name})" if job.name else ""
    yield f"job {job.shown_id or job.job_id}{named} of {job.user}: {job.state or 'Slurm has forgotten it'}"
    for number in job.requeued:
        yield f"  run {number}: queued again by its owner, an operator or Slurm (a preemption, a lost node), not by Holdfast"
    for end in job.ends:
        yield from _end_lines(end)
    for recovery in job.recoveries:
        note = f": {recovery.note}" if recovery.note else ""
        said = f"recovery {recovery.phase} for incident {recovery.incident_id}{note}"
        yield f"  run {recovery.restarts_before}: {recovery.cause or said}"
        if recovery.cause:
            yield f"    {said}"
    if job.note and job.restarts is not None:
        yield f"  run {job.restarts}: {job.note}"
    if not (job.ends or job.recoveries or job.requeued or job.note):
        yield "  no run of it has failed, as far as Holdfast has seen"
    if job.elements:
        yield f"  other elements of the array that did not end well: {', '.join(job.elements)}"


def _end_lines(end: JobEndShape) -> Iterator[str]:
    where = f"on {','.join(end.nodes)}" if end.nodes else "before it ran"
    ended = f"{end.slurm_state}, exit code {end.exit_code or '?'}, at {moment(end.ended_at)[:19]} UTC"
    yield f"  run {end.restarts}: {ended} {where}"
    if end.reading == "pending":
        yield "    its output is being read; ask again in a few seconds"
        return
    if end.slurm_state == "COMPLETED":  # an earlier controller shows it among the others
        yield "    it completed"
        return
    yield f"    why: {_CAUSES.get(end.cause, end.cause)}: {end.text}"
    for clue in end.clues:
        if clue.line not in end.text:
            yield f"      {clue.line[:_CHARS]}"
    if end.incident_id:
        yield f"    incident {end.incident_id}"
    if end.next_step:
        yield f"    what happens next: {end.next_step}"
    if end.advice:
        yield f"    what you can do: {end.advice}"
