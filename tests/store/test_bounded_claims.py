"""Jobs that a node's agent names: few at a time that Slurm does not show, and those that it shows are never pushed out."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.book import Book
from holdfast.store import SqlStore, checkpoints
from holdfast.store.checkpoints import surplus
from support.store_nouns import NOW, later, report, statement


def _register(store: SqlStore, number: int, jobs: range, shown: frozenset[int] | None, node: str = "n1") -> None:
    said = tuple(statement("checkpoint.register", job_id=job, path="/c", at=later(job)) for job in jobs)
    store.accept_soon(report(number, node=node, statements=said), shown).result(10)


def _jobs(book: Book, node: str = "n1") -> list[int]:
    return sorted(job for job, claims in book.checkpoints.items() if node in claims)


def test_invented_jobs_push_out_each_other_and_no_job_that_slurm_shows(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "MOST_JOBS", 3)
    monkeypatch.setattr("holdfast.store.reports.MOST_JOBS", 3)
    _register(store, 1, range(1, 3), frozenset({1, 2}))
    _register(store, 1, range(50, 60), frozenset(range(50, 60)), node="n2")
    assert _jobs(store.load_book(NOW)) == [1, 2]
    for number in range(2, 6):
        _register(store, number, range(number * 10, number * 10 + 5), frozenset({1, 2}))
    assert _jobs(store.load_book(NOW)) == [1, 2, 52, 53, 54], "what was deleted leaves the reader's memory, too"
    assert _jobs(store.load_book(NOW), "n2") == list(range(50, 60)), "n1 names jobs of n2 and takes no place there"
    _register(store, 9, range(90, 91), frozenset({1, 2, 54}))
    assert _jobs(store.load_book(NOW)) == [1, 2, 52, 53, 54, 90], "a job that has just started is kept"


def test_little_goes_where_it_is_not_known_what_slurm_shows() -> None:
    stated = {job: NOW + timedelta(seconds=job) for job in range(4000)}
    assert surplus(stated, None) == list(range(1000))
    assert len(surplus(stated, frozenset())) == 3700
    assert surplus(stated, frozenset(range(4000))) == []
