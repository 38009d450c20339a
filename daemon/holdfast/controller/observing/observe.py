"""One immutable view of the world per cycle: the state from the store, Slurm's view, the agents' reports. The loop's only input."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from holdfast import unexpected
from holdfast.controller.observing.agents import AgentRegistry
from holdfast.controller.observing.background import BackgroundWatch
from holdfast.controller.observing.claims import known_claims
from holdfast.controller.observing.head_reach import HeadReach
from holdfast.controller.timing import clock_steps
from holdfast.controller.timing.clock_steps import ClockStep
from holdfast.decisions.common.het_jobs import whole_jobs
from holdfast.decisions.elastic.shrink import served_by
from holdfast.decisions.nodes.resumed import in_question
from holdfast.model.book import Book, Change, SeenDown, World
from holdfast.model.errors import NotFound, OutsideError
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.absence import Missing, seen_twice, unexpected_in
from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job, Node
from holdfast.ports import Clock, Scheduler, Store

log = logging.getLogger(__name__)

SLURM = "slurm"
"""Part of this process that reads Slurm (:mod:`holdfast.unexpected`)."""
COLD_START_S = 30.0
"""After a start, nothing is concluded from silence for this long: every agent gets time to report first (3 heartbeats)."""
SLURM_GAP_S = 15.0
"""A slurmctld that did not answer for longer was away: the node states that it shows right after its return are old."""
_SHOWS_GPUS = HOLDING_STATES - {"COMPLETING"}
"""States of a job in which Slurm shows which GPUs it holds."""
CLOCK_JUMP_S = 5.0
"""A clock that gains or loses more between two cycles was set (or the machine slept): earlier reports then seem too old."""


@dataclass
class SlurmWatch:
    """Slurm's latest view. Refreshed in a separate thread, so that a hanging ``scontrol`` delays nothing."""

    scheduler: Scheduler
    view: ClusterView | None = None
    error: str | None = None
    back_at: datetime | None = None
    """When Slurm last answered again after more than :data:`SLURM_GAP_S` without an answer, or was seen to have restarted; None: it has
    not been away."""
    missing: Missing = field(default_factory=Missing)
    """Nodes and jobs that the last reading lacked for the first time; the view still shows them."""

    @property
    def lacks_something(self) -> bool:
        """Whether the last reading lacked something that does not normally disappear: another reading shows whether it is gone."""
        return self.view is not None and unexpected_in(self.view, self.missing)

    def refresh(self) -> None:
        """Read Slurm once (twice at the first call). A failure keeps the old view, which ages until decisions freeze."""
        try:
            before = self.view if self.view is not None else self.scheduler.view()
            view, missing = seen_twice(before, remember(self.view, self.scheduler.view()), self.missing)
        except OutsideError as error:
            if self.error is None:
                log.warning("event=slurm_unavailable error=%r", str(error))
            self.error = str(error)
            return
        except Exception as error:  # noqa: BLE001 - an answer that no code expects: as good as none
            unexpected.failed(SLURM, error)
            self.error = f"{type(error).__name__}: {error}"
            return
        unexpected.passed(SLURM)
        if self.error is not None:
            log.info("event=slurm_back")
            if self.view is None or view.read_at - self.view.read_at > timedelta(seconds=SLURM_GAP_S):
                self.back_at = view.read_at
        if _started(self.view, view):
            log.info("event=slurmctld_started")
            self.back_at = view.read_at
        self.view, self.missing, self.error = view, missing, None

    def nodes_now(self, names: Iterable[str]) -> dict[str, Node]:
        """Read only these nodes, and leave the view unchanged. Empty: Slurm does not show them all."""
        try:
            return {name: self.scheduler.node(name) for name in names}
        except OutsideError:
            return {}
        except Exception as error:  # noqa: BLE001 - all of Slurm is read instead
            unexpected.failed(SLURM, error, "nodes")
            return {}

    def refresh_jobs(self, job_ids: Iterable[int]) -> None:
        """Read only these jobs again, between two full readings, to record the moment at which one stops or starts."""
        if self.view is None:
            return
        fresh: dict[int, Job] = {}
        for job_id in job_ids:
            try:
                fresh[job_id] = self.scheduler.job(job_id)
            except NotFound:
                continue  # the next full reading shows it gone
            except OutsideError:
                return
            except Exception as error:  # noqa: BLE001 - the next full reading shows whether it lasts
                unexpected.failed(SLURM, error, f"job {job_id}")
                return
        self.view = remember(self.view, replace(self.view, jobs={**self.view.jobs, **fresh}))


def _started(before: ClusterView | None, after: ClusterView) -> bool:
    """Whether slurmctld has restarted, however briefly it was away: then nodes are UNKNOWN until their slurmd registers."""
    known = {name for name, node in before.nodes.items() if node.unknown} if before is not None else set[str]()
    return any(node.unknown and name not in known for name, node in after.nodes.items())


