"""What `holdfast why` prints."""

from __future__ import annotations

import pytest

from holdfast.api.answers.job_shapes import WhyShape
from holdfast.api.client import ApiClient
from holdfast.cli.app import run
from holdfast.cli.views.why import why_lines

END = {
    "restarts": 0,
    "ended_at": "2026-03-01T12:00:31Z",
    "slurm_state": "FAILED",
    "exit_code": "1:0",
    "nodes": ["n1", "n2"],
    "cause": "users_code",
    "text": "the program ended with an error: KeyError: 'loss'",
    "again": "no_fault",
    "next_step": "Holdfast does not start it again",
    "advice": "fix the program",
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
        "    why: the program itself: the program ended with an error: KeyError: 'loss'\n"
        "    what happens next: Holdfast does not start it again\n"
        "    what you can do: fix the program"
    )


def test_what_is_still_being_read_is_not_called_unknown() -> None:
    assert "unknown" not in _lines(reading="pending", cause="unknown", text="")


def test_a_cause_of_a_newer_controller_is_shown_as_it_is() -> None:
    assert "why: cosmic_rays:" in _lines(cause="cosmic_rays")


def test_a_job_of_which_no_run_failed_says_so() -> None:
    job = {"job_id": 7, "user": "ada", "uid": 1000, "state": "RUNNING"}
    assert list(why_lines(WhyShape.read(job)))[1] == "  no run of it has failed, as far as Holdfast has seen"


def _job(**changed: object) -> list[str]:
    said = {"job_id": 7, "user": "ada", "uid": 1000, "name": "train", "state": "PENDING", "restarts": 1, **changed}
    return list(why_lines(WhyShape.read(said)))


def test_a_completed_job_needs_no_cause_and_shows_what_failed_before() -> None:
    lines = _job(state="COMPLETED", note="it completed", ends=[END])
    assert lines[0] == "job 7 (train) of ada: COMPLETED"
    assert lines[1].startswith("  run 0: FAILED")
    assert lines[-1] == "  run 1: it completed"
    assert "unknown" not in "".join(lines)


def test_a_run_that_was_queued_again_while_it_ran() -> None:
    assert _job(note="waits for nodes", requeued=[0])[1:] == [
        "  run 0: queued again by its owner, an operator or Slurm (a preemption, a lost node), not by Holdfast",
        "  run 1: waits for nodes",
    ]


def test_an_element_of_an_array_is_named_as_people_know_it() -> None:
    lines = _job(shown_id="5_2", elements=["5_1", "5_3"], ends=[END])
    assert lines[0].startswith("job 5_2 ")
    assert lines[-1] == "  other elements of the array that did not end well: 5_1, 5_3"


def test_an_earlier_controllers_answer_is_shown_as_it_is() -> None:
    """It names no next step, and shows a completed run among the others."""
    end = {name: value for name, value in END.items() if name not in ("again", "next_step")}
    assert "next" not in "".join(_job(ends=[end]))
    lines = _job(ends=[{**end, "slurm_state": "COMPLETED", "cause": "unknown", "text": "", "nodes": []}])
    assert lines[1:] == [
        "  run 0: COMPLETED, exit code 1:0, at 2026-03-01 12:00:31 UTC before it ran",
        "    it completed",
    ]


@pytest.mark.parametrize(
    ("asked", "path"), [("7", "/v1/jobs/7/why"), ("5_1", "/v1/jobs/5/why?task=1"), ("7+1", "/v1/jobs/7/why")]
)
def test_ids_as_slurm_shows_them(asked: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reads 5_1 as the number 51."""
    got: list[str] = []

    def answer(_self: ApiClient, path: str) -> dict[str, object]:
        got.append(path)
        return {"job_id": 7, "uid": 1, "state": "X"}

    monkeypatch.setenv("HOLDFAST_TOKEN", "t")
    monkeypatch.setattr(ApiClient, "get", answer)
    assert run(("why", asked)) == 0
    assert got == [path]


@pytest.mark.parametrize("asked", ["0", "-1", "5_", "_5", "5_1_2", "train", "5_[1-2]"])
def test_what_is_no_id_is_refused(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "t")
    assert run(("why", asked)) == 2


def test_a_recovery_says_what_ended_the_run_before_its_own_state() -> None:
    known = {"id": "r", "job": {"cluster": "c", "job_id": 7, "submit_time": "2026-03-01T12:00:00Z"}, "uid": 1000}
    known |= {"restarts_before": 0, "incident_id": "i1", "phase": "gone", "user": "ada", "note": "it failed"}
    known |= {"nodes_before": ["n3"], "partition": "gpu", "gpus": 8, "created_at": "2026-03-01T12:00:00Z"}
    cause = "Holdfast stopped it because of node n3, which had a fault (gpu.xid 79)"
    assert _job(recoveries=[{**known, "cause": cause}])[1:] == [
        f"  run 0: {cause}",
        "    recovery gone for incident i1: it failed",
    ]
    assert _job(recoveries=[known])[1:] == ["  run 0: recovery gone for incident i1: it failed"]
