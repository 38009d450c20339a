"""What a machine must show before it serves: its checks, a deep check, and its network where several are validated at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.policies.policy import Policy
from holdfast_checks.result import Remedy, Severity
from support.simulated import Machine, Site
from support.simulated.provider import FULL
from support.simulated.site import NO_BUDGET, POLICY

pytestmark = pytest.mark.slow
_S = IncidentState
IN_PLACE = replace(FULL, launch_first=False, replace_in_place=True)
REBOOT = {"severity": Severity.DEGRADED, "remedy": Remedy.REBOOT, "minor": None, "check": "host.x", "code": "x"}


def with_repair(**changed: object) -> Policy:
    return replace(POLICY, repair=replace(POLICY.repair, **changed))  # type: ignore[arg-type]


def orders(site: Site, verb: Verb, incident: Incident | None = None) -> list[SendOrder]:
    found = site.store.intents(incident_id=incident.id if incident is not None else None)
    return [i.action for i in found if isinstance(i.action, SendOrder) and i.action.verb is verb]


def machines_fail_deep(site: Site, *, first: int) -> None:
    """This many of the machines that are launched for n1 fail the deep check; the existing ones do not."""
    known = set(site.machines)

    def spoil(machine: Machine) -> None:
        fresh = [i for i in sorted(site.machines) if i not in known]
        machine.deep_ok = machine.instance_id not in fresh[:first]

    check = site.agents.probes.check

    def checked(machine: Machine, order: object) -> object:
        spoil(machine)
        return check(machine, order)  # type: ignore[arg-type]

    site.agents.probes.check = checked  # type: ignore[method-assign, assignment]


def test_a_deep_check_comes_before_service() -> None:
    site = Site(2)
    site.fault("n1")
    site.run(400, step_s=2)
    incident = site.incident("n1")
    assert incident.state is _S.CLOSED
    (deep,) = orders(site, Verb.CHECK, incident)
    assert tuple(deep.args["checks"]) == POLICY.repair.deep_checks
    assert deep.args["serves"] is False, "a machine launched next to the old one has no slurmd"
    assert orders(site, Verb.PROBE_PAIR) == []


def test_a_deep_check_that_fails_after_a_replacement_climbs_the_ladder() -> None:
    site = Site(2)
    machines_fail_deep(site, first=1)
    site.fault("n1")
    site.run(900, step_s=3)
    incident = site.incident("n1")
    failed = [e.text for e in site.store.events(incident_id=incident.id) if "deep check failed" in e.text]
    assert failed
    assert incident.state is _S.CLOSED
    assert incident.repair_attempt == 1
    serving = site.machine("n1").instance_id
    assert [o.instance_id for o in orders(site, Verb.CHECK, incident)][-1] == serving
    assert sum(m.powered for m in site.machines.values()) == 2, "the one that failed is given back"


def test_machines_that_never_pass_end_at_a_human() -> None:
    site = Site(2)
    machines_fail_deep(site, first=99)
    site.fault("n1")
    site.run(3000, step_s=5)
    incident = site.incident("n1")
    assert incident.state is _S.AWAITING_HUMAN
    assert site.slurm.nodes["n1"].drain
    assert len([text for text in site.notices.sent if "needs an operator" in text]) == 1
    validated = site.store.events(incident_id=incident.id, kinds=(EventKind.NODE_VALIDATED,))
    assert validated == ()


def test_without_deep_checks_none_is_asked_for() -> None:
    site = Site(2, policy=with_repair(deep_checks=()))
    site.fault("n1")
    site.run(400, step_s=2)
    assert site.incident("n1").state is _S.CLOSED
    assert orders(site, Verb.CHECK) == []


def test_two_nodes_at_once_are_probed_and_the_bad_one_does_not_return() -> None:
    site = Site(5, can=IN_PLACE, policy=NO_BUDGET)
    site.machine("n1").path_broken = True
    for name in ("n1", "n2"):
        site.fault(name, **REBOOT)
    site.run(400, step_s=2)
    assert site.incident("n2").state is _S.CLOSED
    assert not site.slurm.nodes["n2"].drain
    failed = [e.text for e in site.store.events(incident_id=site.incident("n1").id) if "pair probe failed" in e.text]
    assert failed
    assert site.incident("n1").repair_attempt >= 1
    assert {node for pair in site.agents.probes.pairs for node in pair} <= {"n1", "n2", "n3", "n4", "n5"}
    assert {node for _, node, _ in site.slurm.drained} == {"n1", "n2"}


def test_a_lying_partner_fails_no_validation() -> None:
    """n2 and n3 spoil each probe with n1; another node is asked."""
    site = Site(6, can=IN_PLACE, policy=NO_BUDGET)
    for liar in ("n2", "n3"):
        site.machine(liar).spoils_probes_with = {"n1"}
    for name in ("n1", "n2"):
        site.fault(name, **REBOOT)
    site.run(400, step_s=2)
    assert {site.incident(n).state for n in ("n1", "n2")} == {_S.CLOSED}
    assert site.incident("n1").repair_attempt == 0


def test_a_node_that_fails_with_one_partner_alone_is_not_repaired_again_and_an_operator_is_told() -> None:
    site = Site(2, can=IN_PLACE, policy=NO_BUDGET)
    site.machine("n2").spoils_probes_with = {"n1"}
    for name in ("n1", "n2"):
        site.fault(name, **REBOOT)
    site.run(3000, step_s=5)
    steps = [k for k in site.kinds(site.incident("n1").id) if k in ("Reboot", "StopStart", "Replace")]
    assert steps == ["Reboot"]
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    told = [
        f"{subject}\n{body}" for subject, body in site.notices.bodies
    ]  # several in one message, where they come together
    assert len([text for text in told if "n1 needs an operator" in text and "n2 alone" in text]) == 1


def test_one_node_alone_is_not_probed() -> None:
    site = Site(4, can=IN_PLACE)
    site.fault("n1", **REBOOT)
    site.run(400, step_s=2)
    assert site.incident("n1").state is _S.CLOSED
    assert site.agents.probes.pairs == []


def test_machines_launched_beside_the_old_ones_connect_to_nodes_in_service() -> None:
    site = Site(5, policy=NO_BUDGET)
    for name in ("n1", "n2"):
        site.fault(name)
    site.run(400, step_s=2)
    assert {site.incident(n).state for n in ("n1", "n2")} == {_S.CLOSED}
    sides = orders(site, Verb.PROBE_PAIR)
    connecting = {o.node for o in sides if o.args["role"] == "connect"}
    listening = {o.node for o in sides if o.args["role"] == "listen"}
    assert connecting == {"n1", "n2"}
    assert listening <= {"n3", "n4", "n5"}
    assert {o.args["serves"] for o in sides if o.node in ("n1", "n2")} == {False}


def test_two_nodes_without_anybody_else_still_come_back() -> None:
    site = Site(2, can=IN_PLACE, policy=NO_BUDGET)
    for name in ("n1", "n2"):
        site.fault(name, **REBOOT)
    site.run(400, step_s=2)
    assert {site.incident(n).state for n in ("n1", "n2")} == {_S.CLOSED}
    assert site.agents.probes.pairs == [("n1", "n2")]


def test_a_node_that_the_network_was_the_fault_of_is_probed_again_before_it_serves() -> None:
    site = Site(6, can=IN_PLACE)
    job = site.slurm.submit(4, comment="holdfast", exclusive=True)
    site.run(2)
    site.machine("n3").path_broken = True
    site.slurm.finish(job, "FAILED")
    site.run(60)
    incident = site.incident("n3")
    assert incident.check == "probe.pair"
    site.slurm.finish(job, "COMPLETED")  # it had started again, off n3
    before = len(site.agents.probes.pairs)
    site.run(600, step_s=2)
    again = site.agents.probes.pairs[before:]
    assert [pair for pair in again if "n3" in pair]
    assert site.incident("n3").repair_attempt >= 1, "a reboot did not help"
    assert {node for _, node, _ in site.slurm.drained} == {"n3"}


def test_new_hardware_serves_where_nobody_is_free_to_probe_it() -> None:
    """A path that was not probed is no fault: one machine after the other would be replaced for it."""
    site = Site(5, can=IN_PLACE)
    job = site.slurm.submit(4, comment="holdfast", exclusive=True)
    site.run(2)
    site.machine("n3").path_broken = True
    site.slurm.finish(job, "FAILED")
    site.run(60)
    assert job.state == "RUNNING"
    site.run(3000, step_s=10)
    incident = site.incident("n3")
    assert (incident.state, incident.rung) == (IncidentState.CLOSED, "stop_start")


def test_an_agent_that_does_not_know_the_order_keeps_no_machine_out() -> None:
    site = Site(2)

    def old(_machine: Machine, order: object) -> object:
        from holdfast.model.agents.report import OrderOutcome  # noqa: PLC0415

        said = {"refused": "unsupported_verb"}
        return OrderOutcome(order.key, False, "refused: unsupported verb 'run_checks'", site.clock.now(), said)  # type: ignore[attr-defined]

    site.agents.probes.check = old  # type: ignore[method-assign, assignment]
    site.fault("n1")
    site.run(400, step_s=2)
    assert site.incident("n1").state is _S.CLOSED