def remember(before: ClusterView | None, after: ClusterView) -> ClusterView:
    """The new view with job data that Slurm no longer shows: the GPUs of a run that is over, and what a job waited for."""
    return remember_dependencies(before, remember_gpus(before, after))


def remember_dependencies(before: ClusterView | None, after: ClusterView) -> ClusterView:
    """Keep a job's last dependency that was seen: Slurm drops it once it is met."""
    known = before.jobs if before is not None else {}
    return replace(after, jobs={n: _with_dependency(known, job) for n, job in after.jobs.items()})


def _with_dependency(known: Mapping[int, Job], job: Job) -> Job:
    if job.dependency:
        return job
    seen = known.get(job.key.job_id)
    if seen is None or not job.continues(seen.key):  # an array element has its own record once it has started
        seen = known.get(job.array_job_id) if job.array_job_id is not None else None
    if seen is None or seen.dependency is None or seen.uid != job.uid or seen.dependency == job.dependency:
        return job
    return replace(job, dependency=seen.dependency)


def remember_gpus(before: ClusterView | None, after: ClusterView) -> ClusterView:
    """Keep which GPUs a job held: Slurm drops this at the job's end, and jobs affected by a GPU fault are determined later, too. Nothing is
    known of a run that was never seen while it held its nodes."""
    known = before.jobs if before is not None else {}
    return replace(after, jobs={n: _with_gpus(known.get(n), job) for n, job in after.jobs.items()})


def _with_gpus(before: Job | None, job: Job) -> Job:
    if job.gpu_indices or job.shared_indices or not job.nodes:
        return job
    if before is not None and before.gpus_known and _same_run(before, job):
        return replace(job, gpu_indices=before.gpu_indices, shared_indices=before.shared_indices, gpus_known=True)
    return job if job.state in _SHOWS_GPUS else replace(job, gpus_known=False)


def _same_run(held: Job, job: Job) -> bool:
    return (held.key, held.restarts, held.nodes) == (job.key, job.restarts, job.nodes)


def seen_out(before: Mapping[str, datetime], book: Book, view: ClusterView | None) -> dict[str, datetime]:
    """Nodes of open incidents: when each was last seen out of service for a reason that slurmctld itself did not set."""
    names = {incident.node for incident in book.open_incidents()}
    found = {name: at for name, at in before.items() if name in names}
    if view is None:
        return found
    shown = (view.nodes[name] for name in names & view.nodes.keys())
    return found | {node.name: view.read_at for node in shown if node.out_of_service and not node.down_by_slurm}


DOWN_FOR = timedelta(minutes=2)
"""How long a DOWN that slurmctld itself set is remembered after it ends: the checks of the agent have run by then."""


def seen_down(before: Mapping[str, SeenDown], book: Book, view: ClusterView | None) -> dict[str, SeenDown]:
    """Nodes of open incidents that slurmctld itself has set DOWN, now or a short while ago."""
    if view is None:
        return dict(before)
    names = {incident.node for incident in book.open_incidents()}
    kept = {name: seen for name, seen in before.items() if name in names and view.read_at - seen.last <= DOWN_FOR}
    down = (view.nodes[name] for name in names & view.nodes.keys() if view.nodes[name].down_by_slurm)
    return kept | {
        node.name: SeenDown(
            since=kept[node.name].since if node.name in kept else view.read_at,
            last=view.read_at,
            rebooted=node.rebooted_unexpectedly,
        )
        for node in down
    }


def still_served(
    before: frozenset[tuple[int, int]], book: Book, view: ClusterView | None
) -> frozenset[tuple[int, int]]:
    """Jobs for which groups of elastic jobs were asked to leave, for as long as they wait."""
    served = before | served_by(book)
    waiting = (
        {(j.key.job_id, j.key.submitted_s) for j in view.jobs.values() if j.state == "PENDING"} if view else served
    )
    return served & waiting if served else served


def fresh_chance() -> str:
    """256 random bits that cannot be guessed."""
    return secrets.token_hex(32)


