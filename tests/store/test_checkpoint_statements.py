from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.agents.report import Statement
from holdfast.model.book import Book, CheckpointRecord
from holdfast.store.checkpoints import REUSE_AFTER, StoredCheckpoint, state
from support.store_nouns import NOW, later, statement


def told_to(kept: StoredCheckpoint | None, said: Statement, node: str = "") -> StoredCheckpoint | str:
    """Received after every statement."""
    return state(kept, said, max(said.at, later(3600)), node)


DAY_S = REUSE_AFTER.total_seconds()


def _register(**changed: object) -> Statement:
    return statement("checkpoint.register", **({"path": "/ckpt"} | changed))


def _run(*said: Statement) -> StoredCheckpoint:
    kept: StoredCheckpoint | None = None
    for one in said:
        after = told_to(kept, one)
        if isinstance(after, StoredCheckpoint):
            kept = after
    assert kept is not None
    return kept


def test_a_registration_binds_and_tells() -> None:
    record = _run(_register(detail={"fenced": True, "save_signal": "USR1"})).record
    assert (record.uid, record.directory, record.fenced, record.save_signal) == (1000, "/ckpt", True, "USR1")


def test_a_run_that_registers_two_directories_is_known_to() -> None:
    both = (_register(path="/a"), _register(path="/b", at=later(1)))
    assert [_run(*both[:1]).record.several, _run(*both).record.several] == [False, True]
    assert _run(*both, _register(path="/b", at=later(2))).record.several
    again = _register(path="/b", restarts=1, at=later(3))
    assert not _run(*both, again).record.several, "the next run has registered one so far"


@pytest.mark.parametrize("kind", ["checkpoint.saved", "checkpoint.resumed"])
def test_nothing_of_checkpoints_counts_before_a_registration(kind: str) -> None:
    assert "registered no checkpoint directory" in str(told_to(None, statement(kind, step=5)))
    only_progress = _run(statement("progress", step=4))
    assert "registered no checkpoint directory" in str(told_to(only_progress, statement(kind, step=5, at=later(1))))


@pytest.mark.parametrize("kind", ["checkpoint.register", "checkpoint.saved", "checkpoint.resumed", "progress"])
def test_another_uid_changes_nothing(kind: str) -> None:
    kept = _run(_register())
    assert "registered by uid 1000" in str(
        told_to(kept, statement(kind, uid=1001, step=9, path="/theirs", at=later(60)))
    )


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
    assert "run 1 of job 7 is over" in str(told_to(kept, statement("checkpoint.saved", restarts=1, step=99)))


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


def test_the_longest_pause_between_two_words_of_progress_is_of_one_run() -> None:
    def at(seconds: float, restarts: int = 0, kind: str = "progress") -> Statement:
        return statement(kind, step=1, restarts=restarts, at=later(seconds))

    def gap(*said: Statement) -> float | None:
        return _run(_register(), *said).record.progress_gap_s

    assert gap(at(10)) is None
    assert gap(at(10), at(40), at(50)) == 30.0
    assert gap(at(10), at(900, 1)) is None, "the time between two runs is no pause"
    assert gap(at(10), at(890, 1, "checkpoint.resumed"), at(900, 1), at(920, 1)) == 20.0


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
    after = told_to(kept, replace(_register(path="/new", at=later(after_s)), **changed))
    assert isinstance(after, StoredCheckpoint) is replaced
    if isinstance(after, StoredCheckpoint):
        assert (after.record.directory, after.record.saved_step, after.stated_at) == ("/new", None, later(after_s))


@pytest.mark.parametrize(
    "said", [statement("checkpoint.saved"), statement("checkpoint.register"), statement("dance", step=1)]
)
def test_an_incomplete_or_unknown_statement_is_a_line_and_no_more(said: Statement) -> None:
    assert isinstance(told_to(_run(_register(at=NOW)), said), str)


def _claims(*said: tuple[str, Statement]) -> dict[str, StoredCheckpoint]:
    """What each node's agent reported, kept as the store keeps it."""
    claims: dict[str, StoredCheckpoint] = {}
    for node, one in said:
        after = told_to(claims.get(node), one, node)
        if isinstance(after, StoredCheckpoint):
            claims[node] = after
    return claims


