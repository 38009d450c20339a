"""Jobs that were queued again for a fault and whose next run ended before it was back at work, for their owners. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.decisions.job_ends import run_ends
from holdfast.decisions.recovery import owner_note
from holdfast.decisions.recovery.started_again import Outlook, by_holdfast, outlook
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, Recovery, RecoveryPhase
from holdfast.model.jobs.job_ends import Again, Cause, JobEnd, Reading
from holdfast.model.policies.lookback import STEP_HOUR_S
from holdfast.model.slurm.cluster import ClusterView, Job

_ITS_OWN = frozenset({"", "COMPLETED", "CANCELLED", "PREEMPTED", "REQUEUED", "REVOKED"})
"""Ends that need no note: it completed, or its owner or an operator ended it."""
_FINAL = frozenset(
    {Again.NO_FAULT, Again.FAULT_OVER, Again.NO_CONSENT, Again.CANNOT_BE_REQUEUED, Again.LEFT_ALONE, Again.FORGOTTEN}
)
"""Nothing starts it again unless its owner does."""


@dataclass(frozen=True, slots=True)
class NotBack:
    """The end of the run after a recovery."""

    end: JobEnd
    outlook: Outlook

    @property
    def subject(self) -> str:
        return "could not start again" if self._never_began else "was started again and failed"

    def lines(self, world: World, incident: Incident, recovery: Recovery) -> tuple[str, ...]:
        """What happened, why, and what its owner can do."""
        number, end = self.end.restarts, self.end
        ended = f"ended at {end.ended_at:%Y-%m-%d %H:%M:%S} UTC: {end.slurm_state}, exit code {end.exit_code or '?'}"
        then = f"run {number} {'could not start' if self._never_began else ended}"
        return (
            f"{owner_note.stopped(world, incident, recovery)}; {then}: {end.text or 'the cause is not known'}.",
            f"What happens next: {self.outlook.next_step}.",
            *((f"What you can do: {self.outlook.advice}.",) if self.outlook.advice else ()),
        )

    @property
    def _never_began(self) -> bool:
        return self.end.cause is Cause.NO_FILE


def not_back(
    world: World, view: ClusterView, incident: Incident, recovery: Recovery, job: Job | None
) -> NotBack | None:
    """The end that the job's owner is to read of; None: there is none, it is still being read, or something starts the job again."""
    resumed = recovery.phase is RecoveryPhase.RESUMED  # of a job that reports nothing: as soon as it is seen to run
    if not resumed and (recovery.phase is not RecoveryPhase.GONE or recovery.next_run_ended in _ITS_OWN):
        return None
    if job is None or not owner_note.in_the_next_run(recovery, job):
        return None
    if not by_holdfast(world, recovery):
        return None
    end = run_ends.shown(world, view, job)
    if end is None or end.reading is Reading.PENDING or world.now - end.ended_at >= timedelta(seconds=STEP_HOUR_S):
        return None
    if resumed and end.cause is not Cause.NO_FILE:
        return None  # it was back at work
    next_one = outlook(world, end, world.book.recovery_of(job.key, job.restarts))
    return NotBack(end, next_one) if next_one.again in _FINAL else None
