"""The actor: a small process without a listener, and the only one with rights in Slurm and at the provider.

It reads typed intents from the store, checks the brakes again, writes "started", acts, and writes the outcome. Steps of one incident run
in order within a lane (Slurm, provider, people). Incidents do not wait for each other, and slow launches delay no drain."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Event as Stop

from holdfast import unexpected
from holdfast.actor.accepts import forbidden
from holdfast.actor.adapters import Outside
from holdfast.actor.begun import Begun
from holdfast.actor.carry_out import carry_out
from holdfast.actor.idle import IdleWatch, idle
from holdfast.actor.last_words import last_words
from holdfast.actor.lease_guard import while_leading
from holdfast.actor.limits import ActorLimits, Full, LimitedStep, limited
from holdfast.actor.notice_desk import NoticeDesk
from holdfast.actor.owner_desk import OwnerDesk
from holdfast.actor.second_look import BRAKED, Recheck, look_again, not_taken_here, outlived, overtaken
from holdfast.controller.timing.lanes import PEOPLE, lane, pools
from holdfast.model.actions.action import (
    NEVER_BEGUN,
    Action,
    Intent,
    IntentState,
    Launch,
    Notify,
    Reboot,
    Replace,
    SetDown,
    StopStart,
    Terminate,
)
from holdfast.model.book import Book
from holdfast.model.errors import LeaderFencedOff, OutsideError
from holdfast.model.policies.policy import Mode, Policy
from holdfast.ports import IntentOutcome, Lease, Provider, Scheduler, Store

log = logging.getLogger(__name__)

HAND_OUT, TAKE, SEND_NOTICES = "hand_out", "take_intent", "send_notices"
"""Parts of this process: reading the due intents, re-evaluating one step, and messages to people (:mod:`holdfast.unexpected`)."""
STALE_S = 600.0
"""Maximum age of a planned step that has not started. An older one is decided again instead of done late."""
LOOK_S = 0.5
"""How often the store is polled without a wakeup."""
STALE = IntentOutcome(
    IntentState.FAILED, "planned too long ago; will be decided again", retryable=True, result={NEVER_BEGUN: True}
)
_NOTICES = ("", PEOPLE)
"""Queue of the notices in this process: no incident has this id."""
_OWNERS = ("owners", PEOPLE)
"""The same of mails to jobs' owners."""
_IRREVERSIBLE = (SetDown, Terminate, Replace, Reboot, StopStart, Launch)


