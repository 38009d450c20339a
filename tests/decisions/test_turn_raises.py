"""A turn that raises stops nothing: the input at fault is set aside, its node is held for an operator, everything else continues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast import unexpected
from holdfast.controller import loop
from holdfast.controller.timing import cycles
from holdfast.decisions import careful, turn
from holdfast.decisions.careful import TurnFailed, blame, careful_turn
from holdfast.decisions.inputs import NO_DECISION, Input, InputKind, inputs, without
from holdfast.model.book import Change, World
from holdfast.model.incidents.incident import IncidentKind, IncidentState
from holdfast.model.slurm.cluster import Node
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site

Spoils = Callable[[World], object]
"""Raises for a world that contains what breaks a stage."""


@pytest.fixture(autouse=True)
def _nothing_failed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = unexpected.Unexpected()
    for name in ("failed", "passed", "standing", "counts"):
        monkeypatch.setattr(unexpected, name, getattr(fresh, name))


def spoil(monkeypatch: pytest.MonkeyPatch, stage: str, spoils: Spoils) -> None:
    """Have this stage of the turn raise where ``spoils`` does."""
    plain = getattr(turn, stage)

    def raising(world: World, *others: object) -> Change:
        spoils(world)
        change: Change = plain(world, *others)
        return change

    monkeypatch.setattr(turn, stage, raising)


def no(found: object) -> None:
    if found:
        raise ZeroDivisionError("drill")


def odd_finding(world: World) -> None:
    no([f for f in world.book.findings.values() if f.check == "gpu.odd"])


def drilled(nodes: int = 4) -> Site:
    site = Site(nodes)
    site.may_set_aside = True
    return site


@pytest.mark.parametrize("stage", ["correlate", "follow_incidents", "_decide"])
def test_one_finding_that_no_stage_takes_holds_its_node_and_the_other_nodes_are_healed(
    monkeypatch: pytest.MonkeyPatch, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = drilled()
    spoil(monkeypatch, stage, odd_finding)
    site.fault("n1", check="gpu.odd")
    site.fault("n2")
    site.run(10)
    held = site.incident("n1")
    assert (held.kind, held.state) == (IncidentKind.UNREADABLE, IncidentState.AWAITING_HUMAN)
    assert held.check == "gpu.odd"
    assert "ZeroDivisionError: drill" in held.headline
    assert not site.slurm.nodes["n1"].drain
    assert site.slurm.nodes["n2"].drain
    assert any(text.startswith("n1 needs an operator") for text in site.notices.sent)
    (kept,) = [f for f in site.book.findings.values() if f.check == "gpu.odd"]
    assert kept.incident_id == held.id
    lines = [r.getMessage() for r in caplog.records if "event=input_set_aside" in r.getMessage()]
    assert len(lines) == 1
    assert "node=n1 what='gpu.odd'" in lines[0]


def test_after_a_restart_it_is_not_found_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    site = drilled()
    spoil(monkeypatch, "correlate", odd_finding)
    site.fault("n1", check="gpu.odd")
    site.run(5)
    site.start_controller()
    site.may_set_aside = False
    site.run(40)
    assert len(site.store.incidents(node="n1")) == 1


def test_a_finding_that_would_have_led_to_nothing_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    site = drilled()
    spoil(monkeypatch, "correlate", odd_finding)
    site.fault("n1", check="gpu.odd", severity=Severity.WARNING, remedy=Remedy.NONE)
    site.run(5)
    site.fault("n2")
    site.run(5)
    assert not site.store.incidents(node="n1")
    assert site.slurm.nodes["n2"].drain


def test_findings_of_many_nodes_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    site = drilled(12)
    spoil(monkeypatch, "correlate", odd_finding)
    for node in ("n1", "n12"):
        site.fault(node, check="gpu.odd")
    site.fault("n7")
    site.run(5)
    held = {i.node for i in site.store.incidents(only_open=True) if i.kind is IncidentKind.UNREADABLE}
    assert held == {"n1", "n12"}
    assert site.slurm.nodes["n7"].drain


def test_a_held_node_is_not_put_back_into_service_until_an_operator_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its repair was under way: without the finding against it, it would have been validated and returned."""
    site = drilled()
    site.fault("n1")
    site.run(10)
    spoil(monkeypatch, "follow_incidents", odd_finding)
    site.fault("n1", check="gpu.odd")
    site.run(1500, step_s=5)
    assert site.slurm.nodes["n1"].drain
    held = next(i for i in site.store.incidents(node="n1", only_open=True) if i.kind is IncidentKind.UNREADABLE)
    site.operate("close", held.id)
    site.run(1500, step_s=5)
    assert not site.slurm.nodes["n1"].drain


def test_one_job_that_a_stage_stumbles_over_stops_nobody_elses_healing(monkeypatch: pytest.MonkeyPatch) -> None:
    site = drilled()
    site.slurm.submit(1, comment="holdfast odd", exclusive=True)
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(3)
    odd, plain = (site.slurm.jobs[number] for number in (100, 101))

    def comment(world: World) -> None:
        no([j for j in (world.view.jobs.values() if world.view is not None else ()) if "odd" in j.comment])

    spoil(monkeypatch, "follow_jobs", comment)
    site.run(2)
    assert [a.what.part for a in site.loop.aside] == [InputKind.JOB]
    site.fault(plain.nodes[0])
    site.fault(odd.nodes[0])
    site.run(30)
    assert plain.restarts == 1
    assert odd.restarts == 0
    assert odd.state == "RUNNING"


