"""Evidence bundles are kept off the node, and out of what every cycle reads."""

from __future__ import annotations

from holdfast.model.agents.report import OrderOutcome
from holdfast.model.book import Change
from holdfast.store import SqlStore
from support.store_nouns import NOW, closed, incident, later, order, report

KEY = "inc1/SendOrder/evidence/n1/1"


def test_the_bundle_is_kept_and_the_outcome_stays_small(store: SqlStore) -> None:
    store.commit(Change(incidents=(incident(),), intents=(order(KEY),)), fence=0)
    store.accept(report(outcomes=(OrderOutcome(KEY, True, "12 files", later(4), {"bytes": 5}, b"\x1f\x8b\x00\xff!"),)))
    kept = store.evidence("inc1")
    assert kept is not None
    assert (kept.node, kept.received_at, kept.bundle) == ("n1", later(4), b"\x1f\x8b\x00\xff!")
    assert store.load_book(NOW).intents[KEY].result == {"bytes": 5}


def test_a_bundle_for_another_agents_order_is_dropped(store: SqlStore) -> None:
    store.commit(Change(incidents=(incident(),), intents=(order(KEY),)), fence=0)
    store.accept(report(node="n2", outcomes=(OrderOutcome(KEY, True, "mine", NOW, {}, b"x"),)))
    assert store.evidence("inc1") is None


def test_old_bundles_go_with_their_incident(store: SqlStore) -> None:
    store.commit(Change(incidents=(incident(),), intents=(order(KEY),)), fence=0)
    store.accept(report(outcomes=(OrderOutcome(KEY, True, "12 files", NOW, {}, b"x"),)))
    store.prune(later(10))
    assert store.evidence("inc1") is not None
    store.commit(Change(incidents=(closed("inc1", later(1)),)), fence=0)
    store.prune(later(10))
    assert store.evidence("inc1") is None
