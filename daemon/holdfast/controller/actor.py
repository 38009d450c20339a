"""The actor: a small process without a listener, and the only one with rights in Slurm and at the provider.

It takes typed intents from the store, looks at the brakes once more, writes "started", acts, writes the outcome. Steps of one incident
go in their order within a lane (Slurm, provider, people); incidents do not wait for each other, and slow launches delay no drain."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from threading import Event as Stop
from typing import cast

from holdfast import unexpected
from holdfast.controller import facts
from holdfast.controller.act import AT_NODES, carry_out
from holdfast.controller.death import evidence
from holdfast.controller.hands_off import in_window
from holdfast.controller.idle_actor import IdleWatch, idle
from holdfast.controller.lanes import lane, pools
from holdfast.controller.leading import WhileLeading
from holdfast.controller.outside import Outside
from holdfast.model.action import (
    LIVES,
    NEVER_BEGUN,
    Action,
    AdoptSpare,
    Assign,
    CheckInstance,
    Drain,
    DropHold,
    HoldJob,
    HoldNodes,
    Intent,
    IntentState,
    Launch,
    Notify,
    PromoteSpare,
    Reboot,
    Replace,
    Requeue,
    SetDown,
    StopStart,
    TellOwner,
    Terminate,
    Undrain,
)
from holdfast.model.book import Book
from holdfast.model.budgets import budget_of
from holdfast.model.errors import FencedOff, NotFound, OutsideError
from holdfast.model.incident import Incident, IncidentKind, IncidentState
from holdfast.model.maintenance import KeepWindow, window_of
from holdfast.model.policy import Mode
from holdfast.ports import Lease, Outcome, Provider, Scheduler, Store

log = logging.getLogger(__name__)

HAND_OUT, TAKE = "hand_out", "take_intent"
"""Parts of this process: reading what is due, and the second look at one step (:mod:`holdfast.unexpected`)."""
STALE_S = 600.0
"""A planned step that was not begun for so long is decided anew instead of done late."""
LOOK_S = 0.5
"""How often the store is looked at without a nudge."""
_IRREVERSIBLE = (SetDown, Terminate, Replace, Reboot, StopStart, Launch)
_BRAKED = (Drain, Requeue, HoldJob)
_NOT_AFTER_THE_END = (
    *_BRAKED,
    SetDown,
    Undrain,
    HoldNodes,
    PromoteSpare,
    Launch,
    Assign,
    AdoptSpare,
    Replace,
    Reboot,
    StopStart,
)


class Look(Enum):
    """The guard's second look, right before a step."""

    GO = "go"
    WAIT = "wait"
    """A pause, and observe mode, hold everything but telling, an incident that cannot be read all but a drain;
    a step that was begun under a brake is ended once the brake is released."""
    ANEW = "anew"
    """A brake overtook it: back to the decision, so that a job that fails by itself meanwhile need not wait for the release."""


def look_again(book: Book, intent: Intent, mode: Mode = Mode.ACT) -> Look:
    if isinstance(intent.action, Notify | CheckInstance | KeepWindow):
        return Look.GO
    if mode is Mode.OBSERVE or book.paused is not None or _unreadable(book, intent):
        return Look.WAIT
    tripped = max((b.tripped_at for b in book.brakes_on(intent.incident_id)), default=None)
    # What its own cycle still allowed stops nobody, so a step of that very moment is looked at like an older one.
    if tripped is None or intent.planned_at > tripped or not _braked(intent):
        return Look.GO
    if isinstance(intent.action, Requeue) and _stops_nobody(book, intent.action):
        return Look.GO
    return Look.ANEW if intent.state is IntentState.PLANNED else Look.WAIT


def _braked(intent: Intent) -> bool:
    """New drains, stops of jobs, and repair steps that have not begun."""
    begins = intent.state is IntentState.PLANNED and budget_of(intent.action) is not None
    return begins or isinstance(intent.action, _BRAKED)


def _unreadable(book: Book, intent: Intent) -> bool:
    exempt = isinstance(intent.action, DropHold | TellOwner)
    return not exempt and facts.unreadable_incident(book, intent.incident_id, intent.action) is not None


HEARD_AGAIN = Outcome(IntentState.FAILED, "the node was heard again meanwhile", retryable=True)
"""Retryable: it may die after all."""
BRAKED = Outcome(IntentState.FAILED, "a brake tripped before it was begun; to be decided again", retryable=True)
STALE = Outcome(
    IntentState.FAILED, "planned too long ago; to be decided again", retryable=True, result={NEVER_BEGUN: True}
)


def _stops_nobody(book: Book, action: Requeue) -> bool:
    """The run is over already: jobs that failed or lost a node are recovered while a brake holds."""
    recovery = book.recovery_of(action.job, action.restarts)
    return recovery is not None and not recovery.stops_running_job


