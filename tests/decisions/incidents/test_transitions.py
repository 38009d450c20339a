"""Every row of the table of incident states is a step of the real turn or of an operator; each is made and checked here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import TRANSITIONS, Incident, IncidentKind, IncidentState, MovedBy
from holdfast.model.machine import Notice, NoticeKind
from holdfast.model.operators.node_orders import NodeOrder, OrderVerb
from holdfast.ports import Operation
from holdfast_checks.result import Remedy, Severity
from support.simulated import MemoryStore, Site
from support.simulated.provider import NOTHING
from support.simulated.site import POLICY
from support.simulated.ways import Edge, edge_of
from support.store_nouns import NOW

_S, _BY = IncidentState, MovedBy
NODE = "n1"


@dataclass(frozen=True)
class Made:
    """A step as the store has it right after."""

    edge: Edge
    event: Event
    incident: Incident
    at: datetime


class Recorder(MemoryStore):
    """Records each step; of several of one incident in one turn the incident is as the last one left it."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Made] = []
        self.now: Callable[[], datetime] = lambda: NOW
        self._new: list[tuple[Edge, Event]] = []

    def _append(self, events: Iterable[Event]) -> None:
        each = list(events)
        self._new += [(edge, event) for event in each if (edge := edge_of(event)) is not None]
        super()._append(each)

    def commit(self, *args: Any, **kwargs: Any) -> None:
        super().commit(*args, **kwargs)
        self._note()

    def operate(self, *args: Any, **kwargs: Any) -> None:
        super().operate(*args, **kwargs)
        self._note()

    def _note(self) -> None:
        for edge, event in self._new:
            after = self.incident(event.incident_id or "")
            assert after is not None
            self.made.append(Made(edge, event, after, self.now()))
        self._new = []


class Scene:
    """A simulated site, and the common part of the steps that lead to a transition."""

    def __init__(self, nodes: int = 3, **changed: Any) -> None:
        self.store = Recorder()
        self.site = Site(nodes, store=self.store, **changed)
        self.store.now = self.site.clock.now

    @property
    def incident(self) -> Incident:
        return self.site.incident(NODE)

    def until(self, state: IncidentState, seconds: int = 400) -> None:
        """Let time pass until the node's incident is in this state."""
        for _ in range(seconds):
            found = self.site.store.incidents(node=NODE)
            if found and found[0].state is state:
                return
            self.site.run(1)
        raise AssertionError(f"never {state.value}: {self.site.story()}")

    def warning(self, **changed: Any) -> None:
        self.site.fault(
            NODE, severity=Severity.WARNING, remedy=Remedy.NONE, check="gpu.thermal", sticky=True, **changed
        )
        self.until(_S.WATCHING)

    def held(self, state: IncidentState, **changed: Any) -> None:
        """Raise a fault and bring it to this state."""
        if state is _S.OPEN:
            self.site.operate("pause")
        if state is _S.CONTAINED:
            self.site.slurm.submit(1, exclusive=True)
            self.site.run(2)
            changed = {"severity": Severity.DEGRADED, **changed}
        if state is _S.AWAITING_HUMAN:
            changed = {"remedy": Remedy.HUMAN, **changed}
        if state is _S.SUSPECTED:
            self.site.machine(NODE).agent_up = False
        elif state is _S.WATCHING:
            self.warning()
        else:
            self.site.fault(NODE, **changed)
        self.until(state)

    def operator_resumes(self) -> None:
        self.site.slurm.operator_resumes(NODE)
        self.site.run(2)

    def operator_drains(self) -> None:
        self.site.slurm.operator_drains(NODE, "mine")
        self.site.run(2)

    def clears(self, check: str = "gpu.xid") -> None:
        machine = self.site.machine(NODE)
        self.site.agents.clear(machine, check, machine.gpu_uuids[3])
        self.site.run(2)


def opened(state: IncidentState) -> Scene:
    scene = Scene()
    scene.held(state)
    return scene


def adopted() -> Scene:
    scene = Scene(warm=False)
    node = scene.site.slurm.nodes[NODE]
    node.drain, node.reason, node.user = True, "holdfast[1kjmmb3pg001]: gpu.xid 79", "root"
    node.time = scene.site.clock.now()
    scene.site.run(2)
    return scene


def slurm_drains_it() -> Scene:
    scene = Scene()
    scene.site.slurm.operator_drains(NODE, "Epilog error", "slurm")
    scene.site.run(2)
    return scene


