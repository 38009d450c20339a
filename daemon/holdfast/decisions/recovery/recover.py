"""Recovery of affected jobs: hold, requeue, spare, release. Pure.

Order of a recovery: promote a spare and hold the survivors for the job, requeue it, release it from Slurm's two-minute hold with the
suspect nodes excluded, drop the hold when it runs. A job that did not opt in is never stopped before it fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.decisions.common import consent, job_reservations, node_drains, node_incidents, slurm_view
from holdfast.decisions.common.het_jobs import stragglers
from holdfast.decisions.common.may_stop_run import (
    FaultyRun,
    LostNode,
    MayNotStop,
    MayStop,
    StopRefusal,
    allowed_before,
    ground_of,
    hold_job,
    may_stop_run,
    requeue,
)
from holdfast.decisions.common.owner_words import fault_of
from holdfast.decisions.common.part import Part
from holdfast.decisions.death import fencing
from holdfast.decisions.hangs import detect
from holdfast.decisions.job_ends.series import series_of
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.planned import notices, saving
from holdfast.decisions.recovery import (
    affected_jobs,
    checkpoint_surveys,
    holds,
    owner_files,
    owner_mails,
    owner_note,
    restart_budget,
    run_checkpoints,
)
from holdfast.decisions.recovery.exclusions import release_step
from holdfast.decisions.recovery.node_range import size_for
from holdfast.decisions.silence import common_cause, silent_nodes
from holdfast.decisions.spares.choose import choose_spare
from holdfast.model.actions import steps
from holdfast.model.actions.action import (
    HoldNodes,
    PromoteSpare,
    Proposal,
    Release,
)
from holdfast.model.book import World
from holdfast.model.ids import job_hold_name
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident, Recovery, RecoveryPhase
from holdfast.model.slurm.cluster import ClusterView, Job
from holdfast_checks.result import Severity

_MAY_START_AGAIN = frozenset({RecoveryPhase.AWAITING_CONSENT, RecoveryPhase.WAITING})
_NOT_STOPPED_YET = frozenset({RecoveryPhase.SAVING, RecoveryPhase.WAITING, RecoveryPhase.STOPPING})
_CONSENT = RecoveryPhase.AWAITING_CONSENT
_FEW = 8
"""Most nodes named in a reason; the others are only counted."""


def recover(world: World) -> Part:
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    plan = _Plan(world, view)
    # Stops based on a job's own report come last: the others get spares first, also if a limit then withholds the stop.
    for incident in sorted(world.book.open_incidents(), key=lambda i: i.kind in ABOUT_JOBS):
        for job in _jobs_of(world, view, incident):
            plan.add(incident, job)
        for job in _spared(world, view, incident):
            plan.spare(incident, job)
        plan.proposals += _told_of_hands(world, view, incident)
    for recovery in sorted(world.book.recoveries.values(), key=lambda r: r.id):
        if recovery.phase is RecoveryPhase.RESTARTING:
            plan.restart(recovery)
    notes = (
        *owner_note.take_back(world, view),
        *owner_note.tell_recovered(world, view),
        *owner_files.leave(world, view),
        *owner_mails.mail(world, view),
    )
    return Part((*plan.proposals, *notes), tuple(plan.recoveries.values()))


def _jobs_of(world: World, view: ClusterView, incident: Incident) -> list[Job]:
    """Jobs that are to be recovered for the incident's sake."""
    if node_incidents.acting(incident) and incident.severity is Severity.FATAL:
        return [] if notices.withdrawn(world, incident) else affected_jobs.hurt_jobs(world, view, incident)
    if affected_jobs.calls_for_a_restart(world, incident) or affected_jobs.convicted(incident):
        return affected_jobs.failed_jobs(world, view, incident)
    hung = detect.to_restart(world, view, incident)
    return [] if hung is None else [hung]


def _in_hands(world: World, incident: Incident) -> bool:
    """An operator has the node at fault: its jobs are not stopped for it."""
    fatal = node_incidents.acting(incident) and incident.severity is Severity.FATAL
    return fatal and (hands_off.holds(world, incident) is not None or incident.resumed_in_doubt)