def outlived(book: Book, intent: Intent) -> Outcome | None:
    """How a step ends that was planned, not begun, and is no longer wanted: an operator ended its incident or took it over, or the dead
    node is heard again. None: it is still wanted."""
    incident = book.incidents.get(intent.incident_id)
    action = intent.action
    if intent.state is not IntentState.PLANNED or incident is None:
        return None
    ends = isinstance(action, _NOT_AFTER_THE_END) or _of_the_dead(action) or _of_its_own_machine(incident, action)
    if (_of_the_dead(action) and not incident.dead) or _of_the_silent(action, incident):
        return HEARD_AGAIN
    if not ends or (incident.open and not incident.acknowledged):
        return None
    how = "taken over" if incident.acknowledged else "closed"
    return Outcome(IntentState.REFUSED, f"the incident was {how} meanwhile: {incident.note}")


def _of_its_own_machine(incident: Incident, action: Action) -> bool:
    """The end of the machine that an operator has taken over; not of one that was launched for it."""
    mine = isinstance(action, Terminate) and action.instance_id == incident.instance_id
    return mine and incident.acknowledged


def overtaken(book: Book, intent: Intent, now: datetime) -> Outcome | None:
    """How a step at a node ends that was planned, not begun, before an operator took the node for maintenance. None: it may be done."""
    if intent.state is not IntentState.PLANNED or not isinstance(intent.action, AT_NODES):
        return None
    window = window_of(book.windows, intent.action.node, now)
    return Outcome(IntentState.FAILED, in_window(window).text, retryable=True) if window is not None else None


def _of_the_dead(action: Action) -> bool:
    """Steps that only the death of a node calls for; tasks stuck on a living one call for a DOWN, too."""
    return (isinstance(action, SetDown) and action.node_dead) or (isinstance(action, Terminate) and action.fence)


def _of_the_silent(action: Action, incident: Incident) -> bool:
    """A step at the machine of a silent node, planned before the node reported again and was sent to validation."""
    if incident.state is not IncidentState.VALIDATING or incident.rung:
        return False
    its_own = (incident.serving_id, incident.instance_id)
    return (
        isinstance(action, Terminate | Replace | Reboot | StopStart) and action.instance_id in its_own
    ) or isinstance(action, Launch)


_LAST_WORDS_S = 1.0
"""How long a node that is thought dead has to answer a connection before a step that cannot be taken back."""
ANSWERS = Outcome(IntentState.FAILED, "the node answers a connection: it lives", retryable=True, result={LIVES: True})
POWERED = Outcome(
    IntentState.FAILED, "its power was off, and is on again: it may be booting", retryable=True, result={LIVES: True}
)
NOT_ASKED = Outcome(
    IntentState.FAILED, "the node could not be asked once more: the actor has no descriptor left", retryable=True
)
_ON = frozenset({"pending", "running"})


def last_words(book: Book, intent: Intent, outside: Outside) -> Outcome | None:
    """The node is asked once more, right before a step that only its silence calls for. None: it says nothing, or was not silent."""
    incident, action = book.incidents.get(intent.incident_id), intent.action
    if incident is None or not isinstance(action, SetDown | Terminate | Replace | Reboot | StopStart | Launch):
        return None
    if not (incident.dead or (incident.kind is IncidentKind.SILENCE and not incident.repair_attempt)):
        return None
    if isinstance(action, Terminate) and action.instance_id != incident.serving_id:
        return None
    if (ended := outlived(book, intent)) is not None:
        return ended
    if not isinstance(action, SetDown) and evidence.shown_off(book, incident) and _on_again(incident, outside):
        return POWERED
    try:
        node = outside.scheduler.node(action.node)
    except OutsideError:
        return None  # the step itself looks at Slurm, and says what it needs
    reached = outside.reach({action.node: (node.address, node.port)}, _LAST_WORDS_S)
    if action.node in reached.untried:
        return NOT_ASKED
    if action.node not in reached.answered:
        return None
    return None if isinstance(action, Terminate) and _seen_off(action.instance_id, outside) else ANSWERS


def _on_again(incident: Incident, outside: Outside) -> bool:
    """Whether the provider shows the machine with its power on; not where it does not answer: the step itself needs it."""
    try:
        return outside.provider.instance(incident.serving_id).state in _ON
    except OutsideError:
        return False


def _seen_off(instance_id: str, outside: Outside) -> bool:
    """The provider shows the machine off now: what answers under its node's address is the machine that took its place."""
    try:
        return outside.provider.instance(instance_id).state in evidence.OFF
    except NotFound:
        return True
    except OutsideError:
        return False