@dataclass
class Observer:
    """Assembles the world."""

    store: Store
    slurm: SlurmWatch
    agents: AgentRegistry
    clock: Clock
    policy: Policy
    cold_start_s: float = COLD_START_S
    draw: Callable[[], str] = fresh_chance
    listening_since: datetime | None = field(default=None)
    background: BackgroundWatch = field(init=False)
    head: HeadReach = field(init=False)
    _clock_ahead_s: float | None = field(default=None, init=False)
    """Wall clock minus monotonic clock, as of the last cycle."""
    led_at: datetime | None = None
    """A time that the clock showed shortly before the previous leader ended; None: not known."""
    new_step_s: float | None = None
    """A step of the clock that is not recorded yet."""
    _last_out: Mapping[str, datetime] = field(default_factory=dict, init=False)
    _seen_down: Mapping[str, SeenDown] = field(default_factory=dict, init=False)
    _served: frozenset[tuple[int, int]] = field(default=frozenset(), init=False)
    _steps: tuple[ClockStep, ...] = field(default=(), init=False)
    _recorded: Mapping[datetime, datetime] = field(default_factory=dict, init=False)
    """Times of the newest world that differ in the store, because they are from before a step of the clock."""
    _before: Book | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.background = BackgroundWatch(self.store, self.slurm.scheduler)
        self.head = HeadReach(self.clock, self.policy.death.probe_timeout_s)

    def world(self) -> World:
        """The world as of now. Raises Unavailable when the store does not answer."""
        now = self.clock.now()
        first, step_s = self.listening_since is None, self._stepped(now)
        if first:
            self._steps = clock_steps.read(self.store.note(clock_steps.NOTE))
        elif step_s:
            self._remember_step(now, step_s)
        book = self.store.load_book(now, clock_steps.ahead(self._steps))
        if first:
            self._missed_step(now, book)
        book = replace(book, checkpoints=known_claims(book, self.slurm.view, now))
        if self.listening_since is None:
            self.listening_since = now
        cold = now - self.listening_since < timedelta(seconds=self.cold_start_s)
        view = whole_jobs(self.slurm.view) if self.slurm.view is not None else None
        self._last_out = seen_out(self._last_out, book, view)
        self._seen_down = seen_down(self._seen_down, book, view)
        self._served = still_served(self._served, book, view)
        world = World(
            now=now,
            policy=self.policy,
            book=book,
            view=view,
            agents=self.agents.views(),
            listening_since=self.listening_since,
            led_until=self.led_at,
            frozen="the controller (or its clock) has just restarted and still waits for its agents" if cold else None,
            last_out=self._last_out,
            seen_down=self._seen_down,
            served=self._served,
            background=self.background.newest,
            head=self.head.newest,
            slurm_back_at=self.slurm.back_at,
            chance=self.draw(),
        )
        return self._carried(self._with_start(world) if in_question(world) else world)

    def _carried(self, world: World) -> World:
        self.background.steps = self._steps
        carried, self._recorded = clock_steps.carry(world, self._steps)
        self._before = world.book
        return carried

    def as_recorded(self, change: Change) -> Change:
        """A change of the newest world, with times as the store is to have them."""
        return clock_steps.as_recorded(change, self._recorded, self._steps, self.clock.now())

    def _remember_step(self, now: datetime, step_s: float) -> None:
        known = clock_steps.own_times(self._before) if self._before is not None else frozenset()
        step = ClockStep(now, step_s, known)
        self.agents.replace_all(partial(clock_steps.carry_agent, step=step))
        self.head.newest = {n: clock_steps.carry_probe(p, step) for n, p in self.head.newest.items()}
        self._last_out = {node: at + step.by for node, at in self._last_out.items()}
        self._seen_down = {
            node: replace(seen, since=seen.since + step.by, last=seen.last + step.by)
            for node, seen in self._seen_down.items()
        }
        if self.slurm.back_at is not None:
            self.slurm.back_at += step.by
        if self.led_at is not None:
            self.led_at += step.by
        self.listening_since = now
        self._put_down(step)

    def _missed_step(self, now: datetime, book: Book) -> None:
        """Detect that the clock was set back while no controller led: it shows an earlier time than it showed the previous leader. All
        reports that this process has received came after the step. Its size is known except for the time without a leader, which
        appears not to have passed."""
        back_s = (self.led_at - now).total_seconds() if self.led_at is not None else 0.0
        if back_s > CLOCK_JUMP_S:
            log.warning("event=clock_step seconds=%.1f missed=true", -back_s)
            to_come = frozenset(at for at in clock_steps.own_times(book) if at > now)
            self._put_down(ClockStep(now, -back_s, to_come))
            self.led_at = now

    def _put_down(self, step: ClockStep) -> None:
        self._steps = (*self._steps, step)[-clock_steps.MOST :]
        self.new_step_s = step.by_s
        self.store.set_note(clock_steps.NOTE, clock_steps.write(self._steps))

    def _with_start(self, world: World) -> World:
        """Add the time at which slurmctld started, and a view that was read after it; no view where Slurm does not answer."""
        try:
            text = self.slurm.scheduler.config().get("BOOT_TIME", "")
        except OutsideError as error:
            log.warning("event=slurmctld_start_unavailable error=%r", str(error))
            return replace(world, view=None)
        self.slurm.refresh()
        view = self.slurm.view if self.slurm.error is None else None
        started_at = datetime.fromtimestamp(int(text), UTC) if text.isdecimal() else None
        return replace(world, view=whole_jobs(view) if view is not None else None, slurmctld_started_at=started_at)

    def _stepped(self, now: datetime) -> float:
        """Seconds by which the clock was set since the last cycle; 0: it was not."""
        before, self._clock_ahead_s = self._clock_ahead_s, now.timestamp() - self.clock.monotonic_s()
        step_s = 0.0 if before is None else self._clock_ahead_s - before
        if abs(step_s) <= CLOCK_JUMP_S:
            return 0.0
        log.warning("event=clock_step seconds=%.1f", step_s)
        return step_s
