"""The verb that says why a job died."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.answers import read
from holdfast.cli.client import Client
from holdfast.cli.options import Json, Url
from holdfast.cli.show import as_json, line, moment

if TYPE_CHECKING:
    from holdfast.api.job_shapes import JobEndShape, WhyShape

_CAUSES = {
    "node_fault": "a fault of a node",
    "out_of_memory": "out of memory",
    "full_disk": "full disk or spent quota",
    "time_limit": "time limit",
    "users_code": "the program itself",
    "stopped": "cancelled or preempted",
    "unknown": "unknown",
}
_CHARS = 160


def why(
    job_id: Annotated[int, typer.Argument(metavar="JOBID", min=1, help="Slurm's id of the job.")],
    url: Url = None,
    as_data: Json = False,
) -> None:
    """Why a job died: a fault of a node, memory, a full disk, the time limit, the program, or unknown; and what to do."""
    got = Client(url).get(f"/v1/jobs/{job_id}/why")
    if as_data:
        as_json(got)
        return
    from holdfast.api.job_shapes import WhyShape  # noqa: PLC0415

    for sentence in why_lines(read(WhyShape, got)):
        line(sentence)


def why_lines(job: WhyShape) -> Iterator[str]:
    """What is known, oldest run first."""
    named = f" ({job.name})" if job.name else ""
    yield f"job {job.job_id}{named} of {job.user}: {job.state or 'Slurm has forgotten it'}"
    for end in job.ends:
        yield from _end_lines(end)
    for recovery in job.recoveries:
        note = f": {recovery.note}" if recovery.note else ""
        yield f"  run {recovery.restarts_before}: recovery {recovery.phase} for incident {recovery.incident_id}{note}"
    if not job.ends and not job.recoveries:
        yield "  no run of it has failed, as far as Holdfast has seen"


def _end_lines(end: JobEndShape) -> Iterator[str]:
    ended = f"{end.slurm_state}, exit code {end.exit_code or '?'}, at {moment(end.ended_at)[:19]} UTC"
    yield f"  run {end.restarts}: {ended} on {','.join(end.nodes)}"
    if end.reading == "pending":
        yield "    its output is being read; ask again in a few seconds"
        return
    yield f"    why: {_CAUSES.get(end.cause, end.cause)}: {end.text}"
    for clue in end.clues:
        if clue.line not in end.text:
            yield f"      {clue.line[:_CHARS]}"
    if end.incident_id:
        yield f"    incident {end.incident_id}"
    if end.advice:
        yield f"    what you can do: {end.advice}"
