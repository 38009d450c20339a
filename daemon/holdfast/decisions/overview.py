"""What Holdfast does now and why, and what waits for an operator, as ``holdfast status`` shows it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.brakes.held_back import held_back
from holdfast.decisions.repair import repair_progress
from holdfast.model.action import Intent, IntentState, Launch, Notify, TellOwner
from holdfast.model.book import Book, World
from holdfast.model.fleet import NodeGroup, group_of
from holdfast.model.incident import Incident, IncidentKind, IncidentState, Recovery
from holdfast.model.parts import Condition, PartState
from holdfast.model.policy import Mode
from holdfast_checks.result import Severity

_AT_WORK = {
    IncidentState.SUSPECTED: "checking whether it is dead",
    IncidentState.OPEN: "taking it out of service",
    IncidentState.CONTAINED: "out of service, its jobs first",
    IncidentState.REPAIRING: "repairing",
    IncidentState.VALIDATING: "validating its machine",
}
"""States in which the next step is Holdfast's."""
_MESSAGES = (Notify, TellOwner)


@dataclass(frozen=True, slots=True)
class Doing:
    """One open incident that Holdfast works on."""

    incident_id: str
    node: str
    state: str
    what: str
    """What is being done, in words."""
    fault: str
    """The incident's headline."""
    since: datetime
    step: str
    """The step in flight, ``Launch n17``; empty: none is, see ``reason``."""
    step_since: datetime | None
    """When it was planned; None: none is in flight."""
    reason: str
    """Why the step in flight, or why none."""
    due_at: datetime | None
    """When the next step is due at the latest; None: it depends on what is observed."""
    due: str
    """What is due then; empty: nothing is."""
    jobs: tuple[str, ...] = ()
    """Jobs that are being recovered for it, each with its phase."""


@dataclass(frozen=True, slots=True)
class WaitingItem:
    """One thing that waits for an operator."""

    kind: str
    """part, paused, brake, incident, held_job: for programs; another part of Holdfast may add a kind."""
    subject: str
    """The part, the brake, the node."""
    what: str
    since: datetime | None
    answer: str
    """The command, or the page, that answers it."""


@dataclass(frozen=True, slots=True)
class Overview:
    sentence: str
    """What Holdfast does now, and whether something needs an operator."""
    doing: tuple[Doing, ...]
    waiting: tuple[WaitingItem, ...]
    watched: int
    """Open incidents that call for nothing at present."""
    nodes: Mapping[str, int]
    """Group (:class:`~holdfast.model.fleet.NodeGroup`) → nodes."""


def overview(world: World | None, agents: Mapping[str, Sequence[str]], parts: Iterable[PartState]) -> Overview:
    """``agents``: node → the status of each of its agents. ``world`` None: the control loop has not turned yet."""
    doing = at_work(world) if world is not None else ()
    waiting = waits(world, parts)
    return Overview(
        sentence=_sentence(world, doing, waiting),
        doing=doing,
        waiting=waiting,
        watched=_watched(world) if world is not None else 0,
        nodes=_groups(world, agents),
    )


def _sentence(world: World | None, doing: Sequence[Doing], waiting: Sequence[WaitingItem]) -> str:
    needs = (
        "Nothing needs you" if not waiting else f"{_counted(len(waiting), 'thing')} need{'s' * (len(waiting) == 1)} you"
    )
    if world is None:
        return f"{needs}; the control loop has not turned yet: what Holdfast does is not known."
    if not doing:
        return (
            f"{needs}."
            if world.policy.mode is Mode.ACT
            else f"{needs}; in mode {world.policy.mode.value} nothing is done."
        )
    first = doing[0]
    step = f" ({first.step})" if first.step else ""
    more = f", and {_counted(len(doing) - 1, 'more incident')}" if len(doing) > 1 else ""
    return f"Healing {first.node}: {first.what}{step}{more}. {needs}."


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def at_work(world: World) -> tuple[Doing, ...]:
    """The worst first, then the oldest."""
    mine = [i for i in world.book.open_incidents() if i.state in _AT_WORK and not i.acknowledged and not _held_job(i)]
    jobs = _recoveries(world.book)
    mine.sort(key=lambda i: (i.severity is not Severity.FATAL, i.opened_at, i.id))
    return tuple(_doing(world, i, jobs.get(i.id, ())) for i in mine)


def _held_job(incident: Incident) -> bool:
    return incident.kind is IncidentKind.HELD_JOB


def _recoveries(book: Book) -> dict[str, list[Recovery]]:
    found: dict[str, list[Recovery]] = {}
    for recovery in book.recoveries.values():
        if not recovery.final:
            found.setdefault(recovery.incident_id, []).append(recovery)
    return found


def _doing(world: World, incident: Incident, recoveries: Iterable[Recovery]) -> Doing:
    step = in_flight(world.book.intents_of(incident.id))
    due_at, due = next_due(world, incident)
    return Doing(
        incident_id=incident.id,
        node=incident.node,
        state=incident.state.value,
        what=_AT_WORK[incident.state],
        fault=incident.headline,
        since=incident.state_since or incident.opened_at,
        step=f"{step.kind} {step.action.target.text}".strip() if step is not None else "",
        step_since=step.planned_at if step is not None else None,
        reason=(step.reason if step is not None else "") or incident.note,
        due_at=due_at,
        due=due,
        jobs=tuple(f"{r.job.job_id} {r.phase.value}" for r in sorted(recoveries, key=lambda r: r.id)),
    )


