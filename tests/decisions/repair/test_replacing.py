"""The ladder and the replacement of a machine, from the first try to the last."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from holdfast.model.actions.action import Launch
from holdfast.model.errors import Rejected
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.machines import Machine
from support.simulated.provider import NOTHING
from support.simulated.site import POLICY
from support.simulated.slurm import SimNode

_S = IncidentState


def _mended(site: Site, node: str = "n1", seconds: float = 200) -> Incident:
    site.run(seconds, step_s=5)
    return site.incident(node)


def test_launch_validate_terminate_assign_adopt_undrain_in_this_order() -> None:
    site = Site(2, spares=("n2",))
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    site.fault("n1")
    site.run(200)
    incident = site.incident("n1")
    assert incident.state is _S.CLOSED
    order = ["Drain", "Requeue", "Launch", "Terminate", "Assign", "AdoptSpare", "Undrain"]
    assert [k for k in site.kinds(incident.id) if k in order] == order
    assert job.nodes == ("n2",)
    record = site.book.nodes["n1"]
    assert (record.instance_id, "GPU-i-0003-0" in record.gpu_uuids) == ("i-0003", True)
    assert site.slurm.instance_ids == {"n1": "i-0003"}


def test_a_node_is_in_service_whether_slurm_records_its_instance_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(2)

    def refuses(node: str, instance_id: str) -> None:
        raise Rejected(f"{node}: Invalid user id ({instance_id})")

    monkeypatch.setattr(site.slurm, "set_instance_id", refuses)
    site.fault("n1")
    assert _mended(site).state is _S.CLOSED
    assert not site.slurm.nodes["n1"].drain


@pytest.mark.parametrize("can", [NOTHING])
def test_without_a_provider_a_human_is_told(can: Any) -> None:
    site = Site(2, can=can)
    site.fault("n1")
    assert _mended(site).state is _S.AWAITING_HUMAN
    assert site.notices.sent == [
        "n1 needs an operator: replace is called for, and provider 'none' cannot replace a machine"
    ]
    assert site.slurm.nodes["n1"].drain
    site.slurm.operator_resumes("n1")
    site.run(2)
    assert site.incident("n1").state is _S.CLOSED


def test_evidence_for_a_human_is_not_replaced() -> None:
    site = Site(2)
    site.fault("n1", remedy=Remedy.HUMAN)
    assert _mended(site).state is _S.AWAITING_HUMAN
    assert site.provider.tokens == {}


def test_the_third_fault_in_seven_days_calls_a_human() -> None:
    site = Site(2)
    for n in range(3):
        site.fault("n1", code=f"{n}")
        assert _mended(site, seconds=700).state is (_S.AWAITING_HUMAN if n == 2 else _S.CLOSED)
    assert "third hardware fault" in site.notices.sent[-1]
    assert len(site.provider.tokens) == 2


def test_what_cleared_is_validated_and_released_in_place() -> None:
    site = Site(1)
    job = site.slurm.submit(1, exclusive=True)
    site.run(1)
    machine = site.machine("n1")
    site.fault("n1", severity=Severity.DEGRADED, sticky=True)
    site.run(3)
    site.agents.clear(machine, "gpu.xid", machine.gpu_uuids[3])
    site.slurm.finish(job, "COMPLETED")
    assert _mended(site).state is _S.CLOSED
    assert (site.provider.tokens, site.slurm.nodes["n1"].drain) == ({}, False)


def test_a_fresh_fault_during_the_quiet_time_keeps_the_node_out() -> None:
    site = Site(1)
    machine = site.machine("n1")
    job = site.slurm.submit(1, exclusive=True)
    site.fault("n1", severity=Severity.DEGRADED, sticky=True)
    site.run(3)
    site.agents.clear(machine, "gpu.xid", machine.gpu_uuids[3])
    site.slurm.finish(job, "COMPLETED")
    site.run(20)
    assert site.incident("n1").state is _S.VALIDATING
    site.fault("n1", minor=5)
    site.run(3)
    assert site.incident("n1").state is _S.REPAIRING
    assert _mended(site).state is _S.CLOSED
    assert site.machine("n1") is not machine


@pytest.mark.parametrize("flaw", ["launches_broken", "same_hardware"])
def test_a_machine_that_fails_its_validation_goes_and_the_next_comes(flaw: str) -> None:
    site = Site(2)
    setattr(site.provider, flaw, True)
    site.fault("n1")
    site.run(50)
    assert site.incident("n1").repair_attempt == 1
    setattr(site.provider, flaw, False)
    site.run(10)
    assert site.provider.terminated == {"i-0003": 1}, "the failed one goes, the old one stays until a good one is there"
    # The second was launched at once, so it is as bad; the third is good.
    assert _mended(site, seconds=300).state is _S.CLOSED
    assert site.provider.candidates() == set()
    assert site.provider.live() == {site.machine("n1").instance_id, "i-0002"}


def test_attempts_exhausted_call_a_human_and_leave_no_machine() -> None:
    site = Site(2)
    site.provider.launches_broken = True
    site.fault("n1")
    assert _mended(site, seconds=600).state is _S.AWAITING_HUMAN
    assert len(site.provider.tokens) == POLICY.repair.attempts
    assert site.provider.candidates() == set()
    assert len([n for n in site.notices.sent if "needs an operator" in n]) == 1
    site.provider.launches_broken = False
    site.operate("retry", site.incident("n1").id)
    assert _mended(site).state is _S.CLOSED


def test_a_lack_of_capacity_is_waited_out_and_told_once() -> None:
    site = Site(2)
    site.provider.capacity = False
    site.fault("n1")
    assert _mended(site, seconds=3600).state is _S.REPAIRING
    assert len([n for n in site.notices.sent if "no machine yet" in n]) == 1
    assert site.incident("n1").repair_attempt == 0
    asked = [intent.planned_at for intent in site.book.intents.values() if isinstance(intent.action, Launch)]
    pauses_s = [(late - early).total_seconds() for early, late in pairwise(sorted(asked))]
    wanted_s = [30, 60, 120, 240, 480, 900, 900]
    assert all(wanted <= took < wanted + 20 for wanted, took in zip(wanted_s, pauses_s, strict=False)), pauses_s
    assert len(pauses_s) >= 6
    site.provider.capacity = True
    assert _mended(site, seconds=1200).state is _S.CLOSED
    assert len(site.provider.tokens) == 1


def test_a_machine_that_is_never_heard_is_given_up() -> None:
    site = Site(2)
    site.provider.boot_s = 1e9
    site.fault("n1")
    site.run(POLICY.repair.launch_timeout_s + 60, step_s=10)
    site.provider.boot_s = 40
    assert site.incident("n1").repair_attempt == 1
    site.run(20)
    assert site.provider.terminated == {"i-0003": 1}


def test_the_cap_on_terminations_holds() -> None:
    policy = replace(POLICY, repair=replace(POLICY.repair, terminations_per_hour=2, budget_cluster_share=1.0))
    site = Site(8, policy=policy)
    for n in range(1, 4):
        site.fault(f"n{n}")
        site.run(1)
    site.run(600, step_s=5)
    assert sum(site.provider.terminated.values()) == 2
    assert "budget 'ended' is spent: 2 machines within an hour, at most 2" in site.incident("n3").note
    site.run(3700, step_s=10)
    assert sum(site.provider.terminated.values()) == 3
    assert site.incident("n3").state is _S.CLOSED


@pytest.mark.parametrize("kind", ["Launch", "Terminate", "Assign", "AdoptSpare", "Undrain"])
@pytest.mark.parametrize("moment", ["planned", "started", "acted", "finished"])
def test_a_replacement_survives_the_actors_death_at_every_boundary(kind: str, moment: str) -> None:
    site = Site(2, spares=("n1",))
    site.kill_at = (kind, moment)
    site.fault("n1")
    assert _mended(site, seconds=300).state is _S.CLOSED
    assert site.killed == 1
    assert len(site.provider.tokens) == 1
    assert site.provider.terminated == {"i-0001": 1}
    assert site.provider.candidates() == set()
    assert site.slurm.reservations["holdfast-spares"].nodes == ("n1",)


def test_a_warning_is_watched_and_closes() -> None:
    site = Site(1)
    site.fault("n1", severity=Severity.WARNING)
    site.run(3500, step_s=10)
    assert site.incident("n1").state is _S.WATCHING
    site.run(200, step_s=10)
    assert site.incident("n1").state is _S.CLOSED
    assert site.slurm.calls == []


def test_a_watched_sticky_finding_stays_until_it_clears() -> None:
    site = Site(1)
    machine = site.machine("n1")
    site.fault("n1", severity=Severity.WARNING, sticky=True)
    site.run(4000, step_s=20)
    assert site.incident("n1").state is _S.WATCHING
    site.agents.clear(machine, "gpu.xid", machine.gpu_uuids[3])
    site.run(2)
    assert site.incident("n1").state is _S.CLOSED


def test_a_watched_incident_ends_with_its_machine() -> None:
    site = Site(2)
    site.run(2)
    site.fault("n1", minor=1, severity=Severity.WARNING, remedy=Remedy.NONE, code="92", sticky=True)
    site.run(site.policy.join_window_s + 60, step_s=10)
    site.fault("n1", minor=3)
    site.run(600, step_s=2)
    assert [i.state for i in site.store.incidents(node="n1")] == [IncidentState.CLOSED] * 2
    assert any("no longer serves" in i.note for i in site.store.incidents(node="n1"))


@pytest.mark.parametrize("announced", [False, True])
def test_a_successor_whose_slurmd_is_there_before_the_old_machine_is_ended_returns(
    monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    """A spot machine goes before its replacement is validated, which has the node's name by then: no other slurmd will ever start."""
    site = Site(2)
    plain, since = site._register, list[datetime]()

    def register(node: SimNode, machine: Machine) -> None:
        plain(node, machine)
        if node.name == "n1" and site.provider.tokens:
            since.append(site.clock.now().replace(microsecond=0) + timedelta(seconds=2))
            node.slurmd_started = since[0]

    monkeypatch.setattr(site, "_register", register)
    if announced:
        goes = {"notice": "interruption", "goes_at": (site.clock.now() + timedelta(seconds=1)).isoformat()}
        site.fault("n1", check="cloud.interruption", component="node", code="terminate", minor=None, evidence=goes)
        assert _mended(site).state is _S.CLOSED, site.story()
    else:
        site.fault("n1")
        assert _mended(site).state is not _S.CLOSED, "it may be the old machine's"
        assert _mended(site, seconds=1000).state is _S.CLOSED
    assert not site.slurm.nodes["n1"].drain