def a_warning_becomes_a_fault() -> Scene:
    scene = opened(_S.WATCHING)
    scene.site.fault(NODE)
    scene.site.run(1)
    return scene


def a_hung_job_is_cancelled() -> Scene:
    scene = Scene()
    site = scene.site
    job = site.slurm.submit(2, exclusive=True, comment="holdfast")
    site.run(2)
    for step in range(10):
        detail: dict[str, str | int] = {"phase": "step", "step_ms": 900}
        site.agents.state(site.machine(job.nodes[0]), "progress", job.job_id, 0, step=step, detail=detail)
        site.run(2)
    scene.until(_S.WATCHING)
    site.slurm.finish(job, "CANCELLED")
    site.run(2)
    return scene


def a_warning_clears() -> Scene:
    scene = opened(_S.WATCHING)
    scene.clears("gpu.thermal")
    return scene


def power_is_lost() -> Scene:
    scene = Scene()
    scene.site.machine(NODE).powered = False
    scene.site.run(90)
    return scene


def the_agent_is_back() -> Scene:
    scene = opened(_S.SUSPECTED)
    scene.site.machine(NODE).agent_up = True
    scene.until(_S.CLOSED)
    return scene


def an_operator_acknowledges() -> Scene:
    scene = opened(_S.OPEN)
    scene.site.operate("acknowledge", scene.incident.id)
    scene.site.run(1)
    return scene


def it_clears_before_anything_was_done() -> Scene:
    scene = Scene()
    scene.held(_S.OPEN, sticky=True)
    scene.clears()
    return scene


def it_clears_while_a_job_is_waited_for() -> Scene:
    scene = Scene()
    scene.held(_S.CONTAINED, sticky=True)
    scene.clears()
    (job,) = scene.site.slurm.jobs.values()
    scene.site.slurm.finish(job, "COMPLETED")
    scene.until(_S.VALIDATING)
    return scene


def then(state: IncidentState, what: Callable[[Scene], None], **changed: Any) -> Scene:
    """Bring a fault to a state, and then do something."""
    scene = Scene()
    scene.held(state, **changed)
    what(scene)
    return scene


def a_launched_machine_never_speaks() -> Scene:
    scene = Scene()
    scene.site.provider.boot_s = 1e6
    scene.held(_S.REPAIRING)
    scene.site.run(4000, step_s=20)
    return scene


def the_same_hardware_comes_back() -> Scene:
    scene = Scene()
    scene.site.provider.same_hardware = True
    scene.held(_S.REPAIRING)
    scene.site.run(60)
    return scene


def another_hand_exchanges_the_machine() -> Scene:
    """While the one that was launched for the node is validated."""
    scene = Scene()
    scene.held(_S.VALIDATING)
    scene.site.provider.exchange(NODE)
    scene.site.run(90)
    return scene


def operator(verb: str, state: IncidentState) -> Scene:
    scene = opened(state)
    scene.site.operate(verb, scene.incident.id)
    return scene


def ordered(scene: Scene) -> None:
    """An operator orders another machine for the node."""
    site = scene.site
    number, machine = "0h3k5d2m8x1q", site.machine(NODE).instance_id
    order = NodeOrder(number, NODE, OrderVerb.REPLACE, site.clock.now(), "ops", "board swap", instance_id=machine)
    site.store.operate(Operation("replace_node", "ops", NODE, order=order, node=NODE), order.at)
    site.run(2)


def a_replacement_is_ordered() -> Scene:
    scene = Scene(4, policy=replace(POLICY, repair=replace(POLICY.repair, budget_cluster_share=1.0)))
    ordered(scene)
    return scene


def reports_again() -> Scene:
    """Found dead, no repair helps, and then the network turns out to be the cause."""
    scene = Scene(can=NOTHING)
    machine = scene.site.machine(NODE)
    machine.cut_off, machine.unreachable_by = True, set(scene.site.slurm.nodes)
    scene.until(_S.AWAITING_HUMAN)
    machine.cut_off, machine.unreachable_by = False, set()
    scene.until(_S.VALIDATING)
    return scene


