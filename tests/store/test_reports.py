"""Accepting reports: once, cheaply, and no agent settles another's order."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from holdfast.model.actions.action import IntentState
from holdfast.model.agents.report import Clear, Finding, Inventory, OrderOutcome
from holdfast.model.book import MOST_EXCHANGED, Change, NodeRecord
from holdfast.model.errors import Rejected
from holdfast.model.event import EventKind
from holdfast.ports import Accepted
from holdfast.store import SqlStore
from holdfast.store.books import MOST_CLEARED
from holdfast.store.nodes import MOST_MACHINE_EVENTS, MOST_MACHINES
from holdfast.store.reports import MOST_LIVE
from holdfast_checks.result import Severity
from support.store_nouns import NOW, closed, finding, incident, later, order, report, statement

GPUS = Inventory(gpus={"GPU-1": {"minor": 0}, "GPU-2": {"minor": 1}})


def _findings(store: SqlStore) -> list[Finding]:
    return sorted(store.load_book(NOW).findings.values(), key=lambda f: f.id)


def test_a_finding_comes_back_with_a_number_and_nothing_else_changed(store: SqlStore) -> None:
    assert store.accept(report(findings=(finding(),))) == Accepted(duplicate=False)
    (stored,) = _findings(store)
    assert stored.id > 0
    assert stored == finding(id=stored.id)


def test_the_same_report_again_is_acknowledged_and_changes_nothing(store: SqlStore) -> None:
    store.accept(report(findings=(finding(),)))
    assert store.accept(report(findings=(finding(code="other"),))) == Accepted(duplicate=True)
    assert [f.code for f in _findings(store)] == ["79"]
    assert store.findings()[0].repeats == 0


def test_an_earlier_sequence_that_is_unknown_is_stored_and_said(store: SqlStore) -> None:
    store.accept(report(5))
    assert store.accept(report(3, findings=(finding(),))) == Accepted(duplicate=False, out_of_order=True)
    assert store.accept(report(3)) == Accepted(duplicate=True)
    assert len(_findings(store)) == 1


@pytest.mark.parametrize("changed", [{"node": "n2"}, {"boot_id": "boot-2"}, {"outbox_id": "outbox-2"}])
def test_a_report_is_named_by_node_boot_outbox_and_sequence(store: SqlStore, changed: dict[str, str]) -> None:
    store.accept(report())
    assert store.accept(replace(report(), **changed)) == Accepted(duplicate=False)  # type: ignore[arg-type]


def test_exactly_once_when_many_deliver_the_same_at_the_same_time(store: SqlStore) -> None:
    answers: list[Accepted] = []
    sequences = range(1, 9)

    def deliver() -> None:
        answers.extend(store.accept(report(n, findings=(finding(code=str(n)),))) for n in sequences)

    threads = [threading.Thread(target=deliver) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not a.duplicate for a in answers) == len(sequences)
    assert sorted(f.code for f in _findings(store)) == [str(n) for n in sequences]
    assert {seen.repeats for seen in store.findings()} == {0}


def test_a_card_with_thousands_of_events_is_one_row(store: SqlStore) -> None:
    for n in range(4):
        batch = tuple(finding(fault_at=later(n), received_at=later(n)) for _ in range(500))
        store.accept(report(n + 1, findings=batch))
    (seen,) = store.findings()
    assert (seen.repeats, seen.last_seen_at) == (1999, later(3))
    assert seen.finding.fault_at == NOW


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"boot_id": "boot-2"},
        {"instance_id": "i-2"},
        {"code": "48"},
        {"component": "GPU-4"},
        {"severity": Severity.WARNING},
    ],
)
def test_another_boot_machine_fault_or_judgement_is_a_finding_of_its_own(
    store: SqlStore, changed: dict[str, str]
) -> None:
    store.accept(report(1, findings=(finding(),)))
    store.accept(report(2, findings=(replace(finding(), **changed),)))  # type: ignore[arg-type]
    assert len(_findings(store)) == 2


@pytest.mark.slow
def test_a_node_has_no_more_open_findings_than_a_machine_could(store: SqlStore) -> None:
    """A stolen token reported a new one each second, and each was read at every turn."""
    many = tuple(finding(component=f"c{n}") for n in range(MOST_LIVE + 50))
    store.accept(report(1, findings=many[: MOST_LIVE - 10]))
    store.accept(report(2, findings=many))
    store.accept(report(3, findings=(many[0], many[-1])))
    found = store.load_book(NOW).findings.values()
    assert len(found) == MOST_LIVE
    assert not any(f.component == many[-1].component for f in found)
    store.accept(replace(report(1, findings=(replace(many[-1], node="n2"),)), node="n2"))
    assert any(f.node == "n2" for f in store.load_book(NOW).findings.values()), "another node's are not touched"


@pytest.mark.slow
def test_a_book_holds_the_newest_cleared_findings_of_an_open_incident(store: SqlStore) -> None:
    """One that never clears keeps it open, and another that comes and goes each second brings a new one each time."""
    store.accept(report(1, findings=(finding(sticky=True, component="lasts"),)))
    (lasts,) = _findings(store)
    store.commit(Change(incidents=(incident(),), placed={lasts.id: "inc1"}), fence=0)
    for n in range(MOST_CLEARED + 20):
        store.accept(report(2 + n, findings=(finding(sticky=True, component=f"c{n}"),)))
        placed = {f.id: "inc1" for f in store.load_book(NOW).findings.values() if f.incident_id is None}
        store.commit(Change(placed=placed), fence=0)
        store.accept(report(1000 + n, clears=(Clear("gpu.xid", f"c{n}", later(10)),)))
    held = {f.component: f.cleared_at for f in store.load_book(NOW).findings.values()}
    assert held.pop("lasts") is None
    assert list(held) == [f"c{n}" for n in range(20, MOST_CLEARED + 20)]
    assert set(held.values()) == {later(10)}


def test_the_same_fault_after_its_incident_has_closed_is_news(store: SqlStore) -> None:
    store.accept(report(1, findings=(finding(),)))
    first = _findings(store)[0].id
    store.commit(Change(incidents=(incident(),), placed={first: "inc1"}), fence=0)
    store.accept(report(2, findings=(finding(),)))
    assert [f.id for f in _findings(store)] == [first]
    store.commit(Change(incidents=(closed("inc1", NOW),)), fence=0)
    store.accept(report(3, findings=(finding(),)))
    (again,) = _findings(store)
    assert again.id > first
    assert again.incident_id is None


def test_an_ok_clears_what_the_hardware_keeps_and_only_on_that_machine(store: SqlStore) -> None:
    clear = Clear("gpu.xid", "GPU-3", later(10))
    store.accept(report(1, findings=(finding(sticky=True),)))
    store.accept(report(1, instance_id="i-2", boot_id="boot-9", clears=(clear,)))
    assert [f.cleared_at for f in _findings(store)] == [None]
    store.accept(report(1, boot_id="boot-2", clears=(clear,)))  # after its reboot
    assert [f.cleared_at for f in _findings(store)] == [later(10)]
    store.accept(report(2, findings=(finding(sticky=True, fault_at=later(20)),)))
    assert [f.cleared_at for f in _findings(store)] == [later(10), None]


@pytest.mark.parametrize(("sticky", "cleared_at_s"), [(False, 10.0), (True, -1.0)])
def test_an_event_or_a_newer_fault_is_not_cleared(store: SqlStore, sticky: bool, cleared_at_s: float) -> None:
    store.accept(report(findings=(finding(sticky=sticky),), clears=(Clear("gpu.xid", "GPU-3", later(cleared_at_s)),)))
    assert [f.cleared_at for f in _findings(store)] == [None]


def test_checkpoint_statements_follow_the_rules(store: SqlStore) -> None:
    said = (
        statement("checkpoint.register", path="/ckpt"),
        statement("checkpoint.saved", step=20),
        statement("checkpoint.saved", step=99, uid=1001),
    )
    store.accept(report(1, statements=said))
    record = store.load_book(NOW).checkpoints[7]["n1"]
    assert (record.uid, record.directory, record.saved_step) == (1000, "/ckpt", 20)
    store.accept(report(2, statements=(statement("progress", step=31, at=later(5)),)))
    assert store.load_book(NOW).checkpoints[7]["n1"].progress_step == 31
    lie = statement("checkpoint.register", path="/evil", restarts=9)
    store.accept(replace(report(3, statements=(lie,)), node="n2"))
    claims = store.load_book(NOW).checkpoints[7]
    assert {node: record.directory for node, record in claims.items()} == {"n1": "/ckpt", "n2": "/evil"}
    assert store.load_book(later(8 * 86400)).checkpoints == {}


@pytest.mark.parametrize(("ok", "state"), [(True, IntentState.DONE), (False, IntentState.FAILED)])
def test_an_outcome_settles_its_order_with_an_event(store: SqlStore, ok: bool, state: IntentState) -> None:
    store.commit(Change(incidents=(incident(),), intents=(order(),)), fence=0)
    outcome = OrderOutcome(order().key, ok, "all checks OK", later(4), {"checks": 9})
    store.accept(report(boot_id="boot-2", outcomes=(outcome,)))
    (settled,) = store.intents()
    assert (settled.state, settled.outcome, settled.result) == (state, "all checks OK", {"checks": 9})
    (said,) = store.events()
    assert (said.kind.value, said.at, said.node) == (f"action.{state.value}", later(4), "n1")
    assert said.detail == {
        "key": order().key,
        "kind": "SendOrder",
        "target": order().key.split("/", 2)[2].rsplit("/", 1)[0],
        "verb": "validate",
    }


@pytest.mark.parametrize("changed", [{"node": "n2"}, {"instance_id": "i-9"}])
def test_nobody_settles_another_agents_order(store: SqlStore, changed: dict[str, str]) -> None:
    store.commit(Change(incidents=(incident(),), intents=(order(),)), fence=0)
    outcome = OrderOutcome(order().key, True, "mine now", NOW)
    store.accept(replace(report(outcomes=(outcome,)), **changed))  # type: ignore[arg-type]
    assert [i.state for i in store.intents()] == [IntentState.PLANNED]


def test_a_second_or_an_unknown_outcome_changes_nothing(store: SqlStore) -> None:
    store.commit(Change(incidents=(incident(),), intents=(order(),)), fence=0)
    said = [OrderOutcome(order().key, ok, f"said {ok}", NOW) for ok in (False, True)]
    store.accept(report(outcomes=(*said, OrderOutcome("no/such/order", True, "", NOW))))
    assert [i.outcome for i in store.intents()] == ["said False"]
    assert len(store.events(kinds=(EventKind.ACTION_DONE, EventKind.ACTION_FAILED))) == 1


def test_the_inventory_of_the_serving_machine_is_the_nodes(store: SqlStore) -> None:
    store.accept(report(1, inventory=GPUS))
    first = NodeRecord("n1", "i-1", "boot-1", frozenset({"GPU-1", "GPU-2"}))
    assert store.load_book(NOW).nodes == {"n1": first}
    other = Inventory(gpus={"GPU-9": {}})
    store.accept(report(1, instance_id="i-2", boot_id="boot-9", inventory=other))
    assert store.load_book(NOW).nodes == {"n1": first}  # it does not serve yet
    assert store.inventories("n1") == {"i-1": GPUS, "i-2": other}
    store.commit(Change(nodes=(NodeRecord("n1", "i-2"),)), fence=0)
    assert store.load_book(NOW).nodes == {"n1": NodeRecord("n1", "i-2", "boot-9", frozenset({"GPU-9"}))}


def test_a_controller_with_an_older_book_does_not_undo_an_inventory(store: SqlStore) -> None:
    store.accept(report(1, inventory=GPUS))
    before = store.load_book(NOW).nodes["n1"]
    store.accept(report(1, boot_id="boot-2", inventory=GPUS))
    store.commit(Change(nodes=(replace(before, gpu_uuids=frozenset()),)), fence=0)
    assert store.load_book(NOW).nodes["n1"] == replace(before, boot_id="boot-2")


def test_a_new_boot_forgets_what_was_checked_and_not_in_whose_hands_it_is(store: SqlStore) -> None:
    store.accept(report(1, inventory=GPUS))
    before = store.load_book(NOW).nodes["n1"]
    looked = replace(before, checked_at=NOW, deep_at=NOW, check_note="bad", hands="reboot", hands_since=NOW)
    store.commit(Change(nodes=(looked,)), fence=0)
    store.accept(report(1, boot_id="boot-2", inventory=GPUS))
    after = replace(before, boot_id="boot-2", hands="reboot", hands_since=NOW)
    assert store.load_book(NOW).nodes["n1"] == after


def test_text_that_no_database_takes_is_made_harmless(store: SqlStore) -> None:
    odd = "a\0b\ud800c"
    store.accept(report(findings=(finding(summary=odd, component=odd, code=odd * 5000),)))
    assert _findings(store)[0].summary == odd
    assert store.findings(node="n1")[0].finding.code == odd * 5000


@pytest.mark.parametrize(
    "wrong", [report(boot_id="b" * 5000), report(2**70), report(statements=(statement("progress", job_id=2**64),))]
)
def test_what_no_agent_sends_is_rejected_and_harms_nobody(store: SqlStore, wrong: object) -> None:
    with pytest.raises(Rejected, match="report of node"):
        store.accept(wrong)  # type: ignore[arg-type]
    assert store.accept(report()) == Accepted(duplicate=False)


def test_accept_soon_resolves_when_it_is_durable(store: SqlStore) -> None:
    future = store.accept_soon(report(findings=(finding(),)))
    assert future.result(10) == Accepted(duplicate=False)
    assert len(_findings(store)) == 1


def _gpus(number: int) -> Inventory:
    return Inventory(gpus={f"GPU-{number}-{each}": {} for each in range(MOST_EXCHANGED // 4)})


def test_a_node_that_reports_other_gpus_without_end_has_a_bounded_record(store: SqlStore) -> None:
    for number in range(12):
        store.accept(report(number + 1, inventory=_gpus(number)))
    record = store.load_book(NOW).nodes["n1"]
    assert len(record.exchanged_gpus) <= MOST_EXCHANGED
    assert {f"GPU-10-{each}" for each in range(8)} <= record.exchanged_gpus, "the newest are kept"


def test_a_node_that_reports_other_boots_without_end_does_not_fill_the_record(store: SqlStore) -> None:
    for number in range(2 * MOST_MACHINE_EVENTS):
        store.accept(report(1, boot_id=f"boot-{number}", inventory=GPUS))
    noted = store.events(kinds=(EventKind.NODE_MACHINE,))
    assert len(noted) == MOST_MACHINE_EVENTS
    assert "not recorded" in noted[-1].text
    store.accept(report(1, node="n2", boot_id="a", inventory=GPUS))
    store.accept(report(1, node="n2", boot_id="b", inventory=GPUS))
    store.accept(replace(report(1, boot_id="much later", inventory=GPUS), received_at=later(3700)))
    assert [e.node for e in store.events(kinds=(EventKind.NODE_MACHINE,))][MOST_MACHINE_EVENTS:] == ["n2", "n1"]


def test_a_node_that_reports_other_machines_without_end_keeps_the_newest_and_its_own(store: SqlStore) -> None:
    store.accept(report(1, inventory=GPUS))
    for number in range(MOST_MACHINES + 5):
        other = report(number + 2, instance_id=f"i-x{number}", inventory=GPUS)
        store.accept(replace(other, received_at=later(number + 1)))
    kept = store.inventories("n1")
    assert len(kept) == MOST_MACHINES + 1
    assert {"i-1", f"i-x{MOST_MACHINES + 4}"} <= kept.keys()
    assert "i-x0" not in kept
