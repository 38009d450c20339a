"""The JSON of jobs as the API shows them: those on record, and those made of replica groups."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from holdfast.api.answers.shape import Essential, Open, Shape
from holdfast.api.answers.shapes import NextCursor, RecoveryShape
from holdfast.model.actions.action import IntentState
from holdfast.model.elastic_jobs.elastic import GroupRole
from holdfast.model.elastic_jobs.room_names import RoomName
from holdfast.model.jobs.job_ends import Again, Cause, Reading, Sign


class CompleteShape(Shape):
    """A complete checkpoint."""

    step: int | None = Field(description="null: its name does not say.")
    age_s: float | None = Field(description="How long before the survey it was written; null: not known.")


class SurveyShape(Shape):
    """What an agent found in the directory, with the rights of the job's user."""

    restarts: int
    known: bool = Field(description="Whether all that ranks as newer was read, and is not complete.")
    complete: list[CompleteShape] = Field(description="The newest complete checkpoints, newest first.")
    layout: str
    problem: str = Field(description="Why not all is known; empty: it is.")


class CheckpointShape(Shape):
    """What a job said of its checkpoints, and what was found in its directory."""

    directory: str
    restarts: int
    fenced: bool
    saved_step: int | None
    saved_at: datetime | None
    progress_step: int | None
    progress_at: datetime | None
    resumed_step: int | None
    resumed_at: datetime | None
    survey: SurveyShape | None = Field(default=None, description="null: the directory was not read yet.")
    surveyed_at: datetime | None = None


class JobShape(Shape):
    """A job that Holdfast recovered, recovers, or that registered its checkpoints."""

    job_id: Annotated[int, Essential()]
    user: str = Field(description="Empty when Slurm has forgotten the job.")
    uid: int
    state: str = Field(description="Slurm's state; empty when Slurm has forgotten the job or does not answer.")
    nodes: list[str]
    checkpoint: CheckpointShape | None
    recoveries: list[RecoveryShape]


class ClueShape(Shape):
    """A line of the job's output that says something of its end."""

    sign: Open[Sign]
    line: str
    node: str = Field(description="Node that the line names; empty: it names none.")


class JobEndShape(Shape):
    """How one run ended, and why."""

    restarts: Annotated[int, Essential()] = Field(description="Slurm's Restarts of the run: 0 is the first one.")
    started_at: datetime | None = Field(default=None, description="null: it never ran, or it is not known.")
    ended_at: datetime
    slurm_state: str
    exit_code: str = Field(
        description="As Slurm shows it, `status:signal`. `0:53` is no signal: Slurm could not open a file of its output or input.",
        examples=["1:0"],
    )
    reason: str = Field(description="Slurm's reason, as Slurm shows it.")
    nodes: list[str]
    cause: Open[Cause]
    text: str = Field(description="The cause in a sentence; empty: Holdfast is still finding it out.")
    again: Open[Again] = Field(default="", description="Whether it is started again.")
    next_step: str = Field(default="", description="The same in a sentence.")
    advice: str = Field(description="What its owner can do; empty: nothing.")
    incident_id: str = Field(description="Incident of the fault that ended it, or may have; empty: there is none.")
    reading: Open[Reading] = Field(description="What became of the last lines of its output.")
    reading_note: str = Field(description="Why they were not read.")
    output: str = Field(default="", description="The file that its standard error goes to; empty: unknown.")
    clues: list[ClueShape]


class StoppedRunShape(RecoveryShape):
    """A recovery, with what ended the run."""

    cause: str = Field(
        default="", description="What ended the run, and who queued the job again; empty: not Holdfast, or not known."
    )


class WhyShape(Shape):
    """Why runs of a job ended."""

    job_id: Annotated[int, Essential()]
    shown_id: str = Field(default="", description="As people know it: of an array's element `4_2`.")
    user: str
    uid: int
    name: str
    state: str = Field(description="Slurm's state now; empty when Slurm has forgotten the job or does not answer.")
    restarts: int | None = Field(
        default=None, description="Slurm's Restarts of the run that Slurm shows now; null: none."
    )
    note: str = Field(default="", description="About that run: that it completed, or why it waits.")
    ends: list[JobEndShape] = Field(
        description="Oldest first. One that completed is not among them, nor one that was queued again while it ran."
    )
    requeued: list[int] = Field(
        default=[],
        description="Runs that were queued again while they ran, and not by Holdfast: by their owner, an operator or Slurm.",
    )
    elements: list[str] = Field(
        default=[], description="Of an array: other elements that ended otherwise than well within the hour."
    )
    recoveries: list[StoppedRunShape]


class GroupShape(Shape):
    """One replica group: an element of one of the job's two arrays."""

    group: Annotated[int, Essential()] = Field(description="Its index, SLURM_ARRAY_TASK_ID.")
    role: Open[GroupRole]
    job_id: int = Field(description="Slurm's id of its record; elements that have not started share one.")
    start: str = Field(
        description="Name of this start in the rendezvous; empty: it has not started.", examples=["123.0"]
    )
    state: str
    reason: str = Field(description="Slurm's reason why it waits.")
    nodes: list[str]
    waits_until: datetime | None = Field(description="Slurm does not start it before, unless it is released.")
    leaving: bool = Field(description="It was asked to leave and is still there.")
    step: int | None = Field(description="Last step that this start reported; null: it reported none.")
    phase: str = Field(
        description="What it was doing then: `init`, `step`, `waiting`, `heal`, `checkpoint`, `leaving`, or a phase that the job named."
    )
    trouble: str = Field(
        description="Check of an open incident about this start: `job.hung`, `job.straggler`, `job.held`; empty: there is none."
    )
    incident_id: str = Field(description="That incident; empty: there is none.")


class DecisionShape(Shape):
    """The last step of the last hour that was for the job's size."""

    at: datetime
    reason: str
    state: Open[IntentState]
    outcome: str


class ElasticJobShape(Shape):
    """A job made of replica groups, as Slurm shows it now."""

    room: Annotated[str, Essential()] = Field(examples=[RoomName(71, 1772366280).text])
    base_job_id: int = Field(description="Id of the array with the least number of groups.")
    flexible_job_ids: list[int]
    name: str
    user: str
    uid: int
    sizes: str = Field(description="As the job's comment declares them.", examples=["2:8:2+4+8"])
    legal: list[int] = Field(description="Legal sizes that the groups that Slurm shows can fill, and the least.")
    spares: int
    running: int = Field(description="Groups that run now, spares among them.")
    size: int = Field(description="Legal size that they fill; 0: fewer than the least.")
    target: int = Field(description="Legal size once those that were asked to leave are gone.")
    waiting: int
    groups: list[GroupShape]
    decision: DecisionShape | None = Field(description="null: nothing was decided in the last hour.")


class JobsShape(Shape):
    jobs: Annotated[list[JobShape], Essential()]
    elastic: list[ElasticJobShape] = Field(
        description="Those that run or wait now; with the first page alone, whatever the filters."
    )
    next_cursor: NextCursor = None