SCENES: dict[Edge, Callable[[], Scene]] = {
    (None, _S.WATCHING, _BY.HOLDFAST): partial(opened, _S.WATCHING),
    (None, _S.SUSPECTED, _BY.HOLDFAST): partial(opened, _S.SUSPECTED),
    (None, _S.OPEN, _BY.HOLDFAST): partial(opened, _S.OPEN),
    (None, _S.AWAITING_HUMAN, _BY.HOLDFAST): adopted,
    (_S.WATCHING, _S.OPEN, _BY.HOLDFAST): a_warning_becomes_a_fault,
    (_S.WATCHING, _S.WATCHING, _BY.HOLDFAST): a_hung_job_is_cancelled,
    (_S.WATCHING, _S.CLOSED, _BY.HOLDFAST): a_warning_clears,
    (_S.SUSPECTED, _S.OPEN, _BY.HOLDFAST): power_is_lost,
    (_S.SUSPECTED, _S.CLOSED, _BY.HOLDFAST): the_agent_is_back,
    (_S.OPEN, _S.CONTAINED, _BY.HOLDFAST): partial(opened, _S.CONTAINED),
    (_S.OPEN, _S.WATCHING, _BY.HOLDFAST): an_operator_acknowledges,
    (_S.OPEN, _S.CLOSED, _BY.HOLDFAST): it_clears_before_anything_was_done,
    (_S.CONTAINED, _S.REPAIRING, _BY.HOLDFAST): partial(opened, _S.REPAIRING),
    (_S.CONTAINED, _S.VALIDATING, _BY.HOLDFAST): it_clears_while_a_job_is_waited_for,
    (_S.CONTAINED, _S.AWAITING_HUMAN, _BY.HOLDFAST): partial(opened, _S.AWAITING_HUMAN),
    (_S.CONTAINED, _S.CLOSED, _BY.HOLDFAST): partial(then, _S.CONTAINED, Scene.operator_resumes),
    (_S.REPAIRING, _S.REPAIRING, _BY.HOLDFAST): a_launched_machine_never_speaks,
    (_S.REPAIRING, _S.VALIDATING, _BY.HOLDFAST): partial(opened, _S.VALIDATING),
    (_S.REPAIRING, _S.AWAITING_HUMAN, _BY.HOLDFAST): partial(then, _S.REPAIRING, Scene.operator_drains),
    (_S.REPAIRING, _S.CLOSED, _BY.HOLDFAST): partial(then, _S.REPAIRING, Scene.operator_resumes),
    (_S.VALIDATING, _S.VALIDATING, _BY.HOLDFAST): another_hand_exchanges_the_machine,
    (_S.VALIDATING, _S.REPAIRING, _BY.HOLDFAST): the_same_hardware_comes_back,
    (_S.VALIDATING, _S.AWAITING_HUMAN, _BY.HOLDFAST): partial(then, _S.VALIDATING, Scene.operator_drains),
    (_S.VALIDATING, _S.CLOSED, _BY.HOLDFAST): partial(opened, _S.CLOSED),
    (_S.AWAITING_HUMAN, _S.CLOSED, _BY.HOLDFAST): partial(then, _S.AWAITING_HUMAN, Scene.operator_resumes),
    (_S.AWAITING_HUMAN, _S.VALIDATING, _BY.HOLDFAST): reports_again,
    (_S.AWAITING_HUMAN, _S.REPAIRING, _BY.OPERATOR): partial(operator, "retry", _S.AWAITING_HUMAN),
    (_S.AWAITING_HUMAN, _S.CONTAINED, _BY.OPERATOR): partial(then, _S.AWAITING_HUMAN, ordered),
    **{(s, _S.CLOSED, _BY.OPERATOR): partial(operator, "close", s) for s in _S if s is not _S.CLOSED},
}
"""How the step is brought about."""


def name_of(edge: Edge) -> str:
    before, after, by = edge
    return f"{before.value if before else 'new'}-{after.value}-{by.value}"


def test_the_scenes_and_the_table_are_the_same() -> None:
    rows = [(t.before, t.after, t.by) for t in TRANSITIONS]
    assert len(rows) == len(set(rows))
    assert set(rows) == set(SCENES)


@pytest.mark.parametrize("edge", SCENES, ids=name_of)
def test_the_step_is_made_by_the_real_turn_or_by_an_operator(edge: Edge) -> None:
    scene = SCENES[edge]()
    found = [m for m in scene.store.made if m.edge == edge]
    assert found, scene.site.story()
    made, before, after = found[0], edge[0], edge[1]
    assert (made.incident.state, made.incident.state_since) == (after, made.at)
    assert made.incident.closed_at == (made.at if after is _S.CLOSED else None)
    assert (made.event.detail.get("from"), made.event.detail["to"]) == (before and before.value, after.value)
    assert (made.event.kind is EventKind.INCIDENT_CLOSED) == (after is _S.CLOSED)
    if before is None:
        assert made.incident.opened_at == made.at
        assert made.event.detail["kind"] == made.incident.kind.value