@dataclass
class Actor:
    """Runs until stopped. It acts for the controller of its own machine, and stands by while another one leads."""

    store: Store
    outside: Outside
    holder: Callable[[], str | None]
    """Holder in the lease that means that controller, read at each look at the lease; None: none is known, so there is none to act for."""
    wait: Callable[[float], object]
    """Waits for a nudge, at most so many seconds."""
    ring: Callable[[], None]
    """Wakes the controller, and the actor itself: an outcome is in, the next step of the lane may begin."""
    before_step: Callable[[Intent, str], None] = lambda _intent, _moment: None
    """Called at each boundary of a step (``planned``, ``started``, ``acted``, ``finished``); for drills."""
    turned: Callable[[], None] = lambda: None
    """Called after each complete look: what tells systemd that this process is alive."""
    pools: Callable[[], AbstractContextManager[Mapping[str, Executor]]] = pools
    """Makes the workers of each lane (``controller/lanes.py``)."""
    mode: Mode = Mode.ACT
    """As this process's own configuration has it; in observe steps that were planned before wait."""
    problem: str = ""
    """Why the last look failed, for the controller and for people; empty: it did not."""
    _acts_for: str | None = None
    _idle: IdleWatch = field(default_factory=IdleWatch)
    _busy: dict[tuple[str, str], Future[None]] = field(default_factory=dict)

    def run(self, stop: Stop) -> None:
        """The actor's loop: look, hand out, wait."""
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
                    self.problem = ""
                self.turned()
                self.wait(LOOK_S)

    def _hand_out(self, workers: Mapping[str, Executor]) -> None:
        self._reap()
        self._note_controller()
        lease = self._serving()
        if lease is None:
            return
        intents = self.store.due_intents()
        if not intents:
            return
        book = self.store.load_book(self.outside.clock.now())
        taken: set[tuple[str, str]] = set(self._busy)
        for intent in intents:
            queue = (intent.incident_id, lane(intent.action))
            if queue in taken:
                continue
            try:
                look = self._looked_again(book, intent, lease.fence)
            except OutsideError:
                raise
            except Exception as error:  # noqa: BLE001 - this one waits, with what comes after it; the others do not
                unexpected.failed(TAKE, error, intent.key)
                look = Look.WAIT
            if look is Look.ANEW:
                continue
            taken.add(queue)
            if look is Look.GO:
                future = workers[queue[1]].submit(self.step, intent, lease.fence)
                self._busy[queue] = future
                future.add_done_callback(lambda _done: self.ring())

    def _looked_again(self, book: Book, intent: Intent, fence: int) -> Look:
        """The second look at a step; ANEW: it was settled without being begun."""
        ended = outlived(book, intent) or overtaken(book, intent, self.outside.clock.now())
        look = Look.ANEW if ended is not None else look_again(book, intent, self.mode)
        if look is Look.ANEW:
            self._settle(intent, fence, ended or BRAKED)
        return look

    def _settle(self, intent: Intent, fence: int, outcome: Outcome) -> None:
        try:
            self.store.finish_intent(intent.key, fence, outcome, self.outside.clock.now())
        except FencedOff as error:
            log.warning("event=fenced_off intent=%s error=%r", intent.key, str(error))

    def _note_controller(self) -> None:
        """One line when another process is the controller of this machine."""
        found = self.holder()
        if found != self._acts_for:
            log.info("event=acts_for controller=%s", found or "-")
            self._acts_for = found

    def _lease(self) -> Lease | None:
        """The lease, if our controller holds it now."""
        lease = self.store.lease()
        return lease if idle(lease, self.holder(), self.outside.clock.now()) is None else None

    def _serving(self) -> Lease | None:
        """As :meth:`_lease`; that there is none to act for is said in the log."""
        lease, controller, clock = self.store.lease(), self.holder(), self.outside.clock
        why = idle(lease, controller, clock.now())
        self._idle.look(why, lease, controller, clock.monotonic_s())
        return lease if why is None else None

    def _outside_while_leading(self, fence: int) -> Outside:
        def still_leading() -> None:
            lease = self._lease()
            if lease is None or lease.fence != fence:
                raise FencedOff(f"the lease of fence {fence} was lost in the middle of a step: it is not gone on with")

        return replace(
            self.outside,
            scheduler=cast("Scheduler", WhileLeading(self.outside.scheduler, still_leading)),
            provider=cast("Provider", WhileLeading(self.outside.provider, still_leading)),
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
            self.store.start_intent(intent.key, fence, now())
            self.before_step(intent, "started")
            outcome = carry_out(intent, self._outside_while_leading(fence))
            self.before_step(intent, "acted")
            self.store.finish_intent(intent.key, fence, outcome, now())
            level = logging.INFO if outcome.state is IntentState.DONE else logging.WARNING
            log.log(level, "event=step intent=%s state=%s outcome=%r", intent.key, outcome.state.value, outcome.text)
            self.before_step(intent, "finished")
        except FencedOff as error:
            log.warning("event=fenced_off intent=%s error=%r", intent.key, str(error))
