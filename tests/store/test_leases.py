"""The leader's lease in both databases: one holder at a time, a new fence for each, no wait for one that has ended."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.model.book import Change
from holdfast.model.errors import LeaderFencedOff
from holdfast.ports import Lease
from holdfast.store import SqlStore, open_store
from support.store_nouns import NOW, later


def test_a_holder_that_has_ended_is_not_waited_for_and_its_fence_is_over(store: SqlStore, store_url: str) -> None:
    other = open_store(store_url)
    assert store.take_lease("head/1", NOW, 15) == Lease("head/1", 1, later(15))
    assert other.take_lease("head/2", later(1), 15, {"head/0"}) is None
    assert other.take_lease("head/2", later(1), 15, {"head/1", "head/0"}) == Lease("head/2", 2, later(16))
    with pytest.raises(LeaderFencedOff):
        store.commit(Change(), 1)
    assert store.take_lease("head/1", later(2), 15) is None
    assert other.take_lease("head/2", later(3), 15, {"head/1"}) == Lease("head/2", 2, later(18)), "renewed"
    other.close()


def test_a_lease_of_an_older_release_runs_out_like_any_other(store: SqlStore) -> None:
    """Its holder is a host name, also of a process of that release that is still there."""
    store.take_lease("head", NOW, 15)
    assert store.take_lease("head/1", later(1), 15, {"head/0"}) is None
    assert store.take_lease("head/1", later(15), 15) == Lease("head/1", 2, later(30))
    assert store.take_lease("head", later(16), 15) is None, "the older release waits, too"


def test_of_many_that_start_at_once_on_an_empty_database_one_leads(store: SqlStore, store_url: str) -> None:
    others = [open_store(store_url) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        taken = [pool.submit(one.take_lease, f"head/{n}", NOW, 15) for n, one in enumerate(others)]
        won = [lease for each in taken if (lease := each.result()) is not None]
    assert len(won) == 1
    assert won == [store.lease()]
    for one in others:
        one.close()