# What an incident is about


def announced() -> Scene:
    scene = Scene()
    machine = scene.site.machine(NODE)
    notice = Notice(
        machine.instance_id, NODE, NoticeKind.REBOOT, "instance-reboot", "announced", NOW.replace(year=2099)
    )
    scene.site.provider.announced = [notice]
    scene.until(_S.WATCHING)
    return scene


def a_job_fails() -> Scene:
    scene = Scene(4)
    job = scene.site.slurm.submit(3, exclusive=True, comment="holdfast")
    scene.site.run(2)
    scene.site.machine(NODE).path_broken = True
    scene.site.slurm.finish(job, "FAILED")
    scene.site.run(60)
    return scene


def a_job_is_held() -> Scene:
    """Two faults that its program may have caused, on two nodes."""
    scene = Scene(4)
    job = scene.site.slurm.submit(1, exclusive=True, comment="holdfast")
    scene.site.run(2)
    for _ in range(2):
        scene.site.fault(job.nodes[0], code="109")
        scene.site.run(5)
    assert job.held
    return scene


def jobs_stop_together() -> Scene:
    """One does, on a file system that does not answer."""
    scene = Scene(4)
    job = scene.site.slurm.submit(1, exclusive=True, comment="holdfast")
    scene.site.run(2)
    for step in range(10):
        detail: dict[str, str | int] = {"phase": "step", "step_ms": 900}
        scene.site.agents.state(scene.site.machine(NODE), "progress", job.job_id, 0, step=step, detail=detail)
        scene.site.run(2)
    mount = {"check": "host.mounts", "code": "hang", "component": "/scratch", "sticky": True, "gpu_minor": None}
    scene.site.fault(NODE, severity=Severity.WARNING, remedy=Remedy.NONE, **mount)
    scene.site.run(100)
    return scene


def a_group_is_slow() -> Scene:
    scene = Scene(4)
    job = scene.site.slurm.submit(4, exclusive=True, comment="holdfast")
    scene.site.run(2)
    for step in range(75):
        for node in job.nodes:
            detail: dict[str, str | int] = {"phase": "step", "own_ms": 900 if node == NODE else 600}
            scene.site.agents.state(scene.site.machine(node), "progress", job.job_id, 0, step=step, detail=detail)
        scene.site.run(1)
    return scene


def a_machine_is_claimed() -> Scene:
    scene = Scene(4)
    scene.site.machine(NODE).instance_id = "i-0004"
    scene.site.run(30)
    return scene


KINDS: dict[IncidentKind, Callable[[], Scene]] = {
    IncidentKind.FAULT: partial(opened, _S.OPEN),
    IncidentKind.SILENCE: power_is_lost,
    IncidentKind.NOTICE: announced,
    IncidentKind.UNEXPLAINED: a_job_fails,
    IncidentKind.HANG: a_hung_job_is_cancelled,
    IncidentKind.STRAGGLER: a_group_is_slow,
    IncidentKind.HELD_JOB: a_job_is_held,
    IncidentKind.STALL: jobs_stop_together,
    IncidentKind.PAIR: a_job_fails,
    IncidentKind.SLURM_DRAIN: slurm_drains_it,
    IncidentKind.ADOPTED: adopted,
    IncidentKind.ORDERED: a_replacement_is_ordered,
    IncidentKind.DISPUTED: a_machine_is_claimed,
}


def test_every_kind_has_a_scene() -> None:
    assert {kind.value for kind in IncidentKind} - {"unreadable"} == set(KINDS)  # that one is read, and never opened


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_is_set_when_it_is_opened_and_never_changes(kind: IncidentKind) -> None:
    scene = KINDS[kind]()
    born = [m for m in scene.store.made if m.edge[0] is None and m.incident.kind is kind]
    assert born, scene.site.story()
    for made in scene.store.made:
        if made.incident.id == born[0].incident.id:
            assert made.incident.kind is kind
    assert born[0].event.detail["kind"] == kind.value


def test_a_hang_remains_one_when_its_run_is_over_and_is_shown_as_before() -> None:
    scene = a_hung_job_is_cancelled()
    before, after = (m.incident for m in scene.store.made[:2])
    assert [(i.kind, i.check, i.pair_probed, i.hangs) for i in (before, after)] == [
        (IncidentKind.HANG, "job.hung", False, True),
        (IncidentKind.HANG, "job.unexplained", True, False),
    ]
