"""The proof before each step at a provider, on every provider: another node's machine is left alone, the node's own is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from holdfast.actor.adapters import Outside
from holdfast.actor.carry_out import carry_out
from holdfast.model.actions.action import Action, Assign, Intent, IntentState, Reboot, Replace, StopStart, Terminate
from holdfast.model.book import NodeMark
from holdfast.model.errors import Rejected
from holdfast.ports import IntentOutcome
from support.provider_worlds import WORLDS, World
from support.simulated.clock import SimClock
from support.simulated.slurm import SimSlurm

STEPS: dict[str, tuple[str, Callable[[str, str], Action]]] = {
    "terminate": ("launch first", lambda node, machine: Terminate(machine, node)),
    "fence": ("launch first", lambda node, machine: Terminate(machine, node, fence=True)),
    "assign": ("launch first", lambda node, machine: Assign(machine, node)),
    "replace": ("in place", lambda node, machine: Replace(node, machine, "boot", "inc-1")),
    "reboot": ("reboot", lambda node, machine: Reboot(node, machine, "boot", "inc-1", via_slurm=False)),
    "stop and start": ("stop and start", lambda node, machine: StopStart(node, machine, "boot", "inc-1")),
}
"""Step → what a provider must be able to do for it, and the step for a node with a machine."""


def _each() -> Iterator[Any]:
    for name, opening in WORLDS.items():
        for step, (needs, _) in STEPS.items():
            if needs in opening.does:
                yield pytest.param(name, step, marks=opening.marks, id=f"{name}-{step}")


def _carry_out(world: World, action: Action) -> IntentOutcome:
    clock = SimClock()
    slurm = SimSlurm(clock, ("n1", "n10"))
    slurm.drain("n1", "holdfast[inc]: drill")
    nothing = cast(Any, None)
    out = slurm.nodes["n1"]
    mark = NodeMark("n1", "inc", out.reason, out.user, out.time)
    outside = Outside(
        slurm,
        world.provider,
        nothing,
        clock,
        lambda s: clock.advance(s + 1),
        lambda: {"n1": mark},
        lambda _id: frozenset(),
        frozenset,
    )
    return carry_out(Intent("inc/step/1", "inc", action, "drill", 1, IntentState.PLANNED, clock.now()), outside)


def _effects(world: World) -> tuple[int, ...]:
    return (world.launched(), world.terminated(), world.rebooted(), world.stopped())


@pytest.mark.parametrize(("name", "step"), list(_each()))
def test_another_nodes_machine_is_left_alone(request: pytest.FixtureRequest, name: str, step: str) -> None:
    world = WORLDS[name].open(request)
    outcome = _carry_out(world, STEPS[step][1]("n1", world.serving["n10"]))
    assert (outcome.state, outcome.result.get("other_node")) == (IntentState.REFUSED, "n10"), outcome
    assert _effects(world) == (0, 0, 0, 0)
    found = world.provider.instance_of("n10")
    assert found is not None
    assert (found.instance_id, found.state) == (world.serving["n10"], "running")


@pytest.mark.parametrize(("name", "step"), list(_each()))
def test_a_machine_that_nobody_knows_proves_nothing(request: pytest.FixtureRequest, name: str, step: str) -> None:
    """A made-up id: nothing is done to the node's real machine, and nothing is taken for a fence."""
    world = WORLDS[name].open(request)
    outcome = _carry_out(world, STEPS[step][1]("n1", "i-0123456789abcdef0"))
    if step not in ("terminate", "replace"):  # what is gone already is a success that touches nothing
        assert outcome.state is not IntentState.DONE, outcome
    assert _effects(world) == (0, 0, 0, 0)


@pytest.mark.parametrize(("name", "step"), [each for each in _each() if "-fence" not in str(each.id)])
def test_the_nodes_own_machine_is_not_left_alone(request: pytest.FixtureRequest, name: str, step: str) -> None:
    world = WORLDS[name].open(request)
    outcome = _carry_out(world, STEPS[step][1]("n1", world.serving["n1"]))
    assert outcome.state is not IntentState.REFUSED, outcome
    assert step == "assign" or sum(_effects(world)) > 0, outcome


def test_a_provider_that_can_prove_nothing_does_nothing(request: pytest.FixtureRequest) -> None:
    world = WORLDS["none"].open(request)
    for _, make in STEPS.values():
        for machine in ("", "i-0123456789abcdef0"):
            outcome = _carry_out(world, make("n1", machine))
            assert outcome.state is not IntentState.DONE or "terminated" in outcome.text


@pytest.mark.parametrize("name", [pytest.param(n, marks=o.marks) for n, o in WORLDS.items() if n.startswith("command")])
def test_a_script_is_asked_for_the_node_before_it_is_asked_to_act(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever calls the provider: a script that knows the machine under another name, or under none, is not asked to act."""
    world = WORLDS[name].open(request)
    other = world.serving["n10"]
    if "in place" in WORLDS[name].does:
        with pytest.raises(Rejected, match="left alone"):
            world.provider.replace("n1", other, incident="inc", token="t")
    elsewhere = replace(world.provider.instance(other), node="n1")
    monkeypatch.setattr(world.provider, "instance", lambda _id: elsewhere)
    with pytest.raises(Rejected, match="left alone"):
        world.provider.reboot(other, incident="inc", token="t")
    if "stop and start" in WORLDS[name].does:
        with pytest.raises(Rejected, match="left alone"):
            world.provider.stop_start(other, incident="inc", token="t")
    assert _effects(world) == (0, 0, 0, 0)
