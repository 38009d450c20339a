"""The rungs of the ladder: where a repair starts, how it climbs, what it remembers, and what each rung has to prove."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from holdfast.decisions.repair.ladder import LADDER, Rung
from holdfast.model.actions.action import IntentState, Launch, Reboot
from holdfast.model.errors import NotPermitted
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.machine import ProviderCan
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE, NOTHING
from support.simulated.site import POLICY

_S = IncidentState
REBOOTS = replace(NOTHING, reboot=True)
CYCLES = replace(REBOOTS, stop_start=True)


def _run(site: Site, seconds: float = 300, node: str = "n1") -> Incident:
    site.run(seconds, step_s=5)
    return site.incident(node)


def _rungs(site: Site) -> list[str]:
    """Kinds of the steps that repair, in order."""
    repairing = {"Launch", "Replace", "Reboot", "StopStart"}
    return [k for k in site.kinds() if k in repairing]


@pytest.mark.parametrize(
    ("remedy", "can", "rung"),
    [
        (Remedy.RESET_GPU, FULL, Rung.RESET_GPU),
        (Remedy.REBOOT, FULL, Rung.REBOOT),
        (Remedy.REBOOT, IN_PLACE, Rung.REBOOT),
        (Remedy.STOP_START, FULL, Rung.STOP_START),
        (Remedy.STOP_START, replace(FULL, stop_start=False), Rung.REPLACE),
        (Remedy.REBOOT, replace(FULL, reboot=False), Rung.STOP_START),
        (Remedy.REPLACE, FULL, Rung.REPLACE),
        (Remedy.REPLACE, IN_PLACE, Rung.REPLACE),
        (Remedy.REBOOT, REBOOTS, Rung.REBOOT),
        (Remedy.REPLACE, REBOOTS, Rung.HUMAN),
        (Remedy.REPLACE, NOTHING, Rung.HUMAN),
        (Remedy.STOP_START, REBOOTS, Rung.HUMAN),
    ],
)
def test_the_repair_begins_where_the_evidence_says_or_above(remedy: Remedy, can: ProviderCan, rung: Rung) -> None:
    site = Site(2, can=can)
    site.fault("n1", remedy=remedy)
    site.run(4)
    incident = site.incident("n1")
    if rung is Rung.HUMAN:
        assert (incident.state, incident.rung) == (_S.AWAITING_HUMAN, "")
        return
    assert (incident.state, incident.rung) == (_S.REPAIRING, rung.value) or rung is Rung.RESET_GPU
    assert _run(site).state is _S.CLOSED
    assert site.incident("n1").rung == rung.value


def test_a_reboot_keeps_the_machine_and_a_new_boot_proves_it() -> None:
    site = Site(2)
    before = site.machine("n1").boot_id
    site.fault("n1", remedy=Remedy.REBOOT)
    site.run(20)
    assert site.incident("n1").state is _S.REPAIRING, "the old boot's agent proves nothing"
    assert _run(site).state is _S.CLOSED
    assert site.machine("n1").boot_id != before
    assert (_rungs(site), site.provider.tokens, site.slurm.nodes["n1"].drain) == (["Reboot"], {}, False)
    assert site.book.nodes["n1"].boot_id == site.machine("n1").boot_id


def test_a_reboot_goes_through_slurm_where_it_can_and_the_drain_stays_ours() -> None:
    site = Site(2, can=REBOOTS)
    site.slurm.reboot_program = "/usr/sbin/reboot"
    site.run(30)
    site.fault("n1", remedy=Remedy.REBOOT)
    site.run(10)
    assert ("reboot", "n1") in site.slurm.calls
    assert site.slurm.nodes["n1"].reason.endswith("reboot issued")
    assert site.provider.cycled == {}
    assert _run(site).state is _S.CLOSED
    assert not site.slurm.nodes["n1"].drain
    assert not any("took the node over" in said for said in site.notices.sent)


def test_every_reading_of_our_own_reboot_shows_our_own_drain() -> None:
    """slurmctld writes its own reason, in SlurmUser's name, a moment after it has accepted the order."""
    site = Site(2, can=REBOOTS)
    site.slurm.reboot_program = "/usr/sbin/reboot"
    site.run(30)
    site.fault("n1", remedy=Remedy.REBOOT)
    for _ in range(100):
        site.run(0.2, step_s=0.2)
        assert site.incident("n1").state is not _S.AWAITING_HUMAN, site.story()
    assert _run(site).state is _S.CLOSED
    assert site.slurm.calls.count(("reboot", "n1")) == 1


