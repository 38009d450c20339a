"""The list of all ways to end, stop or reboot a machine: complete, and tried with an agent that claims another node's machine."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast.actor.carry_out import carry_out
from holdfast.decisions.machines.disputes import contested
from holdfast.decisions.machines.machine_proof import refused_unproven
from holdfast.model.actions.action import (
    ACTION_TYPES,
    Action,
    Assign,
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
    TakeOverDrain,
    Terminate,
    Verb,
)
from holdfast.model.actions.endings import ENDING_PORTS, ENDINGS, HARMLESS, HARMLESS_PORTS
from holdfast.model.book import Change
from holdfast.model.operators.node_orders import DrainForOperator
from holdfast.model.slurm.cluster import JobKey, NodeReason
from holdfast.ports import IntentOutcome, Provider, Scheduler, reading
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.slurm import SimJob

LIAR, OTHER, THEIRS = "n4", "n2", "i-0002"
DAEMON = Path(holdfast.__file__).parent
BY_MACHINE = frozenset({"Terminate", "Replace", "Assign", "Reboot", "StopStart"})
"""Steps that go to the machine which the agent has named."""


def _steps() -> set[str]:
    plain = {name for name in ACTION_TYPES if name != SendOrder.__name__}
    return plain | {f"{SendOrder.__name__}.{verb.value}" for verb in Verb}


def test_every_action_and_every_order_is_in_the_list_or_named_as_harmless() -> None:
    listed = {ending.step for ending in ENDINGS} - {"Reboot.via_slurm"}
    assert listed & HARMLESS == set()
    assert listed | HARMLESS == _steps()


@pytest.mark.parametrize(("port", "name"), [(Provider, "provider"), (Scheduler, "scheduler")])
def test_every_verb_of_a_port_is_in_the_list_or_named_as_harmless(port: type, name: str) -> None:
    verbs = {each for each, _ in inspect.getmembers(port, inspect.isfunction) if not each.startswith("_")}
    assert verbs - reading(port) == ENDING_PORTS[name] | HARMLESS_PORTS[name]


def _calls(tree: ast.AST, attribute: str) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if isinstance(of, ast.Attribute) and of.attr == attribute:
                yield node.func.attr, node


def test_a_providers_verb_is_called_with_a_proven_machine_alone() -> None:
    seen: set[str] = set()
    ours = [path for path in DAEMON.rglob("*.py") if path.relative_to(DAEMON).parts[0] not in ("practice", "providers")]
    for file in sorted(ours):
        for verb, call in _calls(ast.parse(file.read_text(encoding="utf-8")), "provider"):
            if verb in ENDING_PORTS["provider"]:
                assert file == DAEMON / "actor" / "machine_steps.py", file
                assert {ast.unparse(each) for each in call.args} <= {"machine.instance_id", "machine.node"}, verb
                seen.add(verb)
    assert seen == ENDING_PORTS["provider"]


def test_a_machine_is_proven_in_one_module_alone() -> None:
    makers = {
        file.name
        for file in DAEMON.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ProvenMachine"
    }
    assert makers == {"machine_proof.py"}


def _order(verb: Verb) -> Callable[[Site, SimJob], Action]:
    return lambda site, job: SendOrder(
        LIAR, THEIRS, site.machine(OTHER).boot_id, verb, 600, {"job_id": job.job_id, "restarts": 1, "gpus": []}
    )


AIMED: dict[str, Callable[[Site, SimJob], Action]] = {
    "Terminate": lambda _site, _job: Terminate(THEIRS, LIAR),
    "Replace": lambda site, _job: Replace(LIAR, THEIRS, site.machine(OTHER).boot_id, "t"),
    "Assign": lambda _site, _job: Assign(THEIRS, LIAR),
    "Reboot": lambda site, _job: Reboot(LIAR, THEIRS, site.machine(OTHER).boot_id, "t", via_slurm=False),
    "Reboot.via_slurm": lambda site, _job: Reboot(LIAR, THEIRS, site.machine(OTHER).boot_id, "t", via_slurm=True),
    "StopStart": lambda site, _job: StopStart(LIAR, THEIRS, site.machine(OTHER).boot_id, "t"),
    "SetDown": lambda _site, _job: SetDown(LIAR, "holdfast[inc]: drill", node_dead=True),
    "Drain": lambda _site, _job: Drain(LIAR, "holdfast[inc]: drill"),
    "TakeOverDrain": lambda _site, _job: TakeOverDrain(LIAR, "holdfast[inc]: drill", NodeReason("mine", "eve", None)),
    "DrainForOperator": lambda _site, _job: DrainForOperator(LIAR, "operator ops: drill"),
    "Requeue": lambda site, job: Requeue(_another(site, job), 0),
    "HoldJob": lambda site, job: HoldJob(_another(site, job), "drill"),
    "SendOrder.reset_gpu": _order(Verb.RESET_GPU),
    "SendOrder.end_stuck_job": _order(Verb.END_JOB),
    "SendOrder.end_leftover_step": _order(Verb.END_STEP),
    "SendOrder.ask_group_to_leave": _order(Verb.LEAVE),
}
"""Each step, ordered for the liar with everything that it has claimed: the machine, its boot, its job's number."""


