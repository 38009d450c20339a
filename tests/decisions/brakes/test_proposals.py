"""Mode propose on the simulated site: nothing is done without an accept, an accepted step once, a dismissed one never."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.model.errors import NotFound, Rejected
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.operators.proposals import ProposalRecord, ProposalState, ProposePolicy, StepKind, proposal_id
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import Mode, Policy
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.site import POLICY

S = ProposalState
PROPOSE = replace(POLICY, mode=Mode.PROPOSE)


def proposing(*kinds: str, **changed: object) -> Policy:
    """Mode propose, in which only these kinds of steps wait."""
    return replace(PROPOSE, propose=replace(ProposePolicy(), steps=kinds, **changed))  # type: ignore[arg-type]


def proposals(site: Site, node: str = "n1", *states: ProposalState) -> list[ProposalRecord]:
    found = site.incident(node).proposals
    return [p for p in found if not states or p.status in states]


def only(site: Site, node: str = "n1") -> ProposalRecord:
    """The one open proposal of a node's incident."""
    (found,) = proposals(site, node, S.OPEN)
    return found


def say(site: Site, verb: str, record: ProposalRecord, node: str = "n1", for_s: float | None = 4 * 3600) -> None:
    site.operate(verb, proposal_id(site.incident(node).id, record.number), for_s=for_s)


def touched(site: Site) -> set[str]:
    """What was done outside; empty: nothing."""
    done = {f"drain {node.name}" for node in site.slurm.nodes.values() if node.drain}
    done |= {f"stop {job.job_id}" for job in site.slurm.jobs.values() if job.restarts}
    return done | {f"machine {each}" for each in (*site.provider.terminated, *site.provider.cycled)}


def test_nothing_is_done_and_the_proposal_says_what_would_be() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(120)
    record = only(site)
    assert (record.question.kind, record.node, record.what) == (StepKind.DRAIN, "n1", "drain n1 (machine i-0001)")
    assert record.reason.startswith("fatal: gpu.xid 79")
    assert record.until - record.asked_at == timedelta(hours=24)
    assert touched(site) == set()
    assert site.incident("n1").state is IncidentState.OPEN
    assert "waits for an operator's accept" in site.incident("n1").note
    (notice,) = [body for subject, body in site.notices.bodies if "accept or dismiss" in subject]
    name = proposal_id(site.incident("n1").id, 1)
    for verb in ("accept", "dismiss", "snooze"):
        assert f"holdfast {verb} {name}" in notice


def test_an_accepted_step_is_done_once_and_the_next_rung_asks_again() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(30)
    say(site, "accept", only(site))
    site.run(120)
    assert site.kinds(site.incident("n1").id).count("Drain") == 1
    assert site.slurm.nodes["n1"].drain
    assert only(site).question.kind not in (None, StepKind.DRAIN)
    assert touched(site) == {"drain n1"}


def test_a_whole_repair_with_three_accepts() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True, remedy=Remedy.REBOOT)
    asked = []
    for _ in range(8):
        site.run(300, step_s=10)
        if not site.incident("n1").open:
            break
        for record in proposals(site, "n1", S.OPEN):
            asked.append(record.question.kind)
            say(site, "accept", record)
    assert asked == [StepKind.DRAIN, StepKind.REBOOT], site.story()
    assert not site.slurm.nodes["n1"].drain, site.story()
    assert site.kinds().count("Reboot") == 1


def test_a_replacement_asks_once_for_launch_hand_over_and_termination() -> None:
    site = Site(4, policy=proposing("replace"))
    site.fault("n1", sticky=True)
    site.run(120)
    assert site.slurm.nodes["n1"].drain, "a kind that is not asked about is done as in act"
    record = only(site)
    assert record.question.kind is StepKind.REPLACE
    assert not site.provider.terminated
    say(site, "accept", record, for_s=60)
    site.run(3600, step_s=15)
    assert [k for k in site.kinds() if k in ("Launch", "Terminate", "Assign")] == ["Launch", "Terminate", "Assign"]
    assert not site.incident("n1").open, site.story()