def test_a_second_reboot_of_one_drain_is_ours_as_well() -> None:
    """On 22.05 slurmctld writes only its own text over a reason that has it already."""
    site = Site(2, can=REBOOTS)
    site.slurm.reboot_program = "/usr/sbin/reboot"
    site.run(30)
    site.provider.reboots_help = False
    site.fault("n1", remedy=Remedy.REBOOT)
    site.run(400, step_s=2)
    incident = site.incident("n1")
    assert incident.state is _S.AWAITING_HUMAN
    site.provider.reboots_help = True
    site.operate("retry", incident.id)
    site.run(400, step_s=2)
    assert site.slurm.calls.count(("reboot", "n1")) == 2, site.story()
    assert site.incident("n1").state is _S.CLOSED, site.story()


def test_words_like_slurms_on_a_node_that_nobody_rebooted_are_not_ours() -> None:
    site = Site(2, can=NOTHING)
    site.fault("n1")
    site.run(5)
    site.slurm.nodes["n1"].reason += " : reboot issued"
    mark = site.book.marks["n1"]
    site.run(5)
    assert site.book.marks["n1"] == mark


@pytest.mark.parametrize("can", [FULL, IN_PLACE])
def test_what_a_rung_does_not_mend_climbs_to_the_next(can: ProviderCan) -> None:
    site = Site(2, can=can)
    site.provider.reboots_help = False
    site.fault("n1", remedy=Remedy.REBOOT)
    assert _run(site, 600).state is _S.CLOSED
    assert _rungs(site) == ["Reboot", "StopStart", "Launch" if can.launch_first else "Replace"]
    assert site.incident("n1").repair_attempt == 2


def test_a_machine_that_does_not_come_back_from_its_reboot_is_replaced() -> None:
    site = Site(2, can=replace(FULL, stop_start=False))
    site.provider.boot_s = 10**6
    site.fault("n1", remedy=Remedy.REBOOT)
    site.run(30)
    site.provider.boot_s = 40.0
    limit_s = POLICY.repair.reboot_timeout_s
    assert _run(site, limit_s - 60).state is _S.REPAIRING
    assert _run(site, 300).state is _S.CLOSED
    assert _rungs(site) == ["Reboot", "Launch"]


def test_a_second_fault_within_a_day_begins_one_rung_higher() -> None:
    site = Site(2)
    for expected in (Rung.REBOOT, Rung.STOP_START):
        site.fault("n1", remedy=Remedy.REBOOT, code=expected.value)
        assert _run(site).state is _S.CLOSED
        assert site.incident("n1").rung == expected.value
        site.run(600, step_s=10)


def test_the_climb_does_not_depend_on_the_window_of_the_third_fault() -> None:
    site = Site(2, policy=replace(POLICY, repair=replace(POLICY.repair, third_fault_window_s=60)))
    for expected in (Rung.REBOOT, Rung.STOP_START):
        site.fault("n1", remedy=Remedy.REBOOT, code=expected.value)
        assert _run(site).state is _S.CLOSED
        assert site.incident("n1").rung == expected.value
        site.run(600, step_s=10)


def test_after_a_day_the_ladder_begins_anew() -> None:
    site = Site(2)
    for day in range(2):
        site.fault("n1", remedy=Remedy.REBOOT, code=f"{day}")
        assert _run(site).state is _S.CLOSED
        assert site.incident("n1").rung == Rung.REBOOT.value
        site.run(POLICY.repair.climb_window_s, step_s=600)


def test_the_same_gpus_after_a_stop_and_start_are_the_same_hardware() -> None:
    site = Site(2)
    site.provider.same_hardware = True
    site.fault("n1", remedy=Remedy.STOP_START)
    site.run(100)
    assert (site.incident("n1").rung, site.incident("n1").state) == ("replace", _S.REPAIRING)
    assert "same hardware" in site.incident("n1").note
    site.provider.same_hardware = False
    assert _run(site, 400).state is _S.CLOSED


