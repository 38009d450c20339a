"""How progress reports change a job's record: how far, in which phase, how long a step takes at most."""

from __future__ import annotations

import pytest

from holdfast.model.agents.report import Statement
from holdfast.model.book import Book, CheckpointRecord
from holdfast.store.checkpoints import REUSE_AFTER, StoredCheckpoint, state
from holdfast.store.progress import SLOTS
from support.store_nouns import later, statement


def told_to(kept: StoredCheckpoint | None, said: Statement, node: str = "") -> StoredCheckpoint | str:
    """Received at the time of the statement."""
    return state(kept, said, said.at, node)


def word(seconds: float, step: int = 1, phase: str = "step", **more: object) -> Statement:
    restarts = int(str(more.pop("restarts", 0)))
    detail = {"phase": phase, **more} if phase else dict(more)
    return statement("progress", step=step, at=later(seconds), restarts=restarts, detail=detail)


def told(*said: Statement) -> CheckpointRecord:
    kept: StoredCheckpoint | None = None
    for one in said:
        after = told_to(kept, one, "n1")
        assert isinstance(after, StoredCheckpoint), after
        kept = after
    assert kept is not None
    return kept.record


def test_progress_counts_without_a_registration_and_is_no_checkpoint() -> None:
    record = told(word(0, 3))
    assert (record.directory, record.progress_step, record.node) == ("", 3, "n1")
    book = Book(checkpoints={7: {"n1": record}})
    assert book.checkpoint_of(7, 1000, ["n1"]) is None
    assert book.progress_of(7, 1000, ["n1"]) == (record,)
    assert book.progress_of(7, 1001, ["n1"]) == ()
    assert book.progress_of(7, 1000, ["n2"]) == ()


def test_a_later_registration_keeps_the_progress() -> None:
    record = told(word(0, 3), statement("checkpoint.register", path="/ckpt", at=later(1)))
    assert (record.directory, record.progress_step) == ("/ckpt", 3)


def test_a_strangers_registration_does_not_wait_for_who_registered_nothing() -> None:
    kept = told_to(None, word(0, 3, restarts=2))
    assert isinstance(kept, StoredCheckpoint)
    theirs = statement("checkpoint.register", path="/new", uid=2000, at=later(1))
    after = told_to(kept, theirs)
    assert isinstance(after, StoredCheckpoint)
    assert (after.record.uid, after.record.progress_step) == (2000, None)
    assert "run 0 of job 7 is over" in str(told_to(kept, word(1)))
    assert isinstance(told_to(kept, word(REUSE_AFTER.total_seconds())), StoredCheckpoint)


def test_a_step_told_twice_is_no_step() -> None:
    record = told(word(0, 1), word(10, 2), word(20, 2), word(30, 2))
    assert (record.step_at, record.progress_at) == (later(10), later(30))


@pytest.mark.parametrize("phase", ["init", "waiting", "checkpoint", "heal", "leaving"])
def test_a_step_told_in_another_phase_is_none_yet(phase: str) -> None:
    assert told(word(0, 9, phase)).step_at is None


def test_since_when_a_phase_lasts() -> None:
    record = told(word(0, 1), word(10, 1, "checkpoint"), word(20, 1, "checkpoint"))
    assert (record.phase, record.phase_at, record.step_at) == ("checkpoint", later(10), later(0))
    assert told(word(0, 1), word(10, 1, "checkpoint"), word(20, 1)).phase_at == later(20)


def test_the_longest_step_and_the_longest_pause_are_of_steps() -> None:
    record = told(
        word(0, 1, step_ms=800),
        word(1, 2, step_ms=2500),
        word(3, 3, step_ms=700),
        word(4, 3, "checkpoint", step_ms=90_000),
        word(500, 4, step_ms=900),
        word(501, 5),
    )
    assert (record.longest_step_s, record.progress_gap_s) == (2.5, 2.0)


def test_a_pause_in_which_others_came_or_were_lost_is_not_its_own() -> None:
    before = [word(0, 1, quorum=7), word(2, 2, quorum=7)]
    lost = [word(13, 3, quorum=8), word(14, 4, quorum=8)]
    assert told(*before, *lost).progress_gap_s == 2.0
    assert told(*before, *lost, word(20, 5, quorum=8)).progress_gap_s == 6.0
    assert told(*before, word(13, 3), word(14, 4, quorum="?")).progress_gap_s == 11.0
    assert told(word(0, 1), word(11, 2, quorum=8)).progress_gap_s == 11.0
    assert told(word(0, 1, quorum=7), word(1, 1, "init", restarts=1)).quorum is None


@pytest.mark.parametrize("nonsense", [0, -5, True, "9", 10**15])
def test_a_time_that_makes_no_sense_is_none(nonsense: object) -> None:
    record = told(word(0, step_ms=nonsense, own_ms=nonsense))
    assert (record.longest_step_s, record.own_ms) == (None, ())


def test_another_run_begins_anew() -> None:
    record = told(word(0, 50, step_ms=800, own_ms=9), word(10, 51), word(400, 20, "init", restarts=1))
    assert (record.phase, record.step_at, record.longest_step_s, record.progress_gap_s) == ("init", None, None, None)
    assert (record.own_ms, record.progress_step) == ((), 20)
    assert told(word(0, 50), word(9, 20, restarts=1)).step_at == later(9)


def test_own_times_are_kept_by_slots_of_five_seconds_for_a_minute() -> None:
    record = told(*(word(n, n, own_ms=100 + n) for n in range(12)))
    assert record.own_ms == (100, 105, 110)
    assert told(word(0, 0, own_ms=100), word(1, 1, own_ms=70), word(2, 2, own_ms=90)).own_ms == (70,)
    assert told(word(0, 0, own_ms=5), word(6, 1, "heal", own_ms=1)).own_ms == (5,)
    long = told(*(word(n, n, own_ms=1 + n) for n in range(300)))
    assert len(long.own_ms) == SLOTS
    assert long.own_ms[-1] == 296


def test_after_the_clock_was_set_back_a_word_counts_and_before_it_an_older_one_does_not() -> None:
    kept = told_to(None, word(100, 3))
    assert isinstance(kept, StoredCheckpoint)
    older = word(50, 4)
    assert "later progress" in str(state(kept, older, later(120)))
    after = state(kept, older, later(50))
    assert isinstance(after, StoredCheckpoint)
    assert (after.record.progress_step, after.record.progress_at, after.record.step_at) == (4, later(50), later(50))