def test_an_accept_survives_a_restart_of_the_controller_and_of_the_actor() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(30)
    say(site, "accept", only(site))
    site.start_controller()
    site.start_actor()
    site.run(60)
    assert site.kinds().count("Drain") == 1
    site.start_controller()
    site.start_actor()
    site.run(120)
    assert site.kinds().count("Drain") == 1


@pytest.mark.parametrize("moment", ["planned", "started", "acted"])
def test_a_crash_of_the_actor_in_the_accepted_step_repeats_nothing(moment: str) -> None:
    site = Site(4, policy=proposing("reboot"))
    site.fault("n1", sticky=True, remedy=Remedy.REBOOT)
    site.run(60, step_s=5)
    site.kill_at = ("Reboot", moment)
    say(site, "accept", only(site))
    site.run(300, step_s=5)
    assert site.killed == 1
    assert site.kinds().count("Reboot") == 1


def test_a_dismissed_step_is_never_done() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True, severity=Severity.DEGRADED)
    site.run(30)
    say(site, "dismiss", only(site), for_s=None)
    site.run(1800, step_s=30)
    assert touched(site) == set()
    assert [p.status for p in proposals(site)] == [S.DISMISSED]
    assert "dismissed by ops: drill" in site.incident("n1").note


def test_a_dismissed_step_is_asked_for_again_when_the_incident_becomes_worse() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True, severity=Severity.DEGRADED, check="gpu.ecc", component="GPU-1")
    site.run(30)
    say(site, "dismiss", only(site), for_s=None)
    site.run(30)
    site.fault("n1", sticky=True, severity=Severity.FATAL, component="GPU-1")
    site.run(30)
    assert [p.status for p in proposals(site)] == [S.DISMISSED, S.OPEN]
    assert touched(site) == set()


def test_a_snoozed_step_is_asked_for_again_after_its_time() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(30)
    say(site, "snooze", only(site), for_s=600)
    site.run(540, step_s=10)
    assert [p.status for p in proposals(site)] == [S.SNOOZED]
    told = len(site.notices.sent)
    site.run(120, step_s=10)
    record = only(site)
    assert (record.number, len(site.notices.sent)) == (1, told + 1)
    assert touched(site) == set()


def test_what_no_one_answers_expires_and_an_operator_can_be_asked_again() -> None:
    site = Site(4, policy=proposing("drain", expires_s=600))
    site.fault("n1", sticky=True)
    site.run(700, step_s=20)
    (record,) = proposals(site)
    assert record.status is S.EXPIRED
    assert [s for s in site.notices.sent if "no one answered" in s] == [
        "n1: no one answered the proposal to " + record.what
    ]
    with pytest.raises(Rejected, match="has expired"):
        say(site, "accept", record)
    site.run(1800, step_s=30)
    assert touched(site) == set()
    say(site, "reopen", record, for_s=None)
    site.run(5)
    again = only(site)
    assert (again.number, again.was) == (2, 1)
    say(site, "accept", again)
    site.run(30)
    assert "drain n1" in touched(site)


def test_an_accept_that_could_not_be_used_in_time_asks_anew() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(30)
    site.operate("pause")
    say(site, "accept", only(site), for_s=300)
    site.run(600, step_s=10)
    site.operate("resume")
    site.run(30)
    assert touched(site) == set()
    assert only(site).number == 2


def test_a_proposal_whose_cause_clears_goes() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(30)
    record = only(site)
    site.operate("acknowledge", site.incident("n1").id)
    with pytest.raises(Rejected, match="taken over"):
        say(site, "accept", record)
    site.run(120)
    assert [p.status for p in proposals(site)] == [S.WITHDRAWN]


def test_an_accept_of_a_closed_incident_is_refused() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(30)
    record = only(site)
    site.operate("close", site.incident("n1").id)
    with pytest.raises(Rejected, match="not open"):
        say(site, "accept", record)