def test_in_place_the_new_machine_takes_the_name_by_itself() -> None:
    site = Site(2, spares=("n2",), can=IN_PLACE)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    site.fault("n1")
    incident = _run(site)
    assert incident.state is _S.CLOSED
    order = ["Drain", "Requeue", "Replace", "AdoptSpare", "Undrain"]
    assert [k for k in site.kinds(incident.id) if k in order] == order
    assert not {"Launch", "Terminate", "Assign"} & set(site.kinds(incident.id))
    record = site.book.nodes["n1"]
    assert (record.instance_id, incident.machine, job.nodes) == ("i-0003", "i-0003", ("n2",))
    assert "GPU-i-0003-0" in record.gpu_uuids


@pytest.mark.parametrize("away", [False, True])
def test_in_place_a_machine_that_was_exchanged_while_it_was_dead_is_not_exchanged_again(away: bool) -> None:
    """Its slurmd registers before the order is planned, its agent only after: the new machine's kernel answers, so no step is taken."""
    site = Site(3, can=IN_PLACE)
    site.operate("pause")
    site.machine("n1").powered = False
    site.run(60, step_s=5)
    assert site.incident("n1").dead
    site.provider.exchange("n1")
    site.machine("n1").agent_up = False
    site.run(60, step_s=5)
    site.provider.away = away
    site.operate("resume")
    site.run(20)
    site.machine("n1").agent_up = True
    site.run(1000, step_s=5)  # Holdfast repaired nothing: it is quiet for longer first
    assert "Replace" not in site.kinds()
    assert site.incident("n1").state is _S.CLOSED, site.story()
    assert not site.slurm.nodes["n1"].drain
    assert site.machine("n1").instance_id == "i-0004"


def test_in_place_the_same_hardware_climbs_to_a_human() -> None:
    site = Site(2, can=IN_PLACE)
    site.provider.same_hardware = True
    site.fault("n1")
    incident = _run(site, 900)
    assert incident.state is _S.AWAITING_HUMAN
    assert "same hardware" in incident.note
    assert _rungs(site) == ["Replace"] * POLICY.repair.attempts
    assert len([s for s in site.notices.sent if "needs an operator" in s]) == 1


def test_in_place_a_lack_of_capacity_is_waited_out() -> None:
    site = Site(2, can=IN_PLACE)
    site.provider.capacity = False
    site.fault("n1")
    assert _run(site, 600).state is _S.REPAIRING
    assert site.notices.sent == ["n1: no machine yet"]
    site.provider.capacity = True
    assert _run(site, 1000).state is _S.CLOSED


def test_a_provider_that_repairs_by_itself_is_watched() -> None:
    site = Site(2, can=IN_PLACE)
    site.provider.itself = True
    site.run(30)
    site.fault("n1")
    site.run(60)
    assert (site.incident("n1").state, site.incident("n1").rung) == (_S.REPAIRING, "watch")
    site.provider.exchange("n1")
    assert _run(site).state is _S.CLOSED
    assert _rungs(site) == []
    assert site.book.nodes["n1"].instance_id == "i-0003"


def test_watching_ends_at_a_human_when_nothing_comes_of_it() -> None:
    site = Site(2, can=IN_PLACE)
    site.provider.itself = True
    site.run(30)
    site.fault("n1")
    assert _run(site, POLICY.repair.watch_timeout_s - 100).state is _S.REPAIRING
    incident = _run(site, 400)
    assert (incident.state, _rungs(site)) == (_S.AWAITING_HUMAN, [])


def test_a_provider_that_stops_repairing_by_itself_is_asked() -> None:
    site = Site(2, can=IN_PLACE)
    site.provider.itself = True
    site.run(30)
    site.fault("n1")
    site.run(60)
    site.provider.itself = False
    assert _run(site).state is _S.CLOSED
    assert _rungs(site) == ["Replace"]


def test_nothing_is_chosen_before_the_provider_was_looked_at() -> None:
    site = Site(2)
    site.store.see_provider(replace(site.watch._seen, can=NOTHING))  # type: ignore[type-var, arg-type]
    site.watch.look()
    assert site.book.provider is not None
    assert site.book.provider.can == FULL


def test_five_machines_of_a_group_in_a_week_call_a_human() -> None:
    repair = replace(
        POLICY.repair,
        replacements_per_group=2,
        terminations_per_hour=99,
        terminations_per_day=99,
        budget_cluster_share=1.0,
    )
    site = Site(6, policy=replace(POLICY, repair=repair))
    for n in (1, 2, 3):
        site.fault(f"n{n}")
        expected = _S.CLOSED if n < 3 else _S.AWAITING_HUMAN
        assert _run(site, 300, f"n{n}").state is expected
        site.run(700, step_s=10)
    assert "look for one cause" in site.incident("n3").note


