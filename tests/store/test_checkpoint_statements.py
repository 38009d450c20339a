from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.report import Statement
from holdfast.store.checkpoints import REUSE_AFTER, Kept, state
from support.store_nouns import NOW, later, statement

DAY_S = REUSE_AFTER.total_seconds()


def _register(**changed: object) -> Statement:
    return statement("checkpoint.register", **({"path": "/ckpt"} | changed))


def _run(*said: Statement) -> Kept:
    kept: Kept | None = None
    for one in said:
        after = state(kept, one)
        if isinstance(after, Kept):
            kept = after
    assert kept is not None
    return kept


def test_a_registration_binds_and_tells() -> None:
    record = _run(_register(detail={"fenced": True, "save_signal": "USR1"})).record
    assert (record.uid, record.directory, record.fenced, record.save_signal) == (1000, "/ckpt", True, "USR1")


@pytest.mark.parametrize("kind", ["checkpoint.saved", "checkpoint.resumed", "progress"])
def test_nothing_counts_before_a_registration(kind: str) -> None:
    assert "registered no checkpoint directory" in str(state(None, statement(kind, step=5)))


@pytest.mark.parametrize("kind", ["checkpoint.register", "checkpoint.saved", "checkpoint.resumed", "progress"])
def test_another_uid_changes_nothing(kind: str) -> None:
    kept = _run(_register())
    assert "registered by uid 1000" in str(state(kept, statement(kind, uid=1001, step=9, path="/theirs", at=later(60))))


@pytest.mark.parametrize(("said", "expected"), [([10, 20], 20), ([20, 10], 20), ([10, 10], 10)])
def test_a_saved_step_only_moves_forward(said: list[int], expected: int) -> None:
    kept = _run(_register(), *(statement("checkpoint.saved", step=step, at=later(n)) for n, step in enumerate(said)))
    assert kept.record.saved_step == expected


def test_a_newer_run_may_save_an_older_step() -> None:
    saved = [statement("checkpoint.saved", step=30), statement("checkpoint.saved", step=20, restarts=1, at=later(9))]
    kept = _run(_register(), saved[0], _register(restarts=1, at=later(5)), saved[1])
    assert (kept.record.saved_step, kept.record.restarts) == (20, 1)
    assert _run(_register(), saved[0], _register(restarts=1)).record.saved_step == 30  # known until the new run saves


def test_an_older_run_is_not_heard_any_more() -> None:
    kept = _run(_register(restarts=2))
    assert "run 1 of job 7 is over" in str(state(kept, statement("checkpoint.saved", restarts=1, step=99)))


def test_the_stopped_runs_last_step_outlives_the_next_runs_progress() -> None:
    told = (
        _register(),
        statement("progress", step=31, at=later(1)),
        statement("checkpoint.resumed", restarts=1, step=20, at=later(3)),
        statement("progress", restarts=1, step=22, at=later(4)),
        statement("checkpoint.resumed", restarts=1, step=20, at=later(5)),
    )
    record = _run(*told).record
    assert (record.reached_step, record.resumed_step, record.progress_step) == (31, 20, 22)


def test_resumed_names_its_run() -> None:
    record = _run(_register(), statement("checkpoint.resumed", restarts=1, step=20, at=later(3))).record
    assert (record.resumed_step, record.resumed_restarts, record.resumed_at) == (20, 1, later(3))


def test_progress_does_not_go_back_in_time_within_a_run() -> None:
    late = statement("progress", step=4, at=later(4))
    assert _run(_register(), late, statement("progress", step=3, at=later(3))).record.progress_step == 4


def test_another_directory_has_its_own_newest_checkpoint() -> None:
    record = _run(_register(), statement("checkpoint.saved", step=30), _register(path="/else")).record
    assert (record.directory, record.saved_step) == ("/else", None)


@pytest.mark.parametrize(
    ("changed", "after_s", "replaced"),
    [
        ({"uid": 2000}, DAY_S - 1, False),
        ({"uid": 2000}, DAY_S, True),
        ({"restarts": 0}, DAY_S - 1, False),
        ({"restarts": 0}, DAY_S, True),
    ],
)
def test_a_job_id_is_given_out_again_only_after_a_day_of_silence(
    changed: dict[str, Any], after_s: float, replaced: bool
) -> None:
    kept = _run(_register(restarts=3), statement("checkpoint.saved", restarts=3, step=50))
    after = state(kept, replace(_register(path="/new", at=later(after_s)), **changed))
    assert isinstance(after, Kept) is replaced
    if isinstance(after, Kept):
        assert (after.record.directory, after.record.saved_step, after.stated_at) == ("/new", None, later(after_s))


@pytest.mark.parametrize(
    "said", [statement("checkpoint.saved"), statement("checkpoint.register"), statement("dance", step=1)]
)
def test_an_incomplete_or_unknown_statement_is_a_line_and_no_more(said: Statement) -> None:
    assert isinstance(state(_run(_register(at=NOW)), said), str)


def test_another_nodes_word_of_a_run_is_not_taken_for_its_own() -> None:
    kept = state(None, _register(), "n1")
    assert isinstance(kept, Kept)
    saved = statement("checkpoint.saved", step=10**9)
    assert "registered on node n1, not on n2" in str(state(kept, saved, "n2"))
    own = state(kept, statement("checkpoint.saved", step=5), "n1")
    assert isinstance(own, Kept)
    taken = state(own, _register(), "n2")
    assert isinstance(taken, Kept)
    assert (taken.record.node, taken.record.saved_step) == ("n2", None)
    later_run = state(own, statement("checkpoint.resumed", restarts=1, step=5), "n3")
    assert isinstance(later_run, Kept)
    assert (later_run.record.node, later_run.record.saved_step) == ("n3", 5)
