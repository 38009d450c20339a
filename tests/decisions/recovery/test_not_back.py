"""A job that was stopped for a fault and whose next run ended before it was back at work: its owner reads so, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.actions.action import Intent, Notify, SendOrder, Verb
from holdfast.model.incidents.incident import RecoveryPhase
from holdfast.model.notice import NoticeLevel, Topic
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

ON = replace(POLICY, job=replace(POLICY.job, owner_file=True, owner_mail=True))
ON_N1: dict[str, Any] = {
    "exclusive": True,
    "excluded": ("n2", "n3", "n4"),
    "stdout": "/home/ada/out/%j.out",
}
"""Queued again, it waits for n1, which is drained."""


def mails(site: Site) -> list[Notify]:
    return [i.action for i in site.store.intents() if isinstance(i.action, Notify) and i.action.user]


def notes(site: Site) -> list[Intent]:
    return [i for i in site.store.intents() if isinstance(i.action, SendOrder) and i.action.verb is Verb.JOB_NOTE]


def stopped(**changed: Any) -> tuple[Site, SimJob]:
    """A job that Holdfast stopped and queued again, and that waits."""
    site = Site(4, policy=ON)
    said = {**ON_N1, "comment": "holdfast", **changed}
    job = site.slurm.submit(1, **said)
    site.run(2)
    site.fault("n1")
    site.run(4)
    assert (job.state, job.restarts) == ("PENDING", 1)
    return site, job


def ends(site: Site, job: SimJob, state: str, code: str) -> None:
    """Before the controller has seen it run."""
    now = site.clock.now()
    job.state, job.exit_code, job.nodes, job.start, job.end = state, code, ("n2",), now, now
    site.run(60)
    assert site.recovery(job.job_id).phase is RecoveryPhase.GONE


def test_its_owner_reads_why_it_was_stopped_why_it_did_not_start_and_what_to_do() -> None:
    site, job = stopped()
    ends(site, job, "FAILED", "0:53")
    site.run(2 * 3600, step_s=60)
    (mail,) = mails(site)
    assert (mail.level, mail.topic) == (NoticeLevel.NEEDS_SOMEBODY, Topic.JOB_NOT_BACK)
    assert mail.subject == f"your job {job.job_id} could not start again"
    assert "\nrun 0 was stopped by node n1, which had a fault (gpu." in mail.body
    assert "; run 1 could not start: " in mail.body
    assert "\nWhat happens next: Holdfast does not start it again" in mail.body
    assert "\nWhat you can do: see that the folder of its output exists on n2" in mail.body
    assert f"scontrol show job {job.job_id}; holdfast why {job.job_id} (needs a token" in mail.body
    (note,) = notes(site)
    assert isinstance(note.action, SendOrder)
    assert "run 1 could not start" in str(note.action.args["text"])


def test_a_run_that_began_and_failed_is_not_said_to_have_had_no_start() -> None:
    site, job = stopped()
    ends(site, job, "FAILED", "1:0")
    (mail,) = mails(site)
    assert mail.subject == f"your job {job.job_id} was started again and failed"
    assert "; run 1 ended at 2026-03-01 12:" in mail.body
    assert "FAILED, exit code 1:0: " in mail.body


@pytest.mark.parametrize(
    ("code", "subjects"), [("0:53", ["runs again", "could not start again"]), ("1:0", ["runs again"])]
)
def test_a_run_that_slurm_showed_as_running_for_a_moment(code: str, subjects: list[str]) -> None:
    """A job that reports nothing counts as back when it runs; that its script never started shows later."""
    site, job = stopped()
    job.excluded = ("n1", "n3", "n4")
    site.run(10)
    assert site.recovery(job.job_id).phase is RecoveryPhase.RESUMED
    job.exit_code = code
    site.slurm.finish(job, "FAILED")
    site.run(60)
    assert [m.subject for m in mails(site)] == [f"your job {job.job_id} {each}" for each in subjects]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "PREEMPTED"])
def test_no_mail_where_its_owner_ended_it_or_it_completed(state: str) -> None:
    site, job = stopped()
    ends(site, job, state, "0:0")
    assert (mails(site), notes(site)) == ([], [])


def test_no_mail_to_who_wants_none() -> None:
    site, job = stopped(comment="holdfast,holdfast-no-notes")
    ends(site, job, "FAILED", "0:53")
    assert (mails(site), notes(site)) == ([], [])


def test_a_job_that_its_owner_queued_again_is_not_said_to_have_been_stopped() -> None:
    """It did not opt in; it runs on with a fault, and its owner requeues it into a folder that is gone."""
    site = Site(4, policy=ON)
    job = site.slurm.submit(1, **ON_N1)
    site.run(2)
    site.fault("n1")
    site.run(10)
    site.slurm.requeue(job.job_id)
    site.run(3)
    assert (job.state, job.restarts) == ("PENDING", 1)
    ends(site, job, "FAILED", "0:53")
    assert (mails(site), notes(site)) == ([], [])