def test_launches_that_were_withheld_leave_a_group_its_machines() -> None:
    """Two launches that a budget held back count for nothing: the next fault of the group gets its machine."""
    site = Site(6, policy=replace(POLICY, repair=replace(POLICY.repair, replacements_per_group=2, launches_per_hour=0)))
    for n in (1, 2):
        site.fault(f"n{n}")
        site.run(60)
        site.operate("close", site.incident(f"n{n}").id)
    withheld = [i for i in site.store.intents() if isinstance(i.action, Launch)]
    assert {i.state for i in withheld} == {IntentState.WITHHELD}
    site.policy = replace(POLICY, repair=replace(POLICY.repair, replacements_per_group=2))
    site.start_controller()
    site.run(31)
    site.fault("n3")
    assert _run(site, 300, "n3").state is _S.CLOSED


def test_one_node_that_is_replaced_again_and_again_leaves_its_group_machines() -> None:
    repair = replace(POLICY.repair, replacements_per_group=2, budget_cluster_share=1.0)
    site = Site(6, policy=replace(POLICY, repair=repair))
    for _ in range(2):
        site.fault("n1", severity=Severity.DEGRADED)
        assert _run(site, 300).state is _S.CLOSED
        site.run(700, step_s=10)
    site.fault("n3")
    assert _run(site, 300, "n3").state is _S.CLOSED


def test_rungs_may_be_switched_off() -> None:
    repair = replace(POLICY.repair, rungs=("replace",))
    site = Site(2, policy=replace(POLICY, repair=repair))
    site.fault("n1", remedy=Remedy.RESET_GPU)
    assert _run(site).rung == Rung.REPLACE.value


def test_a_dead_node_that_nothing_can_replace_is_power_cycled() -> None:
    site = Site(4, can=replace(CYCLES, status=True, stop_start=False))
    site.machine("n1").powered = False
    incident = _run(site, 600)
    assert (incident.dead, incident.rung, incident.state) == (True, Rung.REBOOT.value, _S.CLOSED)


def test_the_provider_hears_of_a_hardware_fault_once() -> None:
    site = Site(2, can=replace(FULL, report_fault=True))
    site.fault("n1")
    site.fault("n2", remedy=Remedy.REBOOT)
    _run(site, 400)
    assert site.provider.reported == ["i-0001"]


def test_a_provider_that_takes_no_word_is_nobodys_trouble() -> None:
    site = Site(2, can=replace(FULL, report_fault=True))

    def refuse(instance_id: str, *, since: datetime, text: str) -> None:
        raise NotPermitted("not authorized to ReportInstanceStatus")

    site.provider.report_fault = refuse  # type: ignore[method-assign]
    site.fault("n1")
    assert _run(site).state is _S.CLOSED
    assert (site.kinds().count("ReportFault"), site.notices.sent) == (1, [])


def test_no_rung_is_done_while_a_job_holds_the_node_or_a_human_has_it() -> None:
    site = Site(2, can=REBOOTS)
    site.slurm.submit(1, exclusive=True)
    site.run(2)
    site.fault("n1", remedy=Remedy.REBOOT, severity=Severity.DEGRADED)
    site.run(60)
    assert site.incident("n1").state is _S.CONTAINED
    assert site.provider.cycled == {}


def test_an_order_whose_answer_was_lost_is_not_given_twice() -> None:
    """The machine is rebooted once: what its agent reports counts, not what was answered."""
    site = Site(2)
    asked: list[str] = []
    real = site.provider.reboot

    def reboot(instance_id: str, *, incident: str = "", token: str = "") -> None:
        asked.append(token)
        real(instance_id, incident=incident, token=token)
        site.kill_at = None

    site.provider.reboot = reboot  # type: ignore[method-assign]
    site.kill_at = ("Reboot", "acted")
    site.fault("n1", remedy=Remedy.REBOOT)
    assert _run(site).state is _S.CLOSED
    assert site.machine("n1").boot == 2
    assert len(set(asked)) == 1
    intents = [i for i in site.store.intents() if isinstance(i.action, Reboot)]
    assert [i.state for i in intents] == [IntentState.DONE]


def test_the_ladder_is_in_rising_order() -> None:
    assert [r.value for r in LADDER] == list(POLICY.repair.rungs)
