"""What the owner of a job that runs again reads at the job: why, which run, from where it continues, what was lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.decisions.common.owner_words import fault_of
from holdfast.decisions.recovery.owner_note import how_to_resume, recovered, stopped
from holdfast.model.incidents.incident import IncidentKind
from holdfast.model.jobs.opt_in import OptInMeaning, read_comment, wants_notes
from support.simulated import Site
from support.simulated.slurm import SimJob
from support.store_nouns import incident, recovery


def back_at_work(site: Site, **changed: Any) -> SimJob:
    job = site.slurm.submit(2, **{"comment": "holdfast", "exclusive": True, **changed})
    site.run(2)
    site.fault("n1")
    site.run(30)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    return job


def tells(site: Site) -> int:
    return [verb for verb, _ in site.slurm.calls].count("tell_owner")


def test_the_owner_of_a_job_that_runs_again_is_told_once() -> None:
    site = Site(4, spares=("n4",))
    job = back_at_work(site)
    site.run(3 * 3600, step_s=60)
    assert job.admin_comment.startswith(
        f"holdfast[{site.incident('n1').id}]: run 0 was stopped by node n1, which had a fault ("
    )
    assert "; run 1 started at 2026-03-01 12:" in job.admin_comment
    assert job.admin_comment.endswith(
        "It reported no checkpoint: unless it loads one itself, it began at step 0; run 0 had run 4 s. "
        "To resume from saves: holdfast checkpoint register DIR. "
        f"More: scontrol show job {job.job_id}; holdfast why {job.job_id} (needs a token of role user: ask the operator)"
    )
    assert len(job.admin_comment) < 500
    assert tells(site) == 1


def test_another_users_comment_stays() -> None:
    site = Site(4, spares=("n4",))
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    job.admin_comment = "billed to project 7"
    site.run(2)
    site.fault("n1")
    site.run(60)
    assert (job.restarts, job.admin_comment) == (1, "billed to project 7")


def test_a_job_that_wants_no_notes_is_recovered_without() -> None:
    site = Site(4, spares=("n4",))
    job = back_at_work(site, comment="holdfast,holdfast-no-notes")
    assert (job.admin_comment, tells(site)) == ("", 0)


@pytest.mark.parametrize(
    ("comment", "wanted", "said"),
    [
        ("holdfast", True, OptInMeaning.CONSENT),
        ("holdfast holdfast-no-notes", False, OptInMeaning.CONSENT),
        ("holdfast-no-notes", False, OptInMeaning.NOTHING),
        ("", True, OptInMeaning.NOTHING),
    ],
)
def test_the_word_that_wants_no_notes_is_no_consent_and_no_refusal(
    comment: str, wanted: bool, said: OptInMeaning
) -> None:
    assert (wants_notes(comment), read_comment(comment).said) == (wanted, said)


@pytest.mark.parametrize(
    ("resumed", "reached", "estimated", "words"),
    [
        (60, None, False, "It continues from step 60. Nothing has to be done"),
        (60, 95, False, "It continues from step 60; 35 steps were lost. Nothing has to be done"),
        (60, 95, True, "It continues from step 60; about 35 steps were lost. Nothing has to be done"),
        (60, 50, False, "It continues from step 60; 0 steps were lost. Nothing has to be done"),
    ],
)
def test_from_where_it_continues(resumed: int | None, reached: int | None, estimated: bool, words: str) -> None:
    site = Site(2, warm=False)
    job = site.slurm.submit(1)
    site.run(2)
    before = replace(recovery(), resumed_step=resumed, stopped_step=reached, stopped_estimated=estimated)
    world = site.loop.observer.world()
    assert recovered(world, incident(), before, site.slurm.job(job.job_id)).endswith(words)


@pytest.mark.parametrize(
    ("minutes", "comment", "words"),
    [
        (0.5, "", "it began at step 0; run 0 had run 30 s"),
        (7, "", "it began at step 0; run 0 had run 7 min"),
        (150, "", "it began at step 0; run 0 had run 2.5 h"),
        (None, "", "unless it loads one itself, it began at step 0"),
        (7, "elastic=1-2", "The job does not report from which step it continues"),
    ],
)
def test_a_job_that_reports_no_checkpoint_is_not_told_that_nothing_has_to_be_done(
    minutes: float | None, comment: str, words: str
) -> None:
    site = Site(2, warm=False)
    job = site.slurm.submit(1, comment=comment)
    site.run(2)
    shown, world = site.slurm.job(job.job_id), site.loop.observer.world()
    begun = shown.key.submit_time - timedelta(minutes=minutes) if minutes is not None else None
    text = recovered(world, incident(), replace(recovery(), started_at=begun), shown)
    assert words in text
    assert "Nothing has to be done" not in text
    lines = how_to_resume(world, recovery(), shown)
    assert ("--open-mode=append" in "".join(lines)) == (not comment)


def test_what_stopped_it_is_named_as_it_was() -> None:
    world = Site(2, warm=False).loop.observer.world()
    hang = replace(incident(), kind=IncidentKind.HANG)
    assert stopped(world, hang, recovery()) == f"run 0 was stopped by a hang ({fault_of(hang)})"
    assert "which is dead" in stopped(world, replace(incident(), dead=True), recovery())


def test_a_job_that_its_owner_queued_again_is_told_nothing() -> None:
    """It did not opt in and ran on; the fault is not why it starts again."""
    site = Site(4)
    job = site.slurm.submit(1, exclusive=True)
    site.run(2)
    site.fault("n1")
    site.run(10)
    site.slurm.requeue(job.job_id)
    site.run(200)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert "was stopped by" not in job.admin_comment