def _why_it_waits(incident: Incident, refused: MayNotStop) -> str:
    """Note of a job whose dead node may not be set DOWN now."""
    match refused.kind:
        case StopRefusal.ONE_CAUSE:
            return f"waits: {refused.text}, one cause; until the power of {incident.node} is off"
        case StopRefusal.OTHER_JOB:
            return f"waits until {incident.node} is set DOWN: {refused.text}"
        case StopRefusal.UNFENCED:
            return f"waits until {incident.node} is confirmed off: its old run could still write"
        case _:
            return f"waits until {incident.node} is DOWN: {refused.text}"


def _told_of_hands(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    """Notes to the owners of jobs that run on a faulty node in an operator's hands."""
    fatal = (
        node_incidents.acting(incident) and incident.severity is Severity.FATAL and not notices.planned(world, incident)
    )
    hands = hands_off.holds(world, incident) if fatal else None
    if hands is None or not hands.holds_incidents:
        return []
    running = (j for j in affected_jobs.hurt_jobs(world, view, incident) if slurm_view.holds(j))
    return [p for j in running for p in owner_note.leave_in_hands(world, incident, hands, j)]


def _spared(world: World, view: ClusterView, incident: Incident) -> list[Job]:
    """Jobs that may hold the GPU at fault and are not stopped, since nothing proves it."""
    fatal = node_incidents.acting(incident) and incident.severity is Severity.FATAL
    return affected_jobs.unproven_jobs(world, view, incident) if fatal and not notices.planned(world, incident) else []


class _Plan:
    """Collects the steps for all affected jobs of one cycle; a spare is given once, a job is planned once."""

    def __init__(self, world: World, view: ClusterView) -> None:
        self.world = world
        self.view = view
        self.proposals: list[Proposal] = []
        self.recoveries: dict[str, Recovery] = {}
        self._spares_taken: set[str] = set()
        dead = any(i.dead for i in world.book.open_incidents())
        self._held = common_cause.braked(common_cause.groups(world, silent_nodes.silent_nodes(world))) if dead else {}

    def add(self, incident: Incident, job: Job) -> None:
        known = self.world.book.recovery_of(job.key, job.restarts)
        if job.run.text in self.recoveries:
            return  # planned in this very cycle, for a fault of another of its nodes
        failed = job.state in slurm_view.FAILED
        if self._refused(incident, job, failed=failed) is StopRefusal.IN_HANDS:
            return
        cause = self.world.book.incidents.get(known.incident_id) if known is not None else None
        over = cause is None or not cause.open  # the fault of then is over, this one is another
        if known is None or known.phase is RecoveryPhase.GONE or (over and known.phase in _MAY_START_AGAIN):
            self._begin(incident, job, self._new(incident, job), failed=failed)
        else:
            self._go_on(incident, cause, job, known, failed=failed)

    def spare(self, incident: Incident, job: Job) -> None:
        """Put on record, once, why the job runs on. Once a proof is there, or the job has failed, it is as any other."""
        if job.run.text in self.recoveries or self.world.book.recovery_of(job.key, job.restarts) is not None:
            return
        text = (
            f"node {incident.node} has a fault ({fault_of(incident)}); nothing proves whether the job holds this GPU "
            "(holdfast doctor says why), so it runs on until it fails"
        )
        self._leave(incident, job, self._new(incident, job), RecoveryPhase.AWAITING_CONSENT, text)

    def _go_on(self, incident: Incident, cause: Incident | None, job: Job, known: Recovery, *, failed: bool) -> None:
        if job.suspended and known.phase in _NOT_STOPPED_YET:  # in between; from here on as any other that is suspended
            known = replace(known, spare=None, hold=None)
            self._leave(incident, job, known, _CONSENT, owner_note.runs_on(self.world, incident, job))
            return
        if known.phase is RecoveryPhase.AWAITING_CONSENT:
            if failed or ground_of(self._run(incident, job, failed=failed)) is not None:
                self._begin(incident, job, replace(known, consent="", ground=None), failed=failed)
            else:
                self._tell(incident, job, known.note)
        elif known.phase is RecoveryPhase.WAITING:
            if failed or incident.dead or not self._lost_another(incident, job):
                self._begin(incident, job, known, failed=failed)
        elif known.phase is RecoveryPhase.SAVING:
            self._saving(incident, cause or incident, job, known, failed=failed)
        elif known.phase is RecoveryPhase.STOPPING:
            self._stop_again(cause, known, job, failed=failed)
        elif known.phase is RecoveryPhase.HELD:  # ordered until it is done: Slurm may have been away
            self._order_hold(
                incident, job, known.note, allowed_before(known)
            )  # until it is done: Slurm may have been away
        elif known.phase is RecoveryPhase.LEFT_ALONE:
            self._tell(incident, job, known.note)

    def _run(self, incident: Incident, job: Job, *, failed: bool) -> FaultyRun:
        return FaultyRun(
            failed=failed,
            in_hands=_in_hands(self.world, incident),
            cannot=affected_jobs.left_alone(self.view, incident, job),
            consent=consent.consent(self.world, job),
            lost=self._lost(incident, job) if incident.dead and not failed else None,
        )

    def _refused(self, incident: Incident, job: Job, *, failed: bool) -> StopRefusal | None:
        may = may_stop_run(self._run(incident, job, failed=failed))
        return may.kind if isinstance(may, MayNotStop) else None

    def _lost_another(self, incident: Incident, job: Job) -> bool:
        """It waits for the fence of another of its nodes, a dead one: a fault of this node changes nothing in that."""
        others = (i for i in self.world.book.open_incidents() if i.id != incident.id)
        return any(i.dead and node_incidents.acting(i) and i.node in job.nodes for i in others)

    def _new(self, incident: Incident, job: Job) -> Recovery:
        own, newest = affected_jobs.own_exclusions(self.world, job), run_checkpoints.by_now(self.world, job)
        added = tuple(n for n in job.excluded_nodes if n not in own)
        return Recovery(
            job=job.key,
            restarts_before=job.restarts,
            incident_id=incident.id,
            phase=RecoveryPhase.STOPPING,
            user=job.user,
            uid=job.uid,
            nodes_before=job.nodes,
            excluded_before=own,
            excluded_added=added if job.exclusions_known else affected_jobs.added_before(self.world, job),
            exclusions_known=job.exclusions_known,
            partition=job.partition,
            gpus=sum(len(m) for m in job.gpu_indices.values()),
            created_at=self.world.now,
            checkpoint_step=newest.step,
            checkpoint_at=newest.at,
            checkpoint_known=run_checkpoints.reports_saves(self.world, job),
            started_at=job.start_time,
            series=series_of(job),
        )

    def _begin(self, incident: Incident, job: Job, recovery: Recovery, *, failed: bool) -> None:
        may = may_stop_run(self._run(incident, job, failed=failed))
        if isinstance(may, MayNotStop):
            self._not_now(incident, job, recovery, may)
            return
        # From here on it belongs to this incident, whichever was reported first: steps, hold and DOWN use one id.
        recovery = replace(recovery, incident_id=incident.id)
        planned = notices.planned(self.world, incident)  # no fault that the job could be to blame for
        learned = run_checkpoints.learn(self.world, recovery, job)
        if not planned and self._awaits_survey(incident, job, learned):
            return
        refusal = None if planned and not failed else restart_budget.refuses(self.world, incident, learned)
        if refusal:
            self._hold(incident, job, learned, refusal, may)
            return
        if may.because is not None:
            recovery = replace(recovery, consent=may.because.text, ground=may.because.ground)
        if not failed and saving.worth_asking(self.world, incident, job):
            self._ask_to_save(incident, job, recovery, may)
            return
        self._stop(incident, job, replace(recovery, via_down=incident.dead and not failed), may, failed=failed)

    def _not_now(self, incident: Incident, job: Job, recovery: Recovery, refused: MayNotStop) -> None:
        """Put on record why the run is not stopped, or the job not started again, and notify its owner."""
        if refused.kind is StopRefusal.IN_HANDS:
            return
        if refused.kind is StopRefusal.CANNOT:
            self._leave(incident, job, recovery, RecoveryPhase.LEFT_ALONE, refused.text)
            if saving.worth_asking(self.world, incident, job):
                self.proposals += saving.ask(self.world, job, recovery, group="")
        elif refused.kind is StopRefusal.NOT_AGAIN:
            self._not_again(incident, job, recovery)
        elif refused.kind is StopRefusal.NO_CONSENT:
            self._leave(incident, job, recovery, _CONSENT, owner_note.runs_on(self.world, incident, job))
        else:
            self._wait(replace(recovery, incident_id=incident.id), _why_it_waits(incident, refused))

    def _awaits_survey(self, incident: Incident, job: Job, recovery: Recovery) -> bool:
        """A job that seems to make no progress waits until its directory was read, for a moment at most."""
        until = recovery.created_at + timedelta(seconds=self.world.policy.job.survey_wait_s)
        if self.world.now >= until or not restart_budget.must_be_known(self.world, incident, recovery):
            return False
        asks = checkpoint_surveys.ask(self.world, job, recovery)
        if not asks and not checkpoint_surveys.may_answer(self.world, recovery):
            return False
        self.proposals += asks
        self._wait(
            recovery,
            f"its checkpoint directory is read, until {until:%H:%M:%S} UTC at most: it seems to make no progress",
        )
        return True

    def _ask_to_save(self, incident: Incident, job: Job, recovery: Recovery, may: MayStop) -> None:
        """Its machine goes at a known time: the job saves first, and is stopped once it has."""
        why = saving.why_stop(self.world, incident, job, recovery)
        if why is not None:
            newest = run_checkpoints.by_now(self.world, job)
            later = replace(recovery, checkpoint_step=newest.step, checkpoint_at=newest.at, via_down=False)
            self._stop(incident, job, later, may, failed=False)
            self.recoveries[recovery.id] = replace(self.recoveries[recovery.id], note=why)
            return
        until = saving.latest_stop(self.world, job, incident)
        note = f"asked to save; stopped once it has, or at {until:%H:%M:%S} UTC"
        self.recoveries[recovery.id] = replace(recovery, phase=RecoveryPhase.SAVING, note=note)
        self.proposals += saving.ask(self.world, job, recovery, group=recovery.id)

    def _saving(self, incident: Incident, cause: Incident, job: Job, known: Recovery, *, failed: bool) -> None:
        """A fault of any of its nodes ends the wait."""
        if failed or not notices.planned(self.world, incident):
            self._begin(incident, job, known, failed=failed)
        elif not saving.faulty(self.world, job):
            self._ask_to_save(cause, job, known, allowed_before(known))

    def _lost(self, incident: Incident, job: Job) -> LostNode:
        group = common_cause.holds(self.world, incident, self._held)
        others = (j for j in self.view.jobs_on(incident.node) if j.key.job_id != job.key.job_id)
        waits = (fencing.holds_up(self.world, self.view, incident, j) for j in others)
        node = self.view.nodes.get(incident.node)
        taken = node is not None and node_drains.drained_by_others(self.world, node) and not node.down
        return LostNode(
            run=fencing.run_on(self.world, self.view, incident, job),
            one_cause=group.text if group is not None else None,
            other_job=next((text for text in waits if text is not None), None),
            taken_out=f"{node.reason_user or 'another user'} took it out ({node.reason!r})" if node and taken else None,
        )

    def _wait(self, recovery: Recovery, note: str) -> None:
        self.recoveries[recovery.id] = replace(recovery, phase=RecoveryPhase.WAITING, spare=None, hold=None, note=note)

    def _leave(self, incident: Incident, job: Job, recovery: Recovery, phase: RecoveryPhase, text: str) -> None:
        if recovery.phase is phase:
            return
        self.recoveries[recovery.id] = replace(recovery, phase=phase, note=text)
        self._tell(incident, job, text)

    def _not_again(self, incident: Incident, job: Job, recovery: Recovery) -> None:
        """It failed of the fault, and no one said that it may be started again: its owner learns why, and what to do."""
        text = owner_note.failed(incident, job)
        if (recovery.phase, recovery.note) != (_CONSENT, text):
            self.recoveries[recovery.id] = replace(recovery, phase=_CONSENT, note=text)

    def _tell(self, incident: Incident, job: Job, text: str) -> None:
        self.proposals += owner_note.leave(self.world, incident, job, text)

    def _hold(
        self, incident: Incident, job: Job, recovery: Recovery, refusal: restart_budget.BudgetRefusal, may: MayStop
    ) -> None:
        self.recoveries[recovery.id] = replace(
            recovery, phase=RecoveryPhase.HELD, note=refusal.text, suspect=refusal.suspect
        )
        self._order_hold(incident, job, refusal.text, may)

    def _order_hold(self, incident: Incident, job: Job, why: str, may: MayStop) -> None:
        step = steps.hold_job(job.key, job.restarts)
        if self.world.may_try(incident.id, step, job.key):
            action = hold_job(may, job.key, f"holdfast[{incident.id}]: {why}")
            self.proposals.append(Proposal(incident.id, step, action, why, stops_running_job=slurm_view.holds(job)))

    def _stop(self, incident: Incident, job: Job, recovery: Recovery, may: MayStop, *, failed: bool) -> None:
        survivors = holds.survivors(self.world, self.view, job)
        # In a reservation of its user's the job keeps its nodes anyway, and may use no others.
        elsewhere = job_reservations.reserved_by_its_user(self.world, job)
        too_many = None if elsewhere else holds.too_many(self.world, job.user, self.proposals)
        none = elsewhere or too_many is not None
        others = holds.of_other_holds(self.view, job, (*self.world.book.recoveries.values(), *self.recoveries.values()))
        spares = () if none else self._take_spares(job, survivors)
        keep = tuple(
            n for n in survivors if n not in others and not job_reservations.reserved_by_others(self.world, n, job)
        )
        keep = () if none else keep
        hold = job_hold_name(incident.id, job.key.job_id) if keep or spares else None
        spare = spares[0] if spares else None
        recovery = replace(recovery, spare=spare, hold=hold, phase=RecoveryPhase.STOPPING, note=too_many or "")
        self.recoveries[recovery.id] = recovery
        if too_many is not None:
            self._tell(incident, job, too_many)
        self.proposals += checkpoint_surveys.ask(self.world, job, recovery)
        if hold is not None:
            self._hold_nodes(incident, recovery, hold, (*keep, *spares))
        for spare in spares:
            self._promote(incident, recovery, spare, hold)
        if not recovery.via_down:
            self._requeue(recovery, job, may, failed=failed)

    def _take_spares(self, job: Job, survivors: tuple[str, ...]) -> tuple[str, ...]:
        """One for each node that does not survive, fit for the component that held it."""
        spares: list[str] = []
        replaced = set(survivors)
        # A running job's list cannot be changed: what an earlier recovery put there may be the spare of today.
        ours = frozenset(job.excluded_nodes) - set(affected_jobs.own_exclusions(self.world, job))
        for part in job.components:
            for node in part.nodes:
                if node in replaced:
                    continue
                replaced.add(node)
                taken = frozenset(self._spares_taken)
                spare = choose_spare(
                    self.world, self.view, part, taken=taken, replaced=node, near=survivors, serves_again=ours
                )
                if spare is not None:
                    self._spares_taken.add(spare)
                    spares.append(spare)
        return tuple(spares)

    def _hold_nodes(self, incident: Incident, recovery: Recovery, hold: str, nodes: tuple[str, ...]) -> None:
        step = steps.hold_nodes(recovery.job, recovery.restarts_before)
        if self.world.may_try(incident.id, step, recovery.job):
            duration_s = self.world.policy.job.hold_duration_s
            action = HoldNodes(hold, nodes, recovery.user, recovery.job, duration_s)
            reason = f"keep {len(nodes)} nodes for job {recovery.job} while it restarts"
            self.proposals.append(Proposal(incident.id, step, action, reason, group=recovery.group, order=10))

    def _promote(self, incident: Incident, recovery: Recovery, spare: str, hold: str | None) -> None:
        step = steps.promote_spare(spare)
        if self.world.may_try(incident.id, step):
            reason = f"spare {spare} takes the place of {incident.node} for job {recovery.job}"
            action = PromoteSpare(spare, hold)
            self.proposals.append(Proposal(incident.id, step, action, reason, group=recovery.group, order=20))

    def _stop_again(self, cause: Incident | None, known: Recovery, job: Job, *, failed: bool) -> None:
        """Until it is requeued: steps that Slurm did not take (it may have been down) are ordered again, the hold first.

        A job that failed on its own before its node was set DOWN is not requeued by the DOWN."""
        recovery = replace(known, via_down=known.via_down and not failed)
        if recovery.via_down and cause is not None:
            may = may_stop_run(self._lost(cause, job))
            if isinstance(may, MayNotStop):
                self._wait(recovery, _why_it_waits(cause, may))  # another user took the node out in between
                return
        if recovery != known:
            self.recoveries[recovery.id] = recovery
        self._hold_again(recovery)
        if not recovery.via_down:
            self._requeue(recovery, job, allowed_before(known), failed=failed)

    def _hold_again(self, recovery: Recovery) -> None:
        for step, failed in self.world.book.failed_steps(recovery.incident_id).items():
            action = failed.action
            held = isinstance(action, HoldNodes) and (action.reservation, action.job) == (recovery.hold, recovery.job)
            promoted = isinstance(action, PromoteSpare) and action.into == recovery.hold
            again = self.world.may_try(recovery.incident_id, step)
            if recovery.hold is not None and (held or promoted) and again:
                group = recovery.group
                self.proposals.append(
                    Proposal(recovery.incident_id, step, action, failed.reason, group=group, order=failed.order)
                )

    def _requeue(self, recovery: Recovery, job: Job, may: MayStop, *, failed: bool) -> None:
        step = steps.requeue(recovery.job, recovery.restarts_before)
        if not self.world.may_try(recovery.incident_id, step, recovery.job):
            return
        running = slurm_view.holds(job) and not failed
        reason = f"job {recovery.job} is affected by the fault and is requeued; allowed because: {recovery.consent}"
        self.proposals.append(
            Proposal(
                recovery.incident_id,
                step,
                requeue(may, recovery.job, recovery.restarts_before),
                reason,
                stops_running_job=running,
                group=recovery.id,
                order=30,
            )
        )

    def restart(self, recovery: Recovery) -> None:
        """The requeued run may start: off the suspects, in its hold, without Slurm's two-minute wait."""
        job = self.view.jobs.get(recovery.job.job_id)
        if job is not None and stragglers(job):
            self._gather(recovery)
        if job is None or job.state != "PENDING" or job.held:
            return
        if not job.exclusions_known:
            return  # what its user excludes would be lost; Slurm starts it after two minutes whatever happens here
        if not recovery.exclusions_known:
            own = tuple(n for n in job.excluded_nodes if n not in recovery.excluded_added)
            recovery = replace(recovery, excluded_before=own, exclusions_known=True)
            self.recoveries[recovery.id] = recovery
        hold = recovery.hold if recovery.hold in self.view.reservations else None
        off = node_incidents.to_exclude(self.world, in_service_only=recovery.in_service_only)
        if hold is not None:
            off |= job_reservations.kept_for_others(self.world, hold, job)
        exclude = tuple(sorted(set(recovery.excluded_before) | off))
        size = size_for(self.world, self.view, job, hold, exclude)
        step = release_step(self.world, recovery, exclude, size)
        if not self.world.may_try(recovery.incident_id, step, recovery.job, first_s=0.2):
            return
        action = Release(recovery.job, recovery.restarts_before + 1, hold, exclude, tuple(sorted(off)), size)
        names = ",".join(exclude) if len(exclude) <= _FEW else f"{len(exclude)} nodes"
        reason = f"start job {recovery.job} now, off {names or 'no node'}{f', on {size} nodes' if size else ''}"
        self.proposals.append(Proposal(recovery.incident_id, step, action, reason, order=40))

    def _gather(self, recovery: Recovery) -> None:
        """Slurm requeued the leader of a heterogeneous job alone: the rest of it follows."""
        step = steps.requeue_rest(recovery.job, recovery.restarts_before)
        if self.world.may_try(recovery.incident_id, step, recovery.job):
            action = requeue(allowed_before(recovery), recovery.job, recovery.restarts_before)
            reason = f"job {recovery.job} is queued again, but components of it are not"
            self.proposals.append(Proposal(recovery.incident_id, step, action, reason, order=30))
