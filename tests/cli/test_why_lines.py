"""What `holdfast why` prints."""

from __future__ import annotations

from holdfast.api.job_shapes import WhyShape
from holdfast.cli.why import why_lines

END = {
    "restarts": 0,
    "ended_at": "2026-03-01T12:00:31Z",
    "slurm_state": "FAILED",
    "exit_code": "1:0",
    "nodes": ["n1", "n2"],
    "cause": "users_code",
    "text": "its program ended with an error of its own: KeyError: 'loss'",
    "advice": "mend the program",
    "reading": "read",
    "clues": [{"sign": "exception", "line": "KeyError: 'loss'", "node": ""}],
}


def _lines(**changed: object) -> str:
    job = {"job_id": 7, "user": "ada", "uid": 1000, "name": "train", "state": "FAILED", "ends": [{**END, **changed}]}
    return "\n".join(why_lines(WhyShape.read(job)))


def test_the_cause_its_evidence_and_what_to_do() -> None:
    assert _lines() == (
        "job 7 (train) of ada: FAILED\n"
        "  run 0: FAILED, exit code 1:0, at 2026-03-01 12:00:31 UTC on n1,n2\n"
        "    why: the program itself: its program ended with an error of its own: KeyError: 'loss'\n"
        "    what you can do: mend the program"
    )


def test_what_is_still_being_read_is_not_called_unknown() -> None:
    assert "unknown" not in _lines(reading="pending", cause="unknown", text="")


def test_a_cause_of_a_newer_controller_is_shown_as_it_is() -> None:
    assert "why: cosmic_rays:" in _lines(cause="cosmic_rays")


def test_a_job_of_which_no_run_failed_says_so() -> None:
    job = {"job_id": 7, "user": "ada", "uid": 1000, "state": "RUNNING"}
    assert list(why_lines(WhyShape.read(job)))[1] == "  no run of it has failed, as far as Holdfast has seen"
