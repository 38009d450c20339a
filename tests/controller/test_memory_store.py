"""The store in memory matches the real one: the same events, turn by turn, give the same state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from holdfast.model.event import EventKind
from holdfast.model.operators.node_orders import NodeOrder, OrderVerb
from holdfast.ports import Operation
from holdfast.store import open_store
from holdfast_checks.result import Severity
from support.simulated import MemoryStore, Site

_OPERATORS = (EventKind.PAUSED, EventKind.RESUMED, EventKind.OPERATOR)


def test_the_same_story_on_both_stores(tmp_path: Path) -> None:
    real = open_store(f"sqlite:///{tmp_path / 'holdfast.db'}")
    sites = [Site(4, spares=("n4",), store=store, warm=False) for store in (real, MemoryStore())]

    def same() -> None:
        books = [site.book for site in sites]
        # The real store's numbers have gaps; only their order is used.
        findings = [[replace(f, id=0) for _, f in sorted(book.findings.items())] for book in books]
        assert findings[0] == findings[1]
        assert replace(books[0], findings={}) == replace(books[1], findings={})
        # Operators' actions are events of the real store alone; no decision reads them.
        events = [[replace(e, id=0) for e in site.store.events() if e.kind not in _OPERATORS] for site in sites]
        assert events[0] == events[1]
        assert sites[0].store.due_intents() == sites[1].store.due_intents()

    def both_run(seconds: float, step_s: float = 1.0) -> None:
        for site in sites:
            site.run(seconds, step_s)
        same()

    for site in sites:
        site.slurm.submit(2, comment="holdfast", exclusive=True)
    both_run(12, 4)
    for site in sites:
        machine = site.machine("n1")
        site.agents.state(machine, "checkpoint.register", 100, 0, path="/ckpt", detail={"fenced": True})
        site.agents.state(machine, "checkpoint.saved", 100, 0, step=40)
        site.fault("n1")
        site.fault("n1")
        site.fault("n3", severity=Severity.WARNING, sticky=True)
    both_run(4)
    for site in sites:
        site.operate("pause")
        site.agents.clear(site.machine("n3"), "gpu.xid", site.machine("n3").gpu_uuids[3])
    both_run(60, 10)
    for site in sites:
        site.operate("resume")
    both_run(150, 10)
    for site in sites:
        site.fault("n2")
    both_run(2)
    for site in sites:
        site.operate("acknowledge", site.incident("n2").id)
    both_run(4)
    _an_operator_drains(sites)
    both_run(4)
    _and_releases(sites)
    both_run(10)
    assert {i.node for i in real.incidents()} == {"n1", "n2", "n3"}
    real.close()


def _an_operator_drains(sites: list[Site]) -> None:
    for site in sites:
        site.slurm.operator_drains("n4", "psu", "eve")


def _and_releases(sites: list[Site]) -> None:
    for site in sites:
        now, over = site.clock.now(), site.slurm.node("n4").given_reason
        order = NodeOrder("0000000000aa", "n4", OrderVerb.RELEASE, now, "ops", "psu swapped", "OPS-1", over)
        site.store.operate(Operation("release_node", "ops", "n4", order=order, node="n4"), now)
