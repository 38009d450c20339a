"""A drained node is in service again: slurmctld forgot the drain, or an operator resumed the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from holdfast.decisions.nodes.resumed import Resumed, in_question, resumed
from holdfast.model.actions.action import Drain, IntentState
from holdfast.model.book import Book, NodeMark, World
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey, Node, Reservation
from holdfast_checks.result import Remedy, Severity
from support.simulated import EPOCH, Site
from support.simulated.site import NO_BUDGET, POLICY
from support.simulated.slurm import PowerSaving, SimNode

_S = IncidentState
IN_SERVICE = Node("n1", "IDLE", frozenset())


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


INCIDENT = Incident(
    "1", "n1", "i-1", "boot", _S.CONTAINED, Severity.FATAL, Remedy.REPLACE, "gpu.xid", "gpu.xid 79", at(90), at(90)
)
OURS = NodeMark("n1", "1", "holdfast[1] gpu.xid 79", "root", at(100))
OTHERS = NodeMark("n1", "0", "holdfast[0] gpu.xid 79", "root", at(300))


def job(submitted: datetime) -> Job:
    words = {"name": "", "user": "ada", "account": "", "partition": "gpu", "qos": "", "state": "RUNNING", "reason": ""}
    numbers = {"uid": 1, "restarts": 0, "requeue": True, "batch": True, "num_nodes": 1}
    return Job(JobKey("sim", 1, submitted), **words, **numbers, nodes=(), required_nodes=(), excluded_nodes=())  # type: ignore[arg-type]


def shown(
    *,
    job_at: datetime | None = None,
    drained_at: datetime | None = None,
    reserved_at: datetime | None = None,
) -> ClusterView:
    other = Node("n2", "IDLE", frozenset({"DRAIN"}), "psu", "ops", drained_at)
    return ClusterView(
        "sim",
        at(210),
        {"n1": IN_SERVICE, **({"n2": other} if drained_at else {})},
        {1: job(job_at)} if job_at else {},
        {"spares": Reservation("spares", ("n3",), start_time=reserved_at)} if reserved_at else {},
    )


@pytest.mark.parametrize(
    ("what", "started_at", "seen", "view", "expected"),
    [
        ("slurmctld has run since before the drain", 50, 199, shown(), Resumed.BY_HUMAN),
        ("it started in the very second of the drain", 100, 199, shown(), Resumed.BY_HUMAN),
        ("its start cannot be read", None, 199, shown(), Resumed.BY_HUMAN),
        ("it started, and shows nothing from before", 200, 199, shown(), Resumed.FORGOTTEN),
        ("it started, and a job since", 200, 199, shown(job_at=at(201)), Resumed.FORGOTTEN),
        ("it started, and set another node DOWN since", 200, 199, shown(drained_at=at(205)), Resumed.FORGOTTEN),
        ("a job in the second of its start", 200, 199, shown(job_at=at(200)), Resumed.FORGOTTEN),
        ("it kept a job", 200, 199, shown(job_at=at(20)), Resumed.BY_HUMAN),
        ("it kept another drain", 200, 199, shown(drained_at=at(20)), Resumed.BY_HUMAN),
        ("a cold start keeps reservations", 200, 199, shown(reserved_at=at(20)), Resumed.FORGOTTEN),
        ("it was seen drained after the start", 200, 205, shown(), Resumed.BY_HUMAN),
        ("seen drained in the second of the start", 200, 200.5, shown(), Resumed.FORGOTTEN),
        ("no one watched, all else was kept", 200, None, shown(job_at=at(20)), Resumed.BY_HUMAN),
        ("no one watched, and nothing is from before", 200, None, shown(), Resumed.UNKNOWN),
    ],
)
def test_who_put_a_node_back(
    what: str, started_at: float | None, seen: float | None, view: ClusterView, expected: Resumed
) -> None:
    world = _world(view, {"n1": OURS}, started_at, seen)
    assert resumed(world, view, INCIDENT) is expected, what
    absent = replace(INCIDENT, drain_lost_at=at(150))
    assert resumed(world, view, absent) is Resumed.FORGOTTEN, "Slurm did not show the node for a while"


@pytest.mark.parametrize("marks", [{}, {"n1": OTHERS}], ids=["an operator's drain", "a mark of an incident before"])
def test_without_a_mark_the_drain_is_as_old_as_the_incidents_state(marks: Mapping[str, NodeMark]) -> None:
    world = _world(shown(), marks, 200, 199)
    assert resumed(world, shown(), INCIDENT) is Resumed.FORGOTTEN
    assert resumed(world, shown(), replace(INCIDENT, state_since=at(200))) is Resumed.BY_HUMAN


@pytest.mark.parametrize(
    ("node", "incident", "expected"),
    [
        (IN_SERVICE, INCIDENT, True),
        (replace(IN_SERVICE, flags=frozenset({"DRAIN"}), reason=OURS.reason), INCIDENT, False),
        (replace(IN_SERVICE, base_state="DOWN"), INCIDENT, False),
        (replace(IN_SERVICE, name="n2"), INCIDENT, False),
        (IN_SERVICE, replace(INCIDENT, state=_S.OPEN), False),
        (IN_SERVICE, replace(INCIDENT, state=_S.WATCHING), False),
        (IN_SERVICE, replace(INCIDENT, acknowledged=True), False),
        (IN_SERVICE, replace(INCIDENT, drain_lost_at=at(150)), False),
    ],
)
def test_slurmctlds_start_is_asked_for_only_where_a_node_of_ours_is_seen_in_service(
    node: Node, incident: Incident, expected: bool
) -> None:
    view = replace(shown(), nodes={node.name: node})
    world = replace(_world(view, {"n1": OURS}, None, None), book=Book(incidents={"1": incident}))
    assert in_question(world) is expected


def _world(view: ClusterView, marks: Mapping[str, NodeMark], started_at: float | None, seen: float | None) -> World:
    return World(
        at(210),
        POLICY,
        Book(incidents={"1": INCIDENT}, marks=marks),
        view,
        slurmctld_started_at=None if started_at is None else at(started_at),
        last_out={} if seen is None else {"n1": at(seen)},
    )


def in_state(state: IncidentState, nodes: int = 3) -> Site:
    """n1 has a fault and its incident is in this state; nothing else is in Slurm except a job on n1 that keeps the incident contained."""
    site = Site(nodes, policy=NO_BUDGET)
    if state is _S.CONTAINED:
        site.slurm.submit(1, exclusive=True)
    if state is _S.AWAITING_HUMAN:
        site.fault("n1", remedy=Remedy.HUMAN)
    else:
        site.fault("n1")
    for _ in range(300):
        site.run(1)
        if site.incident("n1").state is state:
            site.clock.advance(2)
            return site
    raise AssertionError(site.story())


def drains(site: Site) -> list[str]:
    return [node for _, node, _ in site.slurm.drained]


STATES = [_S.CONTAINED, _S.REPAIRING, _S.VALIDATING, _S.AWAITING_HUMAN]


@pytest.mark.parametrize("state", STATES)
def test_a_drain_that_a_cold_start_forgot_is_set_once_more_and_the_incident_continues(state: IncidentState) -> None:
    site = in_state(state)
    first = site.incident("n1")
    site.slurm.start_cold()
    site.run(3)
    assert drains(site) == ["n1", "n1"]
    assert site.incident("n1").id == first.id
    assert site.slurm.nodes["n1"].drain
    assert "slurmctld has forgotten the drain of n1" in site.story(first.id)
    site.run(600, step_s=2)
    assert drains(site) == ["n1", "n1"], "once"
    expected = _S.AWAITING_HUMAN if state is _S.AWAITING_HUMAN else _S.CLOSED
    assert (site.incident("n1").id, site.incident("n1").state) == (first.id, expected)
    assert site.incident("n1").drain_lost_at is None
    assert site.slurm.nodes["n1"].drain is (state is _S.AWAITING_HUMAN)
    assert site.provider.candidates() == set()


@pytest.mark.parametrize("state", STATES)
def test_a_node_that_was_out_of_slurm_conf_is_drained_once_more(state: IncidentState) -> None:
    site = in_state(state)
    site.slurm.submit(1, excluded=("n1",))
    first = site.incident("n1")
    node = site.slurm.take_out("n1")
    for held in [j for j in site.slurm.jobs.values() if "n1" in j.nodes]:
        del site.slurm.jobs[held.job_id]
    site.run(30)
    assert "no longer shows n1" in site.story(first.id)
    site.start_controller()
    site.slurm.put_in(node)
    site.run(3)
    assert drains(site) == ["n1", "n1"]
    site.run(600, step_s=2)
    assert drains(site) == ["n1", "n1"]
    expected = _S.AWAITING_HUMAN if state is _S.AWAITING_HUMAN else _S.CLOSED
    assert (site.incident("n1").id, site.incident("n1").state) == (first.id, expected)


@pytest.mark.parametrize("state", STATES)
def test_a_plain_restart_changes_nothing(state: IncidentState) -> None:
    site = in_state(state)
    site.slurm.restart()
    site.run(3)
    assert drains(site) == ["n1"]
    site.run(600, step_s=2)
    assert drains(site) == ["n1"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("when", ["no restart", "before a restart", "after a restart"])
def test_an_operators_resume_counts_right_before_and_after_a_plain_restart(state: IncidentState, when: str) -> None:
    site = in_state(state)
    site.slurm.submit(1)
    if when == "after a restart":
        site.clock.advance(2)
        site.slurm.restart()
    site.slurm.operator_resumes("n1")
    if when == "before a restart":
        site.clock.advance(1)
        site.slurm.restart()
    site.run(5)
    assert (drains(site), site.incident("n1").state) == (["n1"], _S.CLOSED)


def test_an_operators_resume_counts_after_the_drain_was_set_once_more() -> None:
    site = in_state(_S.AWAITING_HUMAN)
    site.slurm.start_cold()
    site.run(5)
    site.slurm.operator_resumes("n1")
    site.run(5)
    assert (drains(site), site.incident("n1").state) == (["n1", "n1"], _S.CLOSED)


def test_two_cold_starts_are_two_drains() -> None:
    site = in_state(_S.AWAITING_HUMAN)
    for _ in range(2):
        site.slurm.start_cold()
        site.run(20)
    assert drains(site) == ["n1"] * 3
    attempts = [i.attempt for i in site.store.intents() if isinstance(i.action, Drain)]
    assert sorted(attempts) == [1, 2, 3]


def test_it_is_set_once_however_often_controller_and_actor_start_again() -> None:
    site = in_state(_S.REPAIRING)
    site.slurm.start_cold()
    site.turn()
    assert site.incident("n1").drain_lost_at is not None
    for moment in ("started", "done"):
        site.kill_at = ("Drain", moment)
        site.act()
        site.start_controller()
        site.turn()
    site.run(5)
    assert drains(site) == ["n1", "n1"]
    assert site.incident("n1").state is _S.REPAIRING


def test_a_dead_node_whose_down_was_forgotten_is_drained_and_not_set_down_again() -> None:
    site = Site(3, policy=NO_BUDGET)
    site.provider.capacity = False
    assert site.slurm.submit(1, comment="holdfast", exclusive=True).nodes == ("n1",)
    site.run(2)
    site.machine("n1").powered = False
    site.run(60)
    assert (site.incident("n1").dead, site.slurm.nodes["n1"].down) == (True, True)
    site.slurm.start_cold()
    site.run(5)
    assert (site.slurm.nodes["n1"].drain, site.slurm.nodes["n1"].down) == (True, False)
    site.provider.capacity = True
    site.run(900, step_s=2)
    assert site.incident("n1").state is _S.CLOSED, site.story()
    assert [call for call in site.slurm.calls if call == ("set_down", "n1")] == [("set_down", "n1")]


def test_where_no_one_watched_an_operator_is_asked_and_no_job_is_stopped() -> None:
    site = in_state(_S.REPAIRING)
    launched = site.provider.candidates()
    site.run(2)
    site.slurm.start_cold()
    running = site.slurm.submit(1, comment="holdfast", exclusive=True)
    assert running.nodes == ("n1",)
    site.start_controller()
    site.run(60)
    incident = site.incident("n1")
    assert (incident.state, incident.resumed_in_doubt) == (_S.AWAITING_HUMAN, True)
    assert "unknown whether an operator resumed it" in incident.note
    assert any(sent.startswith("n1 needs an operator") for sent in site.notices.sent)
    assert drains(site) == ["n1", "n1"]
    assert (running.state, running.restarts) == ("RUNNING", 0)
    site.slurm.operator_resumes("n1")
    site.run(120)
    assert (site.incident("n1").state, drains(site)) == (_S.CLOSED, ["n1", "n1"])
    assert (running.state, running.restarts) == ("RUNNING", 0)
    assert site.provider.candidates() & launched == set()


def test_while_paused_the_drain_waits_and_nothing_else_is_done() -> None:
    site = in_state(_S.VALIDATING)
    site.operate("pause")
    site.slurm.start_cold()
    site.run(60)
    assert (drains(site), site.incident("n1").state) == (["n1"], _S.VALIDATING)
    site.start_controller()
    site.run(31)
    site.operate("resume")
    site.run(3)
    assert drains(site) == ["n1", "n1"]


def test_in_observe_mode_it_is_recorded_and_not_done() -> None:
    site = in_state(_S.AWAITING_HUMAN)
    site.policy = replace(site.policy, mode=Mode.OBSERVE)
    site.start_controller()
    site.run(40)
    site.slurm.start_cold()
    site.run(20)
    assert (drains(site), site.incident("n1").state) == (["n1"], _S.AWAITING_HUMAN)
    withheld = site.store.events(kinds=(EventKind.ACTION_WITHHELD,))
    assert [event.detail["kind"] for event in withheld] == ["Drain"]


def test_a_drain_that_an_operator_set_and_slurmctld_forgot_is_holdfasts_now() -> None:
    site = in_state(_S.REPAIRING)
    site.slurm.operator_drains("n1")
    site.run(5)
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    site.run(5)
    site.slurm.start_cold()
    site.run(5)
    assert site.slurm.nodes["n1"].reason.startswith("holdfast[")
    assert site.incident("n1").state is _S.AWAITING_HUMAN


def test_drains_that_are_set_once_more_do_not_trip_the_brake() -> None:
    site = Site(40, policy=NO_BUDGET)
    for number in range(1, 5):
        site.fault(f"n{number}", remedy=Remedy.HUMAN)
        site.run(1300, step_s=5)
    assert site.book.brakes == {}
    site.slurm.start_cold()
    site.run(10)
    assert sorted(drains(site)) == sorted([f"n{n}" for n in range(1, 5)] * 2)
    site.fault("n9", remedy=Remedy.HUMAN)
    site.run(5)
    assert (site.book.brakes, site.slurm.nodes["n9"].drain) == ({}, True)


def test_a_drain_that_is_refused_meanwhile_is_the_operators() -> None:
    site = in_state(_S.REPAIRING)

    def step_in(intent: object, moment: str) -> None:
        if getattr(intent, "kind", "") == "Drain" and moment == "started":
            site.slurm.operator_drains("n1")

    site.at_boundary = step_in
    site.slurm.start_cold()
    site.run(5)
    assert site.slurm.nodes["n1"].reason == "psu"
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    states = [i.state for i in site.store.intents() if isinstance(i.action, Drain)]
    assert sorted(states) == sorted([IntentState.DONE, IntentState.REFUSED])


def rebuilt(state: IncidentState, away_s: float = 60.0) -> tuple[Site, SimNode]:
    """n1 left slurm.conf with an open incident, and its machine was replaced from outside meanwhile."""
    site = in_state(state)
    node = site.slurm.take_out("n1")
    site.slurm.jobs = {number: job for number, job in site.slurm.jobs.items() if "n1" not in job.nodes}
    site.run(away_s)
    site.provider.exchange("n1")
    return site, node


@pytest.mark.sampled
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("early", [False, True], ids=["its agent speaks first", "Slurm shows it first"])
def test_a_node_that_comes_back_on_another_machine_is_not_drained_for_the_one_before(
    state: IncidentState, early: bool
) -> None:
    site, node = rebuilt(state)
    site.run(0 if early else site.provider.boot_s + 20)
    site.slurm.put_in(node)
    site.run(600, step_s=2)
    assert drains(site) == ["n1"], site.story()
    assert (site.incident("n1").state, site.slurm.nodes["n1"].drain) == (_S.CLOSED, False)
    assert "another machine serves n1 now" in site.story()
    assert site.provider.serving("n1").instance_id in site.provider.live()


@pytest.mark.parametrize("silent", [True, False], ids=["no agent speaks", "the faulty machine speaks, too"])
def test_without_the_word_of_another_machine_alone_it_is_drained_again(silent: bool) -> None:
    site, node = rebuilt(_S.AWAITING_HUMAN)
    if silent:
        site.provider.serving("n1").agent_up = False
    else:
        site.machines[site.incident("n1").instance_id].powered = True
    site.slurm.put_in(node)
    site.run(200)
    assert drains(site) == ["n1", "n1"], site.story()


@pytest.mark.parametrize("state", [_S.REPAIRING, _S.VALIDATING])
def test_a_repair_does_not_wait_for_ever_for_a_node_out_of_slurm_conf(state: IncidentState) -> None:
    site = in_state(state)
    first = site.incident("n1")
    node = site.slurm.take_out("n1")
    site.slurm.jobs = {number: job for number, job in site.slurm.jobs.items() if "n1" not in job.nodes}
    site.run(3000, step_s=30)
    assert (site.incident("n1").state, site.notices.sent) == (state, [])
    site.run(1500, step_s=30)
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    assert site.notices.sent == [
        "n1 needs an operator: Slurm has not shown n1 for an hour, its repair is given up: if it was taken out of slurm.conf for good, "
        "close "
        "the incident; if it comes back, it is drained again"
    ]
    site.run(3600, step_s=30)
    assert site.provider.candidates() == set(), "what was launched for it is given back"
    assert len(site.notices.sent) == 1
    site.slurm.put_in(node)
    site.run(60)
    assert (drains(site), site.incident("n1").id) == (["n1", "n1"], first.id)


def test_a_node_that_an_operator_powers_down_in_its_repair_is_not_in_service() -> None:
    """Slurm takes its drain away with that. No one has said that it is trusted."""
    site = Site(4)
    site.slurm.saving = PowerSaving(suspend_time_s=1e9, suspend_timeout_s=5)
    site.fault("n1")
    while not any(i.kind == "Launch" for i in site.store.intents()):
        site.run(1)
    site.slurm.nodes["n1"].drain = False
    site.slurm.nodes["n1"].power = "POWER_DOWN"
    site.run(600, step_s=5)
    incident = site.incident("n1")
    assert incident.open
    assert "powered down through Slurm" in site.story(incident.id)
    site.slurm.nodes["n1"].power = ""
    site.run(60)
    assert site.incident("n1").id == incident.id
    assert site.slurm.node("n1").out_of_service or site.incident("n1").state is IncidentState.CLOSED