def _told(*said: tuple[str, Statement], nodes: tuple[str, ...] = ("n1", "n2"), uid: int = 1000) -> CheckpointRecord:
    claims = {node: kept.record for node, kept in _claims(*said).items()}
    told = Book(checkpoints={7: claims}).checkpoint_of(7, uid, nodes)
    assert told is not None
    return told


def test_another_nodes_word_neither_passes_for_a_nodes_own_nor_takes_its_place() -> None:
    own = (("n1", _register()), ("n1", statement("checkpoint.saved", step=5)))
    lies = (
        ("evil", statement("checkpoint.saved", step=10**9)),
        ("evil", _register(restarts=9, path="/evil", at=later(1))),
        ("evil", statement("checkpoint.saved", restarts=9, step=10**9, at=later(2))),
        ("evil", _register(uid=1001, at=later(DAY_S))),
    )
    told = _told(*lies, *own, *lies)
    assert (told.node, told.directory, told.saved_step, told.restarts) == ("n1", "/ckpt", 5, 0)
    assert (
        Book(checkpoints={7: {n: k.record for n, k in _claims(*lies).items()}}).checkpoint_of(7, 1000, ["n1"]) is None
    )


def test_another_uids_word_on_a_node_of_the_job_is_not_the_jobs() -> None:
    assert _told(("n1", _register(uid=1001, path="/theirs")), ("n2", _register())).directory == "/ckpt"


def test_the_next_run_may_speak_from_another_node() -> None:
    first = (
        ("n1", _register()),
        ("n1", statement("checkpoint.saved", step=20, at=later(1))),
        ("n1", statement("progress", step=27, at=later(2))),
    )
    began = (*first, ("n2", _register(restarts=1, at=later(9))))
    told = _told(*began)
    assert (told.node, told.restarts, told.saved_step, told.progress_step) == ("n2", 1, 20, 27)
    resumed = (*began, ("n2", statement("checkpoint.resumed", restarts=1, step=20, at=later(10))))
    progress = (*resumed, ("n2", statement("progress", restarts=1, step=21, at=later(11))))
    told = _told(*progress)
    assert (told.resumed_step, told.resumed_restarts, told.reached_step, told.progress_step) == (20, 1, 27, 21)
    saved = (*progress, ("n2", statement("checkpoint.saved", restarts=1, step=22, at=later(12))))
    assert _told(*saved).saved_step == 22


def test_what_lies_in_another_directory_is_not_the_newest_of_this_one() -> None:
    first = (("n1", _register()), ("n1", statement("checkpoint.saved", step=20, at=later(1))))
    assert _told(*first, ("n2", _register(restarts=1, path="/else"))).saved_step is None


@pytest.mark.parametrize(
    ("said", "kept"), [(60, 60.0), (0, None), (True, None), (-5, None), ("60", None), (10**9, None)]
)
def test_how_long_a_job_takes_to_save_is_kept_where_it_makes_sense(said: int | str | bool, kept: float | None) -> None:
    assert _run(_register(detail={"save_signal": "USR1", "save_s": said})).record.save_s == kept


def test_what_sbatch_was_told_of_saving_outlasts_a_registration_by_the_job_itself_in_the_same_run() -> None:
    first = _register(detail={"save_signal": "USR2", "save_s": 60})
    own = _register(detail={"fenced": True}, at=later(1))
    record = _run(first, own).record
    assert (record.fenced, record.save_signal, record.save_s) == (True, "USR2", 60)
    assert _run(first, replace(own, restarts=1)).record.save_signal is None


def test_what_was_said_before_a_job_was_submitted_is_not_its_word() -> None:
    told = (statement("checkpoint.saved", step=9, at=later(1)), statement("progress", step=10, at=later(2)))
    record = _run(_register(detail={"fenced": True}), *told).record
    assert record.registered_at == NOW
    assert record.said_since(NOW) == record
    assert record.said_since(later(0.5)).directory == ""
    later_job = record.said_since(later(60))
    assert (later_job.directory, later_job.fenced, later_job.saved_step, later_job.progress_step) == (
        "",
        False,
        None,
        None,
    )
    again = _run(_register(), *told, _register(at=later(90))).record.said_since(later(60))
    assert (again.directory, again.saved_step, again.progress_step) == ("/ckpt", None, None)
    by_an_earlier_release = replace(record, registered_at=None)
    assert by_an_earlier_release.said_since(later(60)).directory == "/ckpt"
