"""A Hypothesis state machine: faults, silence, operators, users, outages, crashes and time, in any order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from holdfast.model.actions.action import Intent
from holdfast.model.actions.steps import StepKey
from holdfast.model.book import BrakeKind, Change
from holdfast.model.errors import Rejected
from holdfast.model.ids import has_slurms_words, incident_of_reason
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast_checks.result import Remedy, Severity
from support.simulated.announcements import Announcements, by_announcement, planned_nodes
from support.simulated.cuts import Cuts, accused_by_silence_alone, reports, without_power
from support.simulated.provider import FULL, IN_PLACE, NOTHING
from support.simulated.site import POLICY, Site
from support.simulated.slurm import SimJob
from support.simulated.store import MemoryStore
from support.simulated.untidy import WINDOW, Untidy

NODES = 6
node_names = st.sampled_from([f"n{n + 1}" for n in range(NODES)])
KINDS: dict[str, dict[str, Any]] = {
    "xid79": {},
    "lost gpu": {"check": "gpu.lost", "code": "lost", "sticky": True},
    "whole node": {"check": "host.pcie", "code": "fatal", "minor": None},
    "degraded": {"check": "gpu.remap", "code": "pending", "severity": Severity.DEGRADED, "sticky": True},
    "warning": {"check": "gpu.thermal", "code": "slow", "severity": Severity.WARNING, "remedy": Remedy.NONE},
    "the job's own": {"code": "31", "remedy": Remedy.RESTART_JOB},
    "reset": {"check": "gpu.xid", "code": "109", "remedy": Remedy.RESET_GPU},
    "reboot": {"check": "gpu.xid", "code": "119", "remedy": Remedy.REBOOT},
    "new host": {"check": "cloud.status", "code": "system", "minor": None, "remedy": Remedy.STOP_START},
    "consequence": {"code": "45", "consequence": True},
    "for a human": {"check": "host.psu", "code": "psu", "minor": None, "remedy": Remedy.HUMAN},  # word: a test's key
}
DAY_S = 86_400 - 4_000
"""A step counts from when it was planned; it may be carried out this much later."""
STEPS = ("Drain", "SetDown", "HoldNodes", "PromoteSpare", "Requeue", "Release", "DropHold", "HoldJob", "Undrain")
REPAIRS = ("Launch", "Terminate", "Assign", "AdoptSpare", "CheckInstance", "TellOwner", "Notify")
RUNGS = ("Replace", "Reboot", "StopStart")
PROVIDERS = {
    "launches beside": FULL,  # word: a test's key
    "replaces in place": IN_PLACE,
    "reboots": replace(NOTHING, reboot=True, status=True),
    "nothing": NOTHING,
}


class CheckedStore(MemoryStore):
    """Refuses what no cycle may write: an incident whose events do not record, step by step, how it reached its state (the store itself
    refuses a step that the lifecycle's table does not have, :mod:`support.simulated.ways`); an intent whose key names another incident or
    another kind of action."""

    def commit(self, change: Change, fence: int) -> None:
        for intent in change.intents:
            key = StepKey.parse(intent.key)
            assert (key.incident_id, key.step.kind) == (intent.incident_id, intent.kind), intent
        super().commit(change, fence)
        for incident in change.incidents:
            self.ways.check(incident, opened=True)


class Anything(Announcements, Cuts, Untidy):
    """Rules are what may happen to the site; invariants are the promises of the design's section 6."""

    @initialize(
        spares=st.sampled_from([(), ("n6",), ("n5", "n6")]),
        quick=st.booleans(),
        provider=st.sampled_from(["launches beside", *PROVIDERS]),  # word: a test's key
        slurm_reboots=st.booleans(),
    )
    def begin(self, spares: tuple[str, ...], quick: bool, provider: str, slurm_reboots: bool) -> None:
        self.site = Site(NODES, spares=spares, policy=POLICY, store=CheckedStore(), can=PROVIDERS[provider])
        self.slurm, self.provider = self.site.slurm, self.site.provider
        self.by_hand: dict[str, str] = {}
        """Drains of operators that are in force."""
        self.in_window: set[str] = set()
        """Nodes in a maintenance reservation: Holdfast may not touch them."""
        self.guilty: set[str] = set()
        """Nodes with evidence against them, or that are dead or hang."""
        self.released_s = -1e9
        self.looked_at: set[str] = set()
        """Incidents that were open when an operator released the brake on drains: these may continue, all at once (decision 5)."""
        self.slurm.on_requeue = self.site.watched(self._on_requeue)
        self.slurm.on_set_down = self.site.watched(self._on_set_down)
        self.machines = {self.site.machine(name).instance_id: name for name in self.slurm.nodes}
        """Nodes that served at the beginning."""
        self.taken: dict[str, list[tuple[float, str]]] = {"ended": [], "cycled": []}
        self.provider.on_terminate = self.site.watched(self._on_terminate)
        self.provider.on_boot = self.site.watched(self._on_boot)
        if slurm_reboots:
            self.slurm.reboot_program = "/usr/sbin/reboot"
        self.jobs: list[SimJob] = []
        if quick:
            self.submit(2, consent=True, exclusive=True)

    # Checks at the moment of each action

    def _on_requeue(self, job: SimJob) -> None:
        held = {n for r in self.site.book.recoveries.values() if r.job.job_id == job.job_id for n in r.nodes_before}
        accused = {i.node for i in self.site.book.open_incidents() if i.node in job.nodes}
        if job.state == "RUNNING" and accused and all(accused_by_silence_alone(self.site, name) for name in accused):
            assert not all(reports(self.site, name) for name in accused), f"job {job.job_id} runs, and all nodes report"
        if any(b.released_at is None for b in self.site.book.brakes.values()) and not held & planned_nodes(self.site):
            assert job.state != "RUNNING", "a running job was stopped while a brake held"

    def _on_set_down(self, name: str) -> None:
        self._lives_not(name, "set DOWN")
        assert name not in self.in_window, f"{name} is in maintenance, and was set DOWN"
        for job in self.slurm.jobs.values():
            if name in job.nodes and job.state == "RUNNING":
                nodes = {
                    n for r in self.site.book.recoveries.values() if r.job.job_id == job.job_id for n in r.nodes_before
                }
                told = self.site.book.checkpoint_of(job.job_id, job.uid, nodes | set(job.nodes))
                assert told or "holdfast" in job.comment, (
                    f"job {job.job_id} did not consent, and is stopped ahead of Slurm"
                )
        if not self.site.machine(name).powered:
            return
        book = self.site.book
        for job in self.slurm.jobs.values():
            # An earlier run's report still holds: Slurm starts the same script again, so a later run is fenced by the same library.
            held = {n for r in book.recoveries.values() if r.job.job_id == job.job_id for n in r.nodes_before}
            record = book.checkpoint_of(job.job_id, job.uid, held | set(job.nodes))
            if name in job.nodes and job.state == "RUNNING":
                assert record is not None, f"{name} lives, and job {job.job_id} on it can still write"
                assert record.fenced, f"{name} lives, and job {job.job_id} on it can still write"

    def _lives_not(self, name: str, what: str) -> None:
        """A run that reports is not ended for its silence."""
        alone = bool(self.site.book.open_on(name)) and accused_by_silence_alone(self.site, name)
        assert not (alone and reports(self.site, name)), f"{name} reports, and was {what}"

    def _on_terminate(self, instance_id: str) -> None:
        self._the_machine_budget_holds("ended", instance_id)
        self._may_be_taken(instance_id)

    def _on_boot(self, instance_id: str) -> None:
        self._the_machine_budget_holds("cycled", instance_id)
        self._may_be_taken(instance_id)

    def _the_machine_budget_holds(self, kind: str, instance_id: str) -> None:
        """A quarter of the nodes a day, at least one; counted from the machines that served at first: no operator extends a budget here."""
        if instance_id in self.machines:
            now_s = self.site.clock.elapsed_s
            self.taken[kind].append((now_s, self.machines[instance_id]))
            recent = {name for at_s, name in self.taken[kind] if at_s > now_s - DAY_S}
            assert len(recent) <= max(1, NODES // 4), f"machines of {sorted(recent)} were {kind} within a day"

    def _may_be_taken(self, instance_id: str) -> None:
        for name in self.slurm.nodes:
            if self.site.machine(name).instance_id != instance_id:
                continue
            self._lives_not(name, "terminated or rebooted")
            assert name not in self.in_window, f"{name} is in maintenance, and its machine was taken"
            node = self.slurm.nodes[name]
            assert name not in self.by_hand, f"{name} was drained by hand, its machine is not ours to terminate"
            if any(i.dead for i in self.site.book.open_on(name)):
                continue
            assert node.drain or node.down, f"{name} serves"
            running = [j for j in self.slurm.jobs.values() if name in j.nodes and j.state == "RUNNING"]
            assert not running, f"{name} is terminated under a job"

    # Faults

    @rule(name=node_names, kind=st.sampled_from(sorted(KINDS)), gpu=st.integers(0, 7), late_s=st.sampled_from([0, 200]))
    def fault(self, name: str, kind: str, gpu: int, late_s: int) -> None:
        changed = {"minor": gpu, "fault_at": self.site.clock.now(), **KINDS[kind]}
        machine = self.site.machine(name)
        finding = self.site.agents.find(machine, **changed)
        self.guilty.add(name)
        if late_s:
            machine.sequence -= 1  # the same envelope again: must be dropped
            self.site.agents.report(machine, findings=(finding,))
        self.site.react()

    @rule(names=st.lists(node_names, min_size=4, unique=True), apart_s=st.sampled_from([0, 1, 90]))
    def many_fail(self, names: list[str], apart_s: int) -> None:
        for name in names:
            self.fault(name, "xid79", 0, 0)
            self.site.run(apart_s, step_s=10)

    @rule(name=node_names, gpu=st.integers(0, 7), check=st.sampled_from(["gpu.lost", "gpu.remap"]))
    def clears(self, name: str, gpu: int, check: str) -> None:
        machine = self.site.machine(name)
        self.site.agents.clear(machine, check, machine.gpu_uuids[gpu])
        self.site.react()

    @rule(name=node_names)
    def agent_falls_silent(self, name: str) -> None:
        self.site.machine(name).agent_up = False

    @rule(name=node_names)
    def is_cut_off(self, name: str) -> None:
        self.site.machine(name).cut_off = True

    @rule(name=node_names)
    def is_cut_off_from_all(self, name: str) -> None:
        """Train on, but unreachable: to every other node it looks dead."""
        machine = self.site.machine(name)
        machine.cut_off, machine.unreachable_by = True, set(self.slurm.nodes)
        self.guilty.add(name)

    @rule(name=node_names)
    def loses_power(self, name: str) -> None:
        self.site.machine(name).powered = False
        self.guilty.add(name)

    @rule(name=node_names)
    def is_back(self, name: str) -> None:
        machine = self.site.machine(name)
        machine.agent_up, machine.cut_off, machine.unreachable_by = True, False, set()

    @rule(name=node_names, on=st.booleans())
    def tasks_hang(self, name: str, on: bool) -> None:
        self.slurm.nodes[name].stuck = on
        self.guilty.add(name)

    # People

    @rule(name=node_names)
    def operator_drains(self, name: str) -> None:
        reason = f"by hand at {self.site.clock.elapsed_s:g}"
        self.slurm.operator_drains(name, reason)
        self.by_hand[name] = reason
        self.site.react()

    @rule(kind=st.sampled_from(["Drain", "Undrain", "SetDown", "Terminate", *RUNGS]))
    def operator_steps_in(self, kind: str) -> None:
        """Drain the node as an operator, at the moment before a step is started."""

        def step_in(intent: Intent, moment: str) -> None:
            name = getattr(intent.action, "node", None)
            if intent.kind == kind and moment == "started" and name and not getattr(intent.action, "fence", False):
                self.site.at_boundary = lambda _intent, _moment: None
                self.slurm.operator_drains(name, f"in between, at {self.site.clock.elapsed_s:g}")
                self.by_hand[name] = self.slurm.nodes[name].reason

        self.site.at_boundary = step_in

    @rule(name=node_names)
    def a_repair_runs_its_course(self, name: str) -> None:
        self.fault(name, "xid79", 3, 0)
        self.site.run(130, step_s=10)

    @rule(fenced=st.booleans())
    def a_node_vanishes_under_its_job(self, fenced: bool) -> None:
        self.submit(2, consent=True, exclusive=True)
        job = self.jobs[-1]
        if job.state == "RUNNING":
            if fenced:
                self.job_speaks(len(self.jobs) - 1, "register", 1)
            self.is_cut_off_from_all(job.nodes[0])
            self.site.run(60, step_s=5)

    @rule(name=node_names)
    def operator_resumes(self, name: str) -> None:
        self.by_hand.pop(name, None)
        self.slurm.operator_resumes(name)
        self.site.react()

    @rule(verb=st.sampled_from(["acknowledge", "close", "retry"]), number=st.integers(0, 5))
    def operator_decides(self, verb: str, number: int) -> None:
        opened = self.site.store.incidents(only_open=True) if not self._store.away else ()
        if opened:
            try:
                self.site.operate(verb, opened[number % len(opened)].id)
            except Rejected:
                return
        self.site.react()

    @rule(paused=st.booleans())
    def operator_pauses(self, paused: bool) -> None:
        if not self._store.away:
            self.site.operate("pause" if paused else "resume")

    @rule()
    def operator_releases_the_brakes(self) -> None:
        if not self._store.away:
            self._release_brakes()

    def _release_brakes(self) -> None:
        for brake in self.site.book.brakes.values():
            if brake.released_at is None:
                self.site.operate("release_brake", brake.kind)
                if brake.kind is BrakeKind.DRAINS:
                    self.released_s = self.site.clock.elapsed_s
                    self.looked_at |= {i.id for i in self.site.store.incidents(only_open=True)}

    @rule(nodes=st.integers(1, 3), consent=st.booleans(), exclusive=st.booleans())
    def submit(self, nodes: int, consent: bool, exclusive: bool) -> None:
        job = self.slurm.submit(
            nodes, comment="holdfast" if consent else "", exclusive=exclusive, gpus=8 if exclusive else 2
        )
        self.jobs.append(job)

    @rule(nodes=st.integers(1, 2), kind=st.sampled_from(["salloc", "no-requeue", "another user"]))
    def others_submit(self, nodes: int, kind: str) -> None:
        batch, requeue = kind != "salloc", kind != "no-requeue"
        self.slurm.submit(nodes, user="bob", uid=1001, gpus=8, exclusive=True, batch=batch, requeue=requeue)

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 9), end=st.sampled_from(["FAILED", "COMPLETED", "CANCELLED"]))
    def job_ends(self, number: int, end: str) -> None:
        self.slurm.finish(self.jobs[number % len(self.jobs)], end)

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 9), kind=st.sampled_from(["register", "saved", "resumed"]), step=st.integers(1, 9))
    def job_speaks(self, number: int, kind: str, step: int) -> None:
        job = self.jobs[number % len(self.jobs)]
        if job.nodes and job.state == "RUNNING":
            more: dict[str, Any] = (
                {"path": "/ckpt", "detail": {"fenced": True} | ({"save_signal": "USR1"} if step % 2 else {})}
                if kind == "register"
                else {"step": step}
            )
            machine = self.site.machine(job.nodes[0])
            self.site.agents.state(machine, f"checkpoint.{kind}", job.job_id, job.restarts, **more)

    # Outages, crashes, time

    @rule(away=st.booleans())
    def slurm_away(self, away: bool) -> None:
        self.slurm.away = away

    @rule(
        away=st.booleans(), capacity=st.booleans(), broken=st.booleans(), same=st.booleans(), reboots_help=st.booleans()
    )
    def provider_has_a_day(self, away: bool, capacity: bool, broken: bool, same: bool, reboots_help: bool) -> None:
        self.provider.away, self.provider.capacity = away, capacity
        self.provider.launches_broken, self.provider.same_hardware = broken, same
        self.provider.reboots_help = reboots_help

    @rule(itself=st.booleans())
    def provider_repairs_by_itself(self, itself: bool) -> None:
        """As HyperPod with NodeRecovery Automatic, which an operator may set at any time."""
        self.provider.itself = itself and self.provider.can.replace_in_place

    @property
    def _store(self) -> MemoryStore:
        assert isinstance(self.site.store, MemoryStore)
        return self.site.store

    @rule(away=st.booleans())
    def store_away(self, away: bool) -> None:
        self._store.away = away

    @rule(
        kind=st.sampled_from(STEPS + REPAIRS + RUNGS),
        moment=st.sampled_from(["planned", "started", "acted", "finished"]),
    )
    def actor_will_be_killed(self, kind: str, moment: str) -> None:
        self.site.kill_at = (kind, moment)

    @rule()
    def controller_restarts(self) -> None:
        self.site.start_controller()

    @rule(seconds=st.sampled_from([1, 3, 10]))
    def seconds_pass(self, seconds: int) -> None:
        self.site.run(seconds)

    @rule(seconds=st.sampled_from([40, 130, 320, 700]))
    def minutes_pass(self, seconds: int) -> None:
        self.site.run(seconds, step_s=max(10, seconds // 20))

    # What must hold

    @invariant()
    def promises(self) -> None:
        self.undrains_only_its_own()
        self.a_drain_by_hand_stands()
        self.nothing_is_done_twice()
        self.the_drain_budget_holds()
        self.only_evidence_counts()

    def undrains_only_its_own(self) -> None:
        for undrained in self.slurm.undrained:
            assert undrained.reason.startswith("holdfast[")
            assert undrained.user == "root" or has_slurms_words(undrained.reason), (
                "slurmctld's own name is on a reboot of ours"
            )

    def a_drain_by_hand_stands(self) -> None:
        for name, reason in self.by_hand.items():
            node = self.slurm.nodes[name]
            assert node.drain, f"the operator's drain of {name} was cleared"
            assert node.reason == reason, f"the operator's reason on {name} was overwritten"

    def nothing_is_done_twice(self) -> None:
        assert all(times == 1 for times in self.slurm.requeued.values())
        assert all(times == 1 for times in self.provider.terminated.values())

    def the_drain_budget_holds(self) -> None:
        for window_s, most in ((600, 3), (3600, 8)):
            since_s = max(self.site.clock.elapsed_s - window_s, self.released_s)
            recent = [
                (name, why)
                for at_s, name, why in self.slurm.drained
                if at_s > since_s and not self._drained_before(at_s, why)
            ]
            counted = ((name, why) for name, why in recent if not by_announcement(self.site, why))
            drained = {
                name
                for name, why in counted
                if incident_of_reason(why) not in self.looked_at and not without_power(self.site, why)
            }
            assert len(drained) <= most, f"{sorted(drained)} within {window_s} s"

    def _drained_before(self, at_s: float, reason: str) -> bool:
        """The drain, or DOWN, is one that slurmctld had forgotten: its node is no new suspect."""
        number = incident_of_reason(reason)
        if any(i.incident_id == number and i.kind == "SetDown" and i.finished_at for i in self.site.store.intents()):
            return True
        return any(earlier_s < at_s and incident_of_reason(why) == number for earlier_s, _, why in self.slurm.drained)

    def only_evidence_counts(self) -> None:
        touched = {name for _, name in self.slurm.taken_out}
        assert touched <= self.guilty, f"{sorted(touched - self.guilty)} were only silent"

    def teardown(self) -> None:
        """Everything is repaired and hours pass: Holdfast may leave nothing behind."""
        if not hasattr(self, "site"):
            return
        self._mend()
        for _ in range(3):
            self._release_brakes()
            self.site.run(600, step_s=20)
        for seconds in (4000, 4000, 4000, 90_000):
            if self.provider.candidates():
                self.site.run(seconds, step_s=seconds / 80)  # the caps on terminations, of an hour and of a day
        for check in (self.undrains_only_its_own, self.a_drain_by_hand_stands, self.nothing_is_done_twice):
            check()
        self._nothing_is_left_behind()

    def _mend(self) -> None:
        self._store.away = self.slurm.away = self.provider.away = False
        self.provider.capacity, self.provider.launches_broken, self.provider.same_hardware = True, False, False
        self.provider.itself, self.provider.reboots_help = False, True
        self.provider.announced = []
        self.site.kill_at = None
        self.site.at_boundary = lambda _intent, _moment: None
        self.in_window.clear()
        self.slurm.reservations.pop(WINDOW, None)
        for node in self.slurm.nodes.values():
            node.stuck = False
            self.is_back(node.name)
        self.site.operate("resume")

    def _nothing_is_left_behind(self) -> None:
        book = self.site.book
        assert not [n for n in self.slurm.reservations if n != POLICY.spare_reservation]
        busy = [i for i in book.open_incidents() if i.state in (IncidentState.REPAIRING, IncidentState.VALIDATING)]
        assert busy or not self.provider.candidates(), (
            f"{self.provider.candidates()} serve nothing\n{self.site.story()}"
        )
        unsettled = [i.key for i in self.site.store.intents() if not i.settled]
        assert not unsettled
        stopping = [r for r in book.recoveries.values() if r.phase in (RecoveryPhase.STOPPING, RecoveryPhase.SAVING)]
        assert not stopping, self.site.story(stopping[0].incident_id)
        for recovery in book.recoveries.values():
            if not recovery.final and recovery.phase in (RecoveryPhase.WAITING, RecoveryPhase.AWAITING_CONSENT):
                assert book.incidents[recovery.incident_id].open, f"{recovery} waits for nothing"
        for name, mark in book.marks.items():
            incident, node = book.incidents[mark.incident_id], self.slurm.nodes[name]
            theirs = incident.operated or node.user != "root"
            assert incident.open or theirs or not node.drain, f"{name} is forgotten: {self.site.story(incident.id)}"


__all__ = ["Anything"]
