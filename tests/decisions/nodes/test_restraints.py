"""Observe, propose, a pause, a brake, a suppression and an acknowledgement block every action: the table is tried row by row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.actor.second_look import Recheck, look_again, outlived
from holdfast.agent.jobs.questions import Answers
from holdfast.agent.node.job_gate import WORD_LASTS_S, JobGate
from holdfast.decisions.brakes.planned_steps import forbids
from holdfast.decisions.elastic.evictions import due, met_in
from holdfast.decisions.nodes.job_gate import WORLD_MAX_AGE_S, closed_by
from holdfast.model.actions.action import (
    Action,
    Drain,
    HoldJob,
    Intent,
    IntentState,
    Reboot,
    Replace,
    Requeue,
    SendOrder,
    SetDown,
    StopStart,
    Terminate,
    Verb,
)
from holdfast.model.actions.held_orders import ENDING_VERBS, HARMLESS_VERBS, held
from holdfast.model.actions.restraints import WAYS, Restraint
from holdfast.model.book import Book, Brake, BrakeKind, World
from holdfast.model.elastic_jobs.rooms import RoomView
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.operators.suppression import Suppression
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import JobKey
from holdfast.ports import Operation
from support.rooms import T0, four_groups, view_of
from support.simulated import Site
from support.simulated.site import POLICY
from support.store_nouns import incident

ROOT = Path(__file__).parents[3]
ACTING = replace(POLICY, prolog=Mode.ACT)
R = Restraint


def _mode(restraint: Restraint | None) -> Mode:
    return {R.OBSERVE: Mode.OBSERVE, R.PROPOSE: Mode.PROPOSE}.get(restraint, Mode.ACT) if restraint else Mode.ACT


def _suppress(site: Site, node: str) -> None:
    now = site.clock.now()
    wanted = Suppression("0" * 12, now + timedelta(hours=1), "ops", "known", now, node=node)
    site.store.operate(Operation("suppress", "ops", wanted.id, "known", wanted), now)


def _site(restraint: Restraint | None, then_s: float = 120) -> Site:
    """A fatal fault on n1 under a job that consents, and one restraint."""
    site = Site(16, policy=replace(ACTING, mode=_mode(restraint)))
    for _ in range(16):
        site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    if restraint is R.SUPPRESSED:
        _suppress(site, "n1")
    if restraint in (R.PAUSE, R.ACKNOWLEDGED):
        site.operate("pause")
    for number in range(8 if restraint is R.BRAKE else 1):
        site.fault(f"n{number + 1}", sticky=True)
    site.run(3)
    if restraint is R.ACKNOWLEDGED:
        site.operate("acknowledge", site.incident("n1").id)
        site.operate("resume")
    site.run(then_s, step_s=min(then_s, 5))
    return site


def _touched(site: Site) -> set[str]:
    """Actions on nodes, machines and jobs; empty: none."""
    done = {f"drain {node.name}" for node in site.slurm.nodes.values() if node.drain}
    done |= {f"stop {job.job_id}" for job in site.slurm.jobs.values() if job.restarts or job.state != "RUNNING"}
    done |= {f"machine {each}" for each in (*site.provider.terminated, *site.provider.cycled, *site.provider.replaced)}
    return done | {each for each in site.kinds() if each in ("Drain", "Requeue", "Launch", "Terminate", "Reboot")}


def _held_decision(restraint: Restraint | None) -> bool:
    return not _touched(_site(restraint))


STEPS: tuple[Action, ...] = (
    Drain("n1", "drill"),
    Requeue(JobKey("practice", 72, T0), 0),
    HoldJob(JobKey("practice", 72, T0), "drill"),
    Terminate("i-1", "n1"),
    Replace("n1", "i-1", "boot-1", "t"),
    Reboot("n1", "i-1", "boot-1", "t", via_slurm=False),
    Reboot("n1", "i-1", "boot-1", "t", via_slurm=True),
    StopStart("n1", "i-1", "boot-1", "t"),
)
BRAKES: dict[str, Brake] = {BrakeKind.DRAINS: Brake(BrakeKind.DRAINS, T0 + timedelta(seconds=1), "many")}


def _world(restraint: Restraint | None, *intents: Intent) -> World:
    plain = incident(state=IncidentState.OPEN, instance_id="i-1", acknowledged=restraint is R.ACKNOWLEDGED)
    book = Book(
        incidents={"inc1": plain},
        intents={each.key: each for each in intents},
        paused="ops" if restraint is R.PAUSE else None,
        brakes=BRAKES if restraint is R.BRAKE else {},
    )
    policy = replace(ACTING, mode=_mode(restraint))
    return World(T0 + timedelta(seconds=2), policy, book, view_of(*four_groups()))


def _planned(action: Action, state: IntentState = IntentState.PLANNED) -> Intent:
    return Intent(f"inc1/{type(action).__name__}/n1/1", "inc1", action, "drill", 1, state, T0)


def _held_step(restraint: Restraint | None) -> bool:
    looks = []
    for action in STEPS:
        intent = _planned(action)
        world = _world(restraint, intent)
        looks.append(
            outlived(world.book, intent) is None
            and look_again(world.book, intent, world.policy.mode) is Recheck.GO
            and forbids(world.policy, world.book, intent, {}, None) is None
        )
    assert len(set(looks)) == 1, looks
    return not looks[0]


def _held_order(restraint: Restraint | None) -> bool:
    given = set()
    for verb in ENDING_VERBS:
        world = _world(restraint)
        order = SendOrder("n1", "i-1", "boot-1", verb, 60)
        observes = world.policy.mode is Mode.OBSERVE
        given.add(not held(order, world.book.incidents["inc1"], paused=bool(world.book.paused), observes=observes))
    assert len(given) == 1, given
    return not given.pop()


def _held_eviction(restraint: Restraint | None) -> bool:
    name = f"job-71-{int((T0 - timedelta(minutes=2)).timestamp())}"
    room = RoomView(name, ("0~72.0:a",), ("0~72.0:a",))
    intents = (_planned(Requeue(JobKey("practice", 72, T0), 0)), replace(_planned(STEPS[0]), key="inc1/Other/1"))
    world = _world(restraint, *intents)
    found, _ = due(world, (room,), met_in((room,), T0, {}), {})
    return not found


def _answer(site: Site, *, after_s: float = 0.0, node: str = "n1") -> dict[str, object]:
    """The answer to the prolog on a node with a fatal finding."""
    assert site.loop.world is not None
    gate = JobGate(lambda: after_s)
    said = closed_by(site.loop.world, node, site.loop.world.now)
    gate.answered({"leader": True, **({"keep_off": said} if said else {})}, 0.0)
    answers = Answers()
    answers.fatal, answers.gate = ("gpu.count GPU-1",), gate
    answer = json.loads(answers.standing())
    assert bool(answer["fatal"]) is (answer["mode"] == "act")
    return dict(answer)


def _held_prolog(restraint: Restraint | None) -> bool:
    return _answer(_site(restraint, 1))["mode"] != "act"


def _held_healthcheck(_restraint: Restraint | None) -> bool:
    """Whatever the controller withholds, on a node with an agent: run by tests/checks/test_healthcheck_script.py."""
    return "has a Holdfast agent" in (ROOT / "slurm-plugins" / "healthcheck.sh").read_text()


HELD: dict[str, Callable[[Restraint | None], bool]] = {
    "decision": _held_decision,
    "planned step": _held_step,
    "waiting order": _held_order,
    "eviction": _held_eviction,
    "`prolog.sh`, `epilog.sh`": _held_prolog,
    "`healthcheck.sh --drain`": _held_healthcheck,
}
WALK = [(way.name, restraint) for way in WAYS for restraint in sorted(way.held_by)]


@pytest.mark.parametrize(("way", "restraint"), WALK)
def test_a_way_is_held(way: str, restraint: Restraint) -> None:
    assert HELD[way](restraint)


@pytest.mark.parametrize("way", [name for name in HELD if name != "`healthcheck.sh --drain`"])
def test_a_way_is_open_where_nothing_holds_it(way: str) -> None:
    assert not HELD[way](None)


def test_every_way_is_walked_or_does_nothing() -> None:
    assert {way.name for way in WAYS if way.held_by} == HELD.keys()


def test_no_shipped_script_drains_reboots_or_ends_a_job_but_the_named_one() -> None:
    does = re.compile(
        r"\bscontrol\b.*\b(update|reboot|requeue|requeuehold)\b|\bscancel\b|\b(shutdown|poweroff)\b(?!\.target)|\breboot\b"
    )
    files = [f for name in ("slurm-plugins", "lifecycle-scripts") for f in (ROOT / name).rglob("*") if f.is_file()]
    found = {
        str(file.relative_to(ROOT))
        for file in files
        for line in file.read_text(errors="replace").splitlines()
        if does.search(line.partition("#")[0]) and "SystemCallFilter" not in line
    }
    own_submission = "slurm-plugins/templates/elastic.sbatch"  # it takes back the array that it has just submitted
    assert found == {"slurm-plugins/healthcheck.sh", own_submission}


# The prolog


def test_with_the_shipped_defaults_a_prolog_never_fails() -> None:
    for mode in Mode:
        site = Site(2, policy=replace(POLICY, mode=mode))
        site.fault("n1", sticky=True)
        site.run(5)
        assert _answer(site) == {
            "v": 1,
            "kind": "standing",
            "mode": "observe",
            "fatal": "",
            "observed": "gpu.count GPU-1",
        }


def test_what_the_controller_does_not_drain_for_keeps_no_job_off() -> None:
    site = _site(None, 1)
    assert _answer(site, node="n2")["mode"] == "observe"
    assert _answer(site, after_s=WORD_LASTS_S - 1)["incident"] == site.incident("n1").id
    assert _answer(site, after_s=WORD_LASTS_S)["mode"] == "observe", "an old word is none"


def test_an_old_picture_a_freeze_and_an_operators_window_open_the_gate() -> None:
    world = _site(None, 1).loop.world
    assert world is not None
    assert closed_by(world, "n1", world.now) is not None
    assert closed_by(world, "n1", world.now + timedelta(seconds=WORLD_MAX_AGE_S + 1)) is None
    assert closed_by(replace(world, frozen="drill"), "n1", world.now) is None
    assert world.view is not None
    node = replace(world.view.nodes["n1"], flags=frozenset({"MAINTENANCE"}))
    view = replace(world.view, nodes={**world.view.nodes, "n1": node})
    assert closed_by(replace(world, view=view), "n1", world.now) is None


@pytest.mark.parametrize(
    "body",
    [{}, {"leader": False, "keep_off": "inc"}, {"leader": True, "keep_off": 7}, {"leader": True, "keep_off": ""}],
)
def test_anything_but_the_leaders_word_opens_the_gate(body: dict[str, object]) -> None:
    gate = JobGate(lambda: 1.0)
    gate.answered(body, 0.0)
    assert gate.closed_by is None


def test_the_leader_takes_its_word_back_a_standby_does_not() -> None:
    gate = JobGate(lambda: 1.0)
    gate.answered({"leader": True, "keep_off": "inc"}, 0.0)
    gate.answered({"leader": False}, 0.5)
    assert gate.closed_by == "inc"
    gate.answered({"leader": True}, 0.6)
    assert gate.closed_by is None


# Orders


@pytest.mark.parametrize("restraint", [R.PAUSE, R.OBSERVE])
def test_only_a_question_is_handed_out_while_nothing_may_be_done(restraint: Restraint) -> None:
    given = {
        verb
        for verb in Verb
        if not held(
            SendOrder("n1", "i-1", "b", verb, 60), None, paused=restraint is R.PAUSE, observes=restraint is R.OBSERVE
        )
    }
    assert given == HARMLESS_VERBS == {Verb.PROBE_PEER, Verb.OUTPUT}


@pytest.mark.parametrize("changed", [{"acknowledged": True}, {"state": IncidentState.CLOSED}])
def test_what_an_operator_took_over_or_closed_ends_no_process(changed: dict[str, object]) -> None:
    over: Incident = replace(incident(state=IncidentState.OPEN), **changed)  # type: ignore[arg-type]
    given = {v for v in Verb if not held(SendOrder("n1", "i-1", "b", v, 60), over, paused=False, observes=False)}
    assert given == set(Verb) - ENDING_VERBS


def test_steps_that_were_planned_in_act_are_not_begun_by_a_controller_in_observe() -> None:
    """Changed in controller.toml and restarted, with a step that slurmctld had not taken yet."""
    site = Site(4)
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    site.actor.mode = Mode.OBSERVE  # it waits, as an actor that was away
    site.fault("n1", sticky=True)
    site.run(1)
    assert [i.kind for i in site.store.due_intents() if i.kind == "Drain"] == ["Drain"]
    site.policy = replace(site.policy, mode=Mode.OBSERVE)
    site.start_controller()
    site.actor.mode = Mode.ACT  # the actor was not started again
    site.turn()
    site.run(60)
    assert not [i for i in site.store.due_intents() if i.kind == "Drain"]
    assert _touched(site) == set()


def test_a_step_for_a_dead_node_is_begun_while_a_brake_holds() -> None:
    intent = _planned(SetDown("n1", "dead", node_dead=False))
    assert look_again(_world(R.BRAKE, intent).book, intent) is Recheck.GO
