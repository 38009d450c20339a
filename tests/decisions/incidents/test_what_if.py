"""Recorded findings under another policy: what it would have drained, what not, and what it leaves as it was."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.decisions.incidents.what_if import WhatIfOutcome, policy_changes, what_if
from holdfast.model.agents.report import Finding, SeenFinding
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Node
from holdfast_checks.acting import CheckPolicy, Lists
from holdfast_checks.result import Remedy, Severity
from support.store_nouns import NOW, finding

W = WhatIfOutcome
NODES = {f"n{i}": Node(f"n{i}", "IDLE", frozenset(), partitions=("a" if i < 3 else "b",)) for i in range(1, 5)}
ACT = Policy(mode=Mode.ACT)


def acts_by(check: str, policy: CheckPolicy) -> bool:
    """gpu.xid is proven, all others are new."""
    lists = policy.lists
    return (
        check not in policy.off
        and check not in lists.observe_only
        and (check == "gpu.xid" or "*" in lists.act_on or check in lists.act_on)
    )


def policy(act_on: tuple[str, ...] = (), observe_only: tuple[str, ...] = (), **changed: Any) -> Policy:
    return replace(ACT, checks=CheckPolicy(Lists(act_on, observe_only)), **changed)


def seen(node: str = "n1", incident: str | None = "a1", *, hours: float = 1.0, **changed: Any) -> SeenFinding:
    at = NOW - timedelta(hours=hours)
    base = replace(finding(node=node), incident_id=incident, received_at=at, fault_at=at)
    return SeenFinding(replace(base, id=changed.pop("id", 1), **changed), changed.pop("repeats", 0), at)


def watched(node: str = "n1", incident: str | None = "a1", check: str = "gpu.nvlink", **changed: Any) -> SeenFinding:
    """Of a check that observed: it would have been fatal."""
    mild = {"severity": Severity.WARNING, "remedy": Remedy.NONE}
    would = {"would_severity": Severity.FATAL, "would_remedy": Remedy.REBOOT}
    return seen(node, incident, check=check, **{**mild, **would, "evidence": {"observe": True}, **changed})


CASES: list[tuple[str, list[SeenFinding], Policy, Policy, dict[str, tuple[W, W]]]] = [
    ("the same policy", [watched(), seen("n2", "b1")], ACT, ACT, {}),
    ("a new check acts", [watched()], ACT, policy(("gpu.nvlink",)), {"n1": (W.WATCHED, W.DRAINED)}),
    ("all act", [watched(), watched("n3", "b1", "efa.count")], ACT, policy(("*",)), dict.fromkeys(("n1", "n3"), (W.WATCHED, W.DRAINED))),
    ("another one acts", [watched()], ACT, policy(("efa.count",)), {}),
    ("a proven one observes", [seen()], ACT, policy((), ("gpu.xid",)), {"n1": (W.DRAINED, W.WATCHED)}),
    ("a proven one is off", [seen()], ACT, replace(ACT, checks=CheckPolicy(off=("gpu.xid",))), {"n1": (W.DRAINED, W.WATCHED)}),
    (
        "it is off, and no longer acts, on some nodes",
        [seen(), watched("n2", "b1"), watched("n3", "c1")],
        ACT,
        policy(("gpu.nvlink",), nodes=(NodeSet(name="x", nodes="n[1-2]", act_on=("efa.count",), checks_off=("gpu.xid",)),)),
        {"n1": (W.DRAINED, W.WATCHED), "n3": (W.WATCHED, W.DRAINED)},
    ),
    ("it acted once and observes now", [seen(check="gpu.nvlink")], ACT, ACT, {}),
    ("drained for another finding", [watched(), seen(id=2)], ACT, policy(("*",)), {}),
    ("another finding still drains", [seen(), seen(id=2, check="gpu.nvlink")], ACT, policy((), ("gpu.nvlink",)), {}),
    ("never proven on its node", [watched(evidence={"observe": True, "recorded_only": True})], ACT, policy(("*",)), {}),
    ("would only have restarted a job", [watched(would_remedy=Remedy.RESTART_JOB)], ACT, policy(("*",)), {}),
    ("a consequence", [watched(consequence=True)], ACT, policy(("*",)), {}),
    (
        "of no incident",
        [watched(incident=None), watched("n2", "-", id=2)],
        ACT,
        policy(("*",)),
        dict.fromkeys(("n1", "n2"), (W.WATCHED, W.DRAINED)),
    ),
    ("in observe", [watched()], replace(ACT, mode=Mode.OBSERVE), policy(("*",), mode=Mode.OBSERVE), {"n1": (W.WATCHED, W.RECORDED)}),
    ("in propose", [watched()], ACT, policy(("*",), mode=Mode.PROPOSE), {"n1": (W.WATCHED, W.ASKED)}),
    ("from observe to act", [seen()], replace(ACT, mode=Mode.OBSERVE), ACT, {"n1": (W.RECORDED, W.DRAINED)}),
    (
        "never touched",
        [watched(), watched("n3", "b1")],
        ACT,
        policy(("*",), nodes=(NodeSet(name="x", partitions=("a",), never_touch=True),)),
        {"n1": (W.WATCHED, W.RECORDED), "n3": (W.WATCHED, W.DRAINED)},
    ),
    (
        "it observes on some nodes",
        [seen(), seen("n3", "b1")],
        ACT,
        policy(nodes=(NodeSet(name="x", partitions=("a",), observe_only=("gpu.xid",)),)),
        {"n1": (W.DRAINED, W.WATCHED)},
    ),
    (
        "a node that Slurm does not show any more",
        [seen("gone", "b1")],
        ACT,
        policy(nodes=(NodeSet(name="x", partitions=("a",), observe_only=("gpu.xid",)),)),
        {"gone": (W.DRAINED, W.WATCHED)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("found", "now", "then", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_another_policy_would_have_done(
    found: list[SeenFinding], now: Policy, then: Policy, wanted: dict[str, tuple[W, W]]
) -> None:
    faults = what_if(found, now, then, NODES, acts_by)
    assert {fault.node: (fault.before, fault.after) for fault in faults} == wanted
    back = {fault.node: (fault.after, fault.before) for fault in what_if(found, now, then, NODES, acts_by)}
    assert len(back) == len(faults), "one line for each fault"


def test_a_line_names_when_why_and_what_it_would_have_called_for() -> None:
    late, early = watched(hours=1, id=2), watched(hours=3, id=1, code="5")
    (fault,) = what_if([late, early], ACT, policy(("*",)), NODES, acts_by)
    assert (fault.at, fault.code, fault.incident_id) == (early.finding.received_at, "5", "a1")
    assert (fault.severity, fault.remedy) == (Severity.FATAL, Remedy.REBOOT)
    assert fault.why == "gpu.nvlink would act"


def test_they_come_oldest_first() -> None:
    found = [watched("n1", "a1", hours=1), watched("n2", "b1", hours=5), watched("n3", "c1", hours=3)]
    assert [fault.node for fault in what_if(found, ACT, policy(("*",)), NODES, acts_by)] == ["n2", "n3", "n1"]


def test_what_changes_where() -> None:
    tables = (
        NodeSet(name="x", partitions=("b",), observe_only=("gpu.xid",), mode="propose"),
        NodeSet(name="y", nodes="n4", thresholds={"host": {"load_per_cpu": 9.0}}, never_touch=True),
    )
    then = replace(policy(("gpu.nvlink",)), nodes=tables)
    then = replace(then, checks=replace(then.checks, thresholds={"gpu.temperature_margin_c": 5}))
    changes = policy_changes(NODES, ACT, then)
    everywhere = ("act_on: +gpu.nvlink", "gpu.temperature_margin_c: as agent.toml has it → 5")
    assert changes["n1"] == changes["n2"] == everywhere
    assert set(changes["n3"]) >= {"observe_only: +gpu.xid", "mode: act → propose"}
    assert set(changes["n4"]) >= {
        "host.load_per_cpu: as agent.toml has it → 9",
        "never_touch: from now on",
        "mode: act → observe",
    }
    assert policy_changes(NODES, then, then) == {}


def test_what_a_set_switches_off_and_limits_is_a_change() -> None:
    limits = {"brakes": {"drains_60min": 2}, "budgets": {"launches_per_day": 1}}
    tables = (NodeSet(name="x", partitions=("b",), checks_off=("gpu.xid",), act_on=("efa.count",), **limits),)  # type: ignore[arg-type]
    now = policy(("*",))
    changes = policy_changes(NODES, now, replace(now, nodes=tables))
    assert set(changes) == {"n3", "n4"}
    assert set(changes["n3"]) == {
        "act_on: +efa.count -*",
        "checks_off: +gpu.xid",
        "limit of set x drains_60min: none → 2",
        "limit of set x launches_per_day: none → 1",
    }
    (fault,) = what_if([seen("n3", "b1")], now, replace(now, nodes=tables), NODES, acts_by)
    assert fault.why == "gpu.xid would be off"


def test_findings_are_not_changed() -> None:
    one = watched()
    before: Finding = one.finding
    what_if([one], ACT, policy(("*",)), NODES, acts_by)
    assert one.finding == before