@dataclass
class Actor:
    """The actor process. It acts for the controller on the same machine and is idle while another one leads."""

    store: Store
    outside: Outside
    holder: Callable[[], str | None]
    """Lease holder id of that controller, read each time the lease is checked; None: no controller is known, so no step is taken."""
    wait: Callable[[float], object]
    """Waits for a wakeup, at most this many seconds."""
    ring: Callable[[], None]
    """Wakes the controller and the actor itself: an outcome was written, the next step of the lane may start."""
    before_step: Callable[[Intent, str], None] = lambda _intent, _moment: None
    """Called at each boundary of a step (``planned``, ``started``, ``acted``, ``finished``); for drills."""
    turned: Callable[[], None] = lambda: None
    """Called after each complete pass; notifies systemd that this process is alive."""
    pools: Callable[[], AbstractContextManager[Mapping[str, Executor]]] = pools
    """Makes the workers of each lane (``controller/timing/lanes.py``)."""
    mode: Mode = Mode.ACT
    """Mode from this process's own configuration. In observe mode, steps that were planned earlier wait."""
    policy: Policy | None = None
    """From this process's own configuration: node sets, and the steps that wait for an accept. None: as ``mode`` says alone."""
    limits: ActorLimits | None = None
    """Upper limits on steps, whatever the store says; None: no limits."""
    begun: Begun | None = None
    """Record of the steps that this actor has started; None: the store is trusted."""
    desk: NoticeDesk | None = None
    """Takes the notices to people; None: each is sent on its own, like any other step."""
    owners: OwnerDesk | None = None
    """Takes the mails to jobs' owners; None: they wait in the store."""
    problem: str = ""
    """Why the last pass failed, for the controller and for operators; empty: it succeeded."""
    held_back: str = ""
    """The actor's own limit that holds steps back; empty: none does."""
    _held_said: bool = False
    _acts_for: str | None = None
    _idle: IdleWatch = field(default_factory=IdleWatch)
    _busy: dict[tuple[str, str], Future[None]] = field(default_factory=dict)

    def run(self, stop: Stop) -> None:
        """The actor's loop: read the due intents, hand them out, wait."""
        with self.pools() as workers:
            while not stop.is_set():
                try:
                    self._hand_out(workers)
                except OutsideError as error:
                    log.warning("event=store_unavailable error=%r", str(error))
                    self.problem = f"no step is read from the store: {error}"
                except Exception as error:  # noqa: BLE001 - nothing is begun; the next look shows whether it lasts
                    unexpected.failed(HAND_OUT, error)
                    self.problem = f"no step is taken: {type(error).__name__}: {error}"[:300]
                else:
                    unexpected.passed(HAND_OUT)
                    self.problem = self.held_back
                self._say_held_back()
                self.turned()
                self.wait(LOOK_S)

    def _hand_out(self, workers: Mapping[str, Executor]) -> None:
        self._reap()
        self.held_back = ""
        self._note_controller()
        lease = self._serving()
        if lease is None:
            return
        intents = self._without_notices(self.store.due_intents(), lease.fence, workers)
        if not intents:
            return
        book = self.store.load_book(self.outside.clock.now())
        taken: set[tuple[str, str]] = set(self._busy)
        for intent in map(self._as_begun, intents):
            queue = (intent.incident_id, lane(intent.action))
            if queue in taken:
                continue
            try:
                look = self._looked_again(book, intent, lease.fence)
            except OutsideError:
                raise
            except Exception as error:  # noqa: BLE001 - this one waits, with what comes after it; the others do not
                unexpected.failed(TAKE, error, intent.key)
                look = Recheck.WAIT
            if look is Recheck.DECIDE_AGAIN:
                continue
            taken.add(queue)
            if look is Recheck.GO:
                future = workers[queue[1]].submit(self.step, intent, lease.fence)
                self._busy[queue] = future
                future.add_done_callback(lambda _done: self.ring())

    def _without_notices(
        self, intents: tuple[Intent, ...], fence: int, workers: Mapping[str, Executor]
    ) -> tuple[Intent, ...]:
        """Hand the notices to the desk, which sends one after the other; the other steps are returned."""
        if self.desk is None:
            return intents
        to_owners = [i for i in intents if isinstance(i.action, Notify) and i.action.user]
        self._mail_owners(to_owners, fence, workers)
        notices = [i for i in intents if isinstance(i.action, Notify) and not i.action.user]
        if _NOTICES not in self._busy and (notices or self.desk.due()):
            future = workers[PEOPLE].submit(self._send_notices, self.desk, notices, fence)
            self._busy[_NOTICES] = future
            future.add_done_callback(lambda _done: self.ring() if notices else None)
        return tuple(i for i in intents if not isinstance(i.action, Notify))

    def _mail_owners(self, notices: list[Intent], fence: int, workers: Mapping[str, Executor]) -> None:
        """Hand the mails to jobs' owners to their desk, in a separate queue."""
        if self.owners is None or _OWNERS in self._busy or not (notices or self.owners.due()):
            return
        future = workers[PEOPLE].submit(self._send_notices, self.owners, notices, fence)
        self._busy[_OWNERS] = future

    def _send_notices(self, desk: NoticeDesk | OwnerDesk, notices: list[Intent], fence: int) -> None:
        try:
            desk.turn(notices, fence)
        except LeaderFencedOff as error:
            log.warning("event=fenced_off part=notices error=%r", str(error))
        except OutsideError as error:
            log.warning("event=notices_wait error=%r", str(error))
        except Exception as error:  # noqa: BLE001 - the notices stay in the store; the next turn shows whether it lasts
            unexpected.failed(SEND_NOTICES, error)
        else:
            unexpected.passed(SEND_NOTICES)

    def _looked_again(self, book: Book, intent: Intent, fence: int) -> Recheck:
        """Re-evaluate a step right before it starts. ``DECIDE_AGAIN``: it was settled without being started."""
        ended = (
            outlived(book, intent)
            or overtaken(book, intent, self.outside.clock.now())
            or not_taken_here(book, intent, node_orders=self.outside.node_orders)
        )
        look = Recheck.DECIDE_AGAIN if ended is not None else look_again(book, intent, self.mode)
        if look is Recheck.DECIDE_AGAIN:
            self._settle(intent, fence, ended or BRAKED)
        return Recheck.WAIT if look is Recheck.GO and self._is_full(intent) else look

    def _as_begun(self, intent: Intent) -> Intent:
        """The intent by this actor's own record: a step that it did not start counts as planned, whatever the store says."""
        if intent.state is not IntentState.STARTED or self.begun is None or self.begun.has(intent):
            return intent
        log.warning("event=step_not_begun_here intent=%s effect='it is checked like a new step'", intent.key)
        return replace(intent, state=IntentState.PLANNED)

    def _is_full(self, intent: Intent) -> bool:
        """Whether the actor's own limits hold the step back now, so that it is not handed out. A started step is always finished."""
        held = self.limits.full(intent.action) if self.limits and intent.state is IntentState.PLANNED else None
        return self._held(held)

    def _held(self, held: Full | None) -> bool:
        if held is not None and not self.held_back:
            self.held_back = held.text
        return held is not None

    def _say_held_back(self) -> None:
        """Log once when a limit of the actor's own begins to hold steps back, and once when it no longer does."""
        if bool(self.held_back) == self._held_said:
            return
        self._held_said = not self._held_said
        if self._held_said:
            log.error("event=own_limit_holds problem=%r", self.held_back)
        else:
            log.info("event=own_limit_over")

    def _may_begin(self, action: Action) -> bool:
        """Whether the actor's own limits let the step start; if so, it is counted. A job counts for the first of its nodes, as Slurm
        shows it now."""
        if self.limits is None or (kind := limited(action)) is None:
            return True
        what = str(action.target.node)
        if kind is LimitedStep.STOPPED and action.target.job is not None:
            what = f"job {action.target.job.job_id}"
            try:
                what = next(iter(self.outside.scheduler.job(action.target.job.job_id).nodes), what)
            except OutsideError as error:
                log.debug("event=job_unreadable job=%s error=%r", action.target.job, str(error))
        return not self._held(self.limits.begin(action, what))

    def _settle(self, intent: Intent, fence: int, outcome: IntentOutcome) -> None:
        try:
            self.store.finish_intent(intent.key, fence, outcome, self.outside.clock.now())
        except LeaderFencedOff as error:
            log.warning("event=fenced_off intent=%s error=%r", intent.key, str(error))

    def _note_controller(self) -> None:
        """Log one line when another process has become the controller of this machine."""
        found = self.holder()
        if found != self._acts_for:
            log.info("event=acts_for controller=%s", found or "-")
            self._acts_for = found

    def _lease(self) -> Lease | None:
        """The lease, if our controller holds it now."""
        lease = self.store.lease()
        return lease if idle(lease, self.holder(), self.outside.clock.now()) is None else None

    def _serving(self) -> Lease | None:
        """Like :meth:`_lease`, but log when there is no controller to act for."""
        lease, controller, clock = self.store.lease(), self.holder(), self.outside.clock
        why = idle(lease, controller, clock.now())
        self._idle.look(why, lease, controller, clock.monotonic_s())
        return lease if why is None else None

    def _outside_while_leading(self, fence: int) -> Outside:
        def still_leading() -> None:
            lease = self._lease()
            if lease is None or lease.fence != fence:
                raise LeaderFencedOff(
                    f"the lease of fence {fence} was lost in the middle of a step: the step is aborted"
                )

        return replace(
            self.outside,
            scheduler=while_leading(Scheduler, self.outside.scheduler, still_leading),
            provider=while_leading(Provider, self.outside.provider, still_leading),
        )

    def _reap(self) -> None:
        for queue, future in list(self._busy.items()):
            if future.done():
                del self._busy[queue]
                error = future.exception()
                if error is not None:
                    log.error("event=step_failed queue=%s error=%r", queue, error)

    def step(self, intent: Intent, fence: int) -> None:
        """One intent, from planned (or started, after a crash) to settled."""
        now = self.outside.clock.now
        try:
            self.before_step(intent, "planned")
            if intent.state is IntentState.PLANNED and now() - intent.planned_at > timedelta(seconds=STALE_S):
                self.store.finish_intent(intent.key, fence, STALE, now())
                return
            if intent.state is IntentState.PLANNED and isinstance(intent.action, _IRREVERSIBLE):
                said = last_words(self.store.load_book(now()), intent, self.outside)
                if said is not None:
                    self.store.finish_intent(intent.key, fence, said, now())
                    return
            held = (
                forbidden(self.policy, self.store.load_book(now()), intent, self.outside.scheduler)
                if self.policy
                else None
            )
            if held is not None:
                self.store.finish_intent(intent.key, fence, held, now())
                return
            if intent.state is IntentState.PLANNED and not self._may_begin(intent.action):
                return
            if self.begun is not None:
                self.begun.note(intent)
            self.store.start_intent(intent.key, fence, now())
            self.before_step(intent, "started")
            outcome = carry_out(intent, self._outside_while_leading(fence))
            self.before_step(intent, "acted")
            self.store.finish_intent(intent.key, fence, outcome, now())
            if self.begun is not None:
                self.begun.over(intent)
            level = logging.INFO if outcome.state is IntentState.DONE else logging.WARNING
            log.log(level, "event=step intent=%s state=%s outcome=%r", intent.key, outcome.state.value, outcome.text)
            self.before_step(intent, "finished")
        except LeaderFencedOff as error:
            if self.begun is not None:
                self.begun.over(intent)  # the new leader may mark it as started at any time; it is then evaluated again
            log.warning("event=fenced_off intent=%s error=%r", intent.key, str(error))