def test_one_row_of_an_incident_holds_its_node_and_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    site = drilled()
    site.fault("n1")
    site.run(10)
    before = site.incident("n1")

    def that_one(world: World) -> None:
        no([i for i in world.book.incidents.values() if i.id == before.id and i.kind is IncidentKind.FAULT])

    spoil(monkeypatch, "follow_incidents", that_one)
    calls = [c for c in site.slurm.calls if c[1] == "n1"]
    site.fault("n2")
    site.run(300)
    assert site.incident("n1") == before
    assert [c for c in site.slurm.calls if c[1] == "n1"] == calls
    assert ("drain", "n2") in {c[:2] for c in site.slurm.calls}


def test_what_was_set_aside_in_memory_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    site = drilled()
    broken = [True]

    def agent(world: World) -> None:
        no(broken and [a for agents in world.agents.values() for a in agents if a.all_ok and a.node == "n3"])

    spoil(monkeypatch, "watch_silence", agent)
    site.run(5)
    assert [(a.what.part, a.what.node) for a in site.loop.aside] == [(InputKind.AGENT, "n3")]
    assert site.incident("n3").kind is IncidentKind.UNREADABLE
    broken.clear()
    site.run(careful.AGAIN_S + 5, step_s=5)
    assert not site.loop.aside


@pytest.mark.parametrize("part", list(InputKind))
def test_each_stand_in_leaves_a_world_that_can_be_turned(part: InputKind) -> None:
    site = Site(4, spares=("n4",))
    site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)
    site.fault("n1")
    site.run(30)
    world = site.loop.world
    assert world is not None
    turned = careful_turn(without(world, inputs(world, part)), lambda w: turn.turn(w, site._new_id, 1), site._new_id)
    assert not turned.new


def test_nothing_is_decided_when_no_input_is_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(3)
    world = site.loop.world
    assert world is not None
    spoil(monkeypatch, "follow_upkeep", lambda _world: no(found=True))
    with pytest.raises(TurnFailed):
        careful_turn(world, lambda w: turn.turn(w, site._new_id, 1), site._new_id)


def test_the_search_is_bounded() -> None:
    world = Site(40).loop.world
    assert world is not None
    turns = []

    def hopeless(tried: World) -> Change:
        turns.append(tried)
        raise ZeroDivisionError

    assert blame(world, hopeless) is None
    assert len(turns) <= len(InputKind) + 1
    turns.clear()

    def nearly(tried: World) -> Change:
        turns.append(tried)
        no(sum(n.reason != NO_DECISION and n.name in ("n3", "n9", "n31") for n in _nodes(tried)))
        return Change()

    assert world.view is not None
    drained = {name: replace(node, flags=node.flags | {"DRAIN"}) for name, node in world.view.nodes.items()}
    out = replace(world, view=replace(world.view, nodes=drained))
    assert {i.node for i in blame(out, nearly) or ()} == {"n3", "n9", "n31"}
    assert len(turns) < 40
    assert blame(out, nearly, tries=14) is None


def _nodes(world: World) -> list[Node]:
    return list(world.view.nodes.values()) if world.view is not None else []


# The loop


def _runs(site: Site, until: Callable[[], bool], brief_s: float = 10.0) -> BaseException | None:
    async def drill() -> None:
        running = asyncio.create_task(site.loop.run())
        async with asyncio.timeout(brief_s):
            while not until() and not running.done():
                site.loop.wake.set()
                await asyncio.sleep(0.005)
        site.loop.stopping = True
        site.loop.wake.set()
        await running

    try:
        asyncio.run(drill())
    except Exception as error:  # noqa: BLE001 - what the loop ended with is the answer
        return error
    return None


def test_the_loop_outlives_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(3)
    spoil(monkeypatch, "correlate", odd_finding)
    site.fault("n1", check="gpu.odd")
    site.agents.send()
    assert _runs(site, lambda: any(i.node == "n1" for i in site.store.incidents())) is None
    assert site.incident("n1").kind is IncidentKind.UNREADABLE
    assert not unexpected.standing()


def test_a_turn_that_fails_altogether_is_repeated_at_a_bounded_pace_and_does_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "TICK_S", 0.01)
    monkeypatch.setattr(loop, "LONGEST_PAUSE_S", 0.05)
    site, beats, broken = Site(3), list[int](), [True]
    site.loop.beat = lambda: beats.append(site.loop.cycles.failed_turns)
    spoil(monkeypatch, "follow_upkeep", lambda _world: no(broken))
    site.fault("n1")
    site.agents.send()
    events = site.store.events()

    def healed() -> bool:
        if broken and site.loop.cycles.failed_turns == 5:
            assert unexpected.standing() == {cycles.TURN: "ZeroDivisionError: drill"}
            assert site.store.events() == events
            broken.clear()
        return bool(beats) and beats[-1] == 0

    assert _runs(site, healed) is None
    assert beats[:5] == [1, 2, 3, 4, 5]
    assert not unexpected.standing()
    assert site.incident("n1").state is IncidentState.OPEN
    traces = [r for r in caplog.records if "event=unexpected_error part=turn" in r.getMessage()]
    assert [r.levelno for r in traces] == [logging.ERROR]


def test_after_many_failed_turns_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "TICK_S", 0.001)
    monkeypatch.setattr(loop, "LONGEST_PAUSE_S", 0.001)
    monkeypatch.setattr(loop, "MOST_FAILED_TURNS", 4)
    site = Site(2)
    spoil(monkeypatch, "follow_upkeep", lambda _world: no(found=True))
    assert isinstance(_runs(site, lambda: False), TurnFailed)
    assert site.loop.cycles.failed_turns == 4


def test_inputs_have_a_text_for_people() -> None:
    assert Input(InputKind.FINDING, "17", "n3", "gpu.xid").text == "finding 17 of n3 (gpu.xid)"
    assert Input(InputKind.JOB, "100").text == "job 100"