def _another(site: Site, job: SimJob) -> JobKey:
    key = site.slurm.job(job.job_id).key
    return replace(key, submit_time=key.submit_time - timedelta(days=1))


def _drill() -> tuple[Site, SimJob]:
    site = Site()
    jobs = [site.slurm.submit(1, gpus=8) for _ in range(4)]
    site.slurm.finish(next(j for j in jobs if j.nodes == (LIAR,)), "COMPLETED")
    site.run(10)
    site.slurm.drain(LIAR, "holdfast[inc]: drill")
    site.slurm.taken_out.clear()
    site.machine(LIAR).instance_id = THEIRS
    return site, next(j for j in jobs if j.nodes == (OTHER,))


def _carry_out(site: Site, action: Action) -> IntentOutcome:
    return carry_out(
        Intent("inc/step/1", "inc", action, "drill", 1, IntentState.PLANNED, site.clock.now()), site.actor.outside
    )


def _untouched(site: Site, job: SimJob) -> None:
    assert site.provider.terminated == {}
    assert THEIRS not in site.provider.cycled.values()
    assert site.provider.replaced == {}
    assert site.provider.instance_of(OTHER) == site.provider.instance(THEIRS)
    assert site.provider.instance(THEIRS).node == OTHER
    assert OTHER not in [name for _, name in site.slurm.taken_out]
    assert (job.state, job.restarts, job.nodes) == ("RUNNING", 0, (OTHER,))
    assert site.machine(OTHER).boot == 1


@pytest.mark.parametrize("step", [ending.step for ending in ENDINGS])
def test_no_step_for_the_liar_touches_the_node_whose_machine_it_claims(step: str) -> None:
    """Past the decision and its brakes: as if the order was in the store already, before the dispute was known."""
    site, job = _drill()
    action = AIMED[step](site, job)
    if isinstance(action, SendOrder):
        _ordered_of_an_agent(site, action)
    else:
        outcome = _carry_out(site, action)
        if step in BY_MACHINE:
            assert outcome.state is IntentState.REFUSED, outcome
            assert refused_unproven(outcome.result)
            assert outcome.result["other_node"] == OTHER
    _untouched(site, job)
    site.run(60, step_s=5)
    _untouched(site, job)
    assert site.loop.world is not None
    assert contested(site.loop.world).by_node.keys() == {LIAR}


def _ordered_of_an_agent(site: Site, order: SendOrder) -> None:
    """The other node's agent does not receive it, although machine and boot are its own; the liar does not receive the other's."""
    theirs = site.machine(OTHER)
    now = site.clock.now()
    assert site.loop.lease is not None
    fence = site.loop.lease.fence
    for number, node in enumerate((LIAR, OTHER)):
        intent = Intent(
            f"inc/SendOrder/{number}/1", "inc", replace(order, node=node), "drill", fence, IntentState.PLANNED, now
        )
        site.store.commit(Change(intents=(intent,)), fence)
    for node in (LIAR, OTHER):
        handed = site.store.take_orders(node, THEIRS, theirs.boot_id, now)
        assert [each.action.target.node for each in handed] == [node]


def test_a_reboot_through_slurm_waits_where_two_nodes_have_one_address() -> None:
    """A NodeAddr that was set wrong: slurmctld would send the order to the other node's slurmd."""
    site = Site()
    site.slurm.reboot_program = "/sbin/reboot"
    site.run(30)
    site.slurm.addresses[LIAR] = site.slurm.address(OTHER)
    site.fault(LIAR, remedy=Remedy.REBOOT)
    site.run(120, step_s=5)
    assert [call for call in site.slurm.calls if call[0] == "reboot"] == []
    assert OTHER in site.incident(LIAR).note
    del site.slurm.addresses[LIAR]
    site.run(120, step_s=5)
    assert [call for call in site.slurm.calls if call[0] == "reboot"] != []


@pytest.mark.parametrize("step", sorted(BY_MACHINE - {"Assign"}))
def test_a_machine_at_another_nodes_address_is_left_alone(step: str) -> None:
    site, job = _drill()
    site.machine(LIAR).instance_id = "i-0004"
    site.provider._shown["i-0004"] = replace(site.provider._shown["i-0004"], address=site.slurm.address(OTHER))
    action = replace(AIMED[step](site, job), instance_id="i-0004")  # type: ignore[arg-type, unused-ignore]
    outcome = _carry_out(site, action)
    assert (outcome.state, outcome.result.get("doubt")) == (IntentState.REFUSED, "address"), outcome
    assert site.provider.cycled == {}
    _untouched(site, job)


def test_a_dead_node_is_not_taken_for_off_since_the_machine_that_it_claimed_is() -> None:
    """The fence: an id that the provider does not know, or shows as terminated, proves nothing while another machine has the name."""
    site, _ = _drill()
    for claimed in ("i-9999", "i-0003"):
        site.provider._shown["i-0003"] = replace(site.provider._shown["i-0003"], state="terminated")
        outcome = _carry_out(site, Terminate(claimed, LIAR, fence=True))
        assert outcome.state is not IntentState.DONE, outcome
        assert site.provider.terminated == {}