def test_two_operators_at_once_the_second_is_told() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(30)
    record = only(site)
    say(site, "accept", record)
    with pytest.raises(Rejected, match="no longer open: accepted by ops"):
        say(site, "accept", record)
    with pytest.raises(NotFound):
        site.operate("accept", proposal_id(site.incident("n1").id, 9))


def test_an_accept_that_was_taken_back_before_the_step_is_not_used() -> None:
    site = Site(4, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(30)
    record = only(site)
    say(site, "accept", record)
    site.turn()  # planned, not begun
    say(site, "dismiss", record, for_s=None)
    site.run(120)
    assert touched(site) == set()


def test_a_death_updates_the_proposal_in_place_and_the_old_number_is_refused() -> None:
    site = Site(6, policy=PROPOSE)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(5)
    node = job.nodes[0]
    site.fault(node, sticky=True)
    site.run(20)
    first = next(p for p in proposals(site, node, S.OPEN) if p.question.kind is StepKind.DRAIN)
    site.machine(node).powered = False
    site.run(90, step_s=3)
    now = next(p for p in proposals(site, node, S.OPEN) if p.job is None)
    assert (now.question.kind, now.was, now.opened_at) == (StepKind.SET_DOWN, first.number, first.opened_at)
    assert first.number not in {p.number for p in proposals(site, node)}, "updated, not duplicated"
    with pytest.raises(Rejected, match="has changed since"):
        say(site, "accept", first, node)
    assert not {k for k in site.kinds() if k in ("Drain", "SetDown", "Requeue", "Terminate", "Launch")}


def test_a_job_is_stopped_only_with_an_accept_of_its_own() -> None:
    site = Site(4, policy=PROPOSE)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(5)
    node = job.nodes[0]
    site.fault(node, sticky=True)
    site.run(30)
    by_kind = {p.question.kind: p for p in proposals(site, node, S.OPEN)}
    assert set(by_kind) == {StepKind.DRAIN, StepKind.STOP_JOB}
    assert by_kind[StepKind.STOP_JOB].job == job.job_id
    say(site, "accept", by_kind[StepKind.DRAIN], node)
    site.run(60)
    assert touched(site) == {f"drain {node}"}
    say(site, "accept", by_kind[StepKind.STOP_JOB], node)
    site.run(60)
    assert site.slurm.jobs[job.job_id].restarts == 1
    assert len([s for s in site.notices.sent if "accept or dismiss" in s]) <= 3


def test_brakes_hold_an_accepted_step() -> None:
    site = Site(16, policy=PROPOSE)
    site.fault("n1", sticky=True)
    site.run(30)
    record = only(site)
    for number in range(2, 10):
        site.fault(f"n{number}", sticky=True)
    site.run(30)
    assert site.book.brakes, "this many suspects have one cause"
    say(site, "accept", record)
    site.run(120)
    assert touched(site) == set()


def test_what_no_one_answers_trips_no_brake_however_long_it_waits() -> None:
    site = Site(16, policy=PROPOSE)
    for number in range(1, 7):
        site.fault(f"n{number}", sticky=True)
        site.run(900, step_s=30)
    assert not site.book.brakes
    assert all(only(site, f"n{number}") for number in range(1, 7))


def test_act_in_one_partition_and_observe_in_another() -> None:
    policy = replace(POLICY, nodes=(NodeSet(name="b", nodes="n3,n4", mode="observe"),))
    site = Site(4, policy=policy)
    site.fault("n1", sticky=True)
    site.fault("n3", sticky=True)
    site.run(60)
    assert touched(site) == {"drain n1"}
    assert "node set 'b': mode = 'observe': recorded, not done" in site.incident("n3").note
    assert not proposals(site, "n3")


def test_never_touch_is_stronger_than_an_accept() -> None:
    policy = replace(
        PROPOSE, nodes=(NodeSet(name="ours", nodes="n1", never_touch=True), NodeSet(name="x", nodes="n1", mode="act"))
    )
    site = Site(4, policy=policy)
    site.fault("n1", sticky=True)
    site.run(300, step_s=5)
    assert touched(site) == set()
    assert not proposals(site, "n1")
    assert "never_touch" in site.incident("n1").note


UNBRAKED = replace(PROPOSE, brake=replace(POLICY.brake, drains_10min=20, drains_60min=20))
HARMLESS = {"Notify", "CheckInstance", "SendOrder", "TellOwner", "DropHold"}
TRUTH = ((Severity.FATAL, Remedy.REPLACE), (Severity.FATAL, Remedy.REBOOT), (Severity.WARNING, Remedy.NONE))


def an_hour(site: Site, seed: int, each: Callable[[], None] = lambda: None) -> dict[str, Severity]:
    """Faults drawn at random, with jobs and restarts of both processes; the injector's truth: the gravest fault of each node."""
    drawn, truth = random.Random(seed), dict[str, Severity]()
    for _ in range(60):
        if len(truth) < 5 and drawn.random() < 0.2:
            node, (severity, remedy) = f"n{drawn.randint(1, 20)}", drawn.choice(TRUTH)
            site.fault(node, sticky=True, severity=severity, remedy=remedy)
            truth[node] = min(severity, truth.get(node, severity), key=list(Severity).index)
        if drawn.random() < 0.1:
            site.slurm.submit(drawn.randint(1, 3), comment="holdfast", exclusive=True)
        if drawn.random() < 0.05:
            site.start_controller()
            site.start_actor()
        each()
        site.run(60, step_s=10)
    return truth


@pytest.mark.parametrize("seed", [1, 2])
def test_an_hour_of_drawn_faults_does_nothing_and_says_what_it_would_have_done(seed: int) -> None:
    site = Site(20, policy=UNBRAKED)
    truth = an_hour(site, seed)
    assert set(site.kinds()) <= HARMLESS, site.kinds()
    assert not touched(site)
    asked = {i.node for i in site.book.open_incidents() for p in i.proposals if p.status is S.OPEN}
    assert asked == {node for node, severity in truth.items() if severity is not Severity.WARNING}
    assert asked, "the seed draws at least one fault"


@pytest.mark.parametrize("seed", [3, 4])
def test_an_hour_of_drawn_faults_and_accepts_does_each_accepted_step_once(seed: int) -> None:
    site, drawn, accepted = Site(20, policy=UNBRAKED), random.Random(seed), list[tuple[str, StepKind | None]]()

    def answer() -> None:
        for incident in site.book.open_incidents():
            for record in (p for p in incident.proposals if p.status is S.OPEN):
                verb = drawn.choice(["accept", "accept", "dismiss", "wait"])
                if verb != "wait":
                    site.operate(verb, proposal_id(incident.id, record.number), for_s=4 * 3600)
                if verb == "accept":
                    accepted.append((incident.id, record.question.kind))

    an_hour(site, seed, answer)
    for kind, step in (("Drain", StepKind.DRAIN), ("Reboot", StepKind.REBOOT), ("Launch", StepKind.REPLACE)):
        done = [e.incident_id for e in site.store.events(kinds=(EventKind.ACTION_DONE,)) if e.detail["kind"] == kind]
        allowed = [incident for incident, each in accepted if each is step]
        assert all(done.count(each) <= allowed.count(str(each)) for each in done), kind
    assert accepted


def test_the_events_name_the_proposal_and_its_end() -> None:
    site = Site(4, policy=proposing("drain", expires_s=60))
    site.fault("n1", sticky=True)
    site.run(120)
    found = site.store.events(kinds=(EventKind.PROPOSAL_OPENED, EventKind.PROPOSAL_ENDED))
    name = proposal_id(site.incident("n1").id, 1)
    assert [(e.kind, e.detail["proposal"], e.detail["state"]) for e in found] == [
        (EventKind.PROPOSAL_OPENED, name, "open"),
        (EventKind.PROPOSAL_ENDED, name, "expired"),
    ]
