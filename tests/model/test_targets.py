"""What each action acts on, as the API, the store's column and the events show it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.model.actions.action import (
    ACTION_TYPES,
    Action,
    AdoptSpare,
    AllowNodes,
    Assign,
    CheckInstance,
    Drain,
    DropHold,
    HoldJob,
    HoldNodes,
    Intent,
    IntentState,
    Launch,
    Notify,
    PromoteSpare,
    Reboot,
    Release,
    Replace,
    ReportFault,
    Requeue,
    SendOrder,
    SetDown,
    StopStart,
    TakeOverDrain,
    TellOwner,
    Terminate,
    Undrain,
    Verb,
    action_event,
)
from holdfast.model.event import EventKind
from holdfast.model.operators.maintenance import KeepWindow
from holdfast.model.operators.node_orders import DrainForOperator, ReleaseForOperator
from holdfast.model.policies.resizing import DelayStart, SetThrottle
from holdfast.model.slurm.cluster import JobKey, NodeReason
from holdfast.model.target import Target

AT = datetime(2026, 7, 1, tzinfo=UTC)
JOB = JobKey("c", 7, AT)
MACHINE = Target(node="n1", instance_id="i-1")

TARGETS: list[tuple[Action, Target, str]] = [
    (Drain("n1", "why"), Target(node="n1"), "n1"),
    (SetDown("n1", "why"), Target(node="n1"), "n1"),
    (Undrain("n1", "mark"), Target(node="n1"), "n1"),
    (PromoteSpare("n1", None), Target(node="n1"), "n1"),
    (AdoptSpare("n1"), Target(node="n1"), "n1"),
    (Launch("n1", "token"), Target(node="n1"), "n1"),
    (Terminate("i-1", "n1"), MACHINE, "n1"),
    (Terminate("i-1", ""), Target(node="", instance_id="i-1"), "i-1"),
    (Assign("i-1", "n1"), MACHINE, "n1"),
    (Replace("n1", "i-1", "boot", "token"), MACHINE, "n1"),
    (Reboot("n1", "i-1", "boot", "token", via_slurm=True), MACHINE, "n1"),
    (StopStart("n1", "i-1", "boot", "token"), MACHINE, "n1"),
    (ReportFault("n1", "i-1", AT, "text"), MACHINE, "n1"),
    (CheckInstance("i-1", "n1"), MACHINE, "n1"),
    (SendOrder("n1", "i-1", "boot", Verb.VALIDATE, 60.0), MACHINE, "n1"),
    (Requeue(JOB, 0), Target(job=JOB), "7"),
    (Release(JOB, 1, None, ()), Target(job=JOB), "7"),
    (AllowNodes(JOB, ("n1",)), Target(job=JOB), "7"),
    (HoldJob(JOB, "why"), Target(job=JOB), "7"),
    (TellOwner(JOB, "text"), Target(job=JOB), "7"),
    (DelayStart(JOB, 0, 60), Target(job=JOB), "7"),
    (SetThrottle(JOB, 6, 2), Target(job=JOB), "7"),
    (HoldNodes("holdfast-x-7", ("n1",), "ada", JOB, 60), Target(job=JOB, reservation="holdfast-x-7"), "7"),
    (DrainForOperator("n1", "operator ops: psu"), Target(node="n1"), "n1"),
    (TakeOverDrain("n1", "why", NodeReason("psu", "ops", AT)), Target(node="n1"), "n1"),
    (ReleaseForOperator("n1", NodeReason("psu", "ops", AT)), Target(node="n1"), "n1"),
    (KeepWindow("holdfast-maint-x", ("n1",), AT), Target(reservation="holdfast-maint-x"), "holdfast-maint-x"),
    (DropHold("holdfast-x-7"), Target(reservation="holdfast-x-7"), "holdfast-x-7"),
    (Notify("n1 is dead", "body"), Target(subject="n1 is dead"), "n1 is dead"),
]


@pytest.mark.parametrize(("action", "target", "text"), TARGETS, ids=lambda each: type(each).__name__)
def test_an_action_says_what_it_acts_on(action: Action, target: Target, text: str) -> None:
    assert (action.target, action.target.text) == (target, text)
    intent = Intent(f"inc/{type(action).__name__}/x.1/1", "inc", action, "why", 1, IntentState.PLANNED, AT)
    event = action_event(intent, EventKind.ACTION_PLANNED, AT, "why")
    assert (event.node, event.job) == (target.node, JOB.text if target.job is not None else None)
    assert (event.detail["kind"], event.detail["target"]) == (type(action).__name__, "x.1")


def test_every_kind_of_action_is_here() -> None:
    assert {type(action).__name__ for action, _, _ in TARGETS} == set(ACTION_TYPES)