def in_flight(intents: Iterable[Intent]) -> Intent | None:
    """The newest step that is planned or started; messages to people only where there is no other."""
    going = [i for i in intents if i.state in (IntentState.PLANNED, IntentState.STARTED)]
    return next(iter(sorted(going, key=lambda i: (isinstance(i.action, _MESSAGES), -i.planned_at.timestamp()))), None)


def next_due(world: World, incident: Incident) -> tuple[datetime | None, str]:
    """When the next step is due at the latest, and which; None: it depends on what is observed."""
    if incident.goes_at is not None and incident.state is IncidentState.OPEN:
        return incident.goes_at, "the provider takes the machine away"
    if incident.state is IncidentState.VALIDATING and incident.state_since is not None:
        limit_s = world.policy.repair.validate_timeout_s
        return incident.state_since + timedelta(seconds=limit_s), "validated by then, or the attempt has failed"
    if incident.state is not IncidentState.REPAIRING:
        return None, ""
    return _repair_due(world, incident)


def _repair_due(world: World, incident: Incident) -> tuple[datetime | None, str]:
    tries = repair_progress.attempts(world, incident)
    latest = tries[-1] if tries else None
    if latest is not None and latest.state is IntentState.FAILED and latest.retryable:
        repair = world.policy.repair
        longest_s = repair.backoff_max_s if isinstance(latest.action, Launch) else None
        return world.again_at(
            tries, first_s=repair.backoff_s, longest_s=longest_s
        ), f"attempt {len(tries) + 1} of the step"
    begun = repair_progress.begun_at(world, incident)
    if begun is None:
        return None, ""
    return begun + timedelta(
        seconds=repair_progress.patience_s(world, incident)
    ), "the machine reports by then, or the step has failed"


def waits(world: World | None, parts: Iterable[PartState]) -> tuple[WaitingItem, ...]:
    """What is needed of an operator, the most urgent first: failed parts, a pause, brakes, incidents, held jobs."""
    failed = [_of_part(p) for p in parts if p.condition is Condition.FAILED]
    if world is None:
        return tuple(failed)
    book = world.book
    return (*failed, *_pause(book), *_brakes(book), *_incidents(book))


def _of_part(part: PartState) -> WaitingItem:
    return WaitingItem("part", part.name.value, part.text, None, part.next_step or "holdfast status --parts")


def _pause(book: Book) -> list[WaitingItem]:
    if not book.paused:
        return []
    return [WaitingItem("paused", "", f"paused by {book.paused}: nothing is done", book.paused_at, "holdfast resume")]


def _brakes(book: Book) -> list[WaitingItem]:
    holding = [b for _, b in sorted(book.brakes.items()) if b.released_at is None]
    held = held_back(book).text if holding else ""
    return [
        WaitingItem(
            "brake",
            b.kind.value,
            f"{b.reason}; held back now: {held}",
            b.tripped_at,
            f"holdfast release {b.kind.value}",
        )
        for b in holding
    ]


def _incidents(book: Book) -> list[WaitingItem]:
    mine = [i for i in book.open_incidents() if not i.acknowledged]
    asks = [i for i in mine if i.state is IncidentState.AWAITING_HUMAN]
    held = [i for i in mine if _held_job(i) and i.state is not IncidentState.AWAITING_HUMAN]
    return [*map(_ask, _oldest_first(asks)), *map(_hold, _oldest_first(held))]


def _oldest_first(incidents: Iterable[Incident]) -> list[Incident]:
    return sorted(incidents, key=lambda i: (i.state_since or i.opened_at, i.id))


def _ask(incident: Incident) -> WaitingItem:
    what = f"{incident.headline}: {incident.note}" if incident.note else incident.headline
    since = incident.state_since or incident.opened_at
    return WaitingItem("incident", incident.node, what, since, f"holdfast incident show {incident.id}")


def _hold(incident: Incident) -> WaitingItem:
    run = incident.run
    answer = f"scontrol release {run.job_id}" if run is not None else f"holdfast incident show {incident.id}"
    what = f"{incident.headline}: {incident.note}" if incident.note else incident.headline
    return WaitingItem("held_job", incident.node, what, incident.opened_at, answer)


def _watched(world: World) -> int:
    return sum(
        (i.state is IncidentState.WATCHING and not _held_job(i)) or i.acknowledged for i in world.book.open_incidents()
    )


def _groups(world: World | None, agents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    view, states = (world.view, _states(world.book)) if world is not None else (None, {})
    slurm = view.nodes if view is not None else {}
    counts: Counter[NodeGroup] = Counter()
    for name in {*slurm, *states, *agents}:
        node = slurm.get(name)
        words = (node.base_state, *node.flags) if node is not None else ()
        busy = view is not None and bool(view.jobs_on(name))
        counts[group_of(words, states.get(name, ()), agents.get(name, ()), busy=busy)] += 1
    return {group.value: counts[group] for group in NodeGroup if counts[group]}


def _states(book: Book) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for incident in book.open_incidents():
        found.setdefault(incident.node, []).append(incident.state.value)
    return found
