"""What Holdfast does now and why, and what waits for an operator, as ``holdfast status`` shows it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.brakes.held_back import why_now
from holdfast.decisions.brakes.held_step import step_held
from holdfast.decisions.common.node_policy import policy_of
from holdfast.decisions.common.wording import counted
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.repair import repair_progress
from holdfast.model.actions.action import Intent, IntentState, Launch, Notify, TellOwner
from holdfast.model.book import Book, World
from holdfast.model.incidents.fleet import NodeGroup, group_of
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState, Recovery
from holdfast.model.notice import PendingAddress, PendingMessage
from holdfast.model.operators.proposals import ProposalRecord, ProposalState, proposal_id
from holdfast.model.parts import Condition, PartName, PartState
from holdfast.model.policies.policy import Mode
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
    held: bool = False
    """Nothing is done about it at present; ``reason`` says why."""


@dataclass(frozen=True, slots=True)
class WaitingItem:
    """One thing that waits for an operator."""

    kind: str
    """part, paused, brake, proposal, incident, held_job, notice: for programs; another part of Holdfast may add a kind."""
    subject: str
    """The part, the brake, the node, the job, the message."""
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
    """Group (:class:`~holdfast.model.incidents.fleet.NodeGroup`) → nodes."""


def overview(
    world: World | None,
    agents: Mapping[str, Sequence[str]],
    parts: Iterable[PartState],
    outbox: Iterable[PendingMessage] = (),
) -> Overview:
    """``agents``: node → the status of each of its agents. ``outbox``: messages to people that an address has not taken. ``world`` None:
    the control loop has not turned yet."""
    parts = tuple(parts)
    doing = at_work(world) if world is not None else ()
    waiting = waits(world, parts, outbox)
    return Overview(
        sentence=_sentence(world, doing, waiting, _halted(parts)),
        doing=doing,
        waiting=waiting,
        watched=_watched(world) if world is not None else 0,
        nodes=_groups(world, agents),
    )


_NEEDED = (PartName.STORE, PartName.LOOP, PartName.ACTOR, PartName.SLURM)
"""Parts without which no step is taken."""


def _halted(parts: Iterable[PartState]) -> tuple[str, ...]:
    return tuple(p.name.value for p in parts if p.name in _NEEDED and p.condition is Condition.FAILED)


def _sentence(
    world: World | None, doing: Sequence[Doing], waiting: Sequence[WaitingItem], halted: Sequence[str]
) -> str:
    needs = (
        "Nothing needs you" if not waiting else f"{counted(len(waiting), 'thing')} need{'s' * (len(waiting) == 1)} you"
    )
    if world is None:
        return f"{needs}; the control loop has not turned yet: what Holdfast does is not known."
    if halted:
        return f"{needs}; nothing is done now: {', '.join(halted)} failed."
    if world.policy.mode is Mode.OBSERVE:
        return f"{needs}; in mode observe nothing is done."
    active = [each for each in doing if not each.held]
    held = f"{counted(len(doing) - len(active), 'incident')} held back" if len(doing) > len(active) else ""
    if not active:
        return f"{needs}; {held}." if held else f"{needs}."
    first = active[0]
    step = f" ({first.step})" if first.step else ""
    more = f", and {counted(len(active) - 1, 'more incident')}" if len(active) > 1 else ""
    return f"Healing {first.node}: {first.what}{step}{more}{f'; {held}' if held else ''}. {needs}."


def at_work(world: World) -> tuple[Doing, ...]:
    """The worst first, then the oldest; those about which nothing is done at present last."""
    mine = [i for i in world.book.open_incidents() if i.state in _AT_WORK and not i.acknowledged and not _held_job(i)]
    jobs = _recoveries(world.book)
    mine.sort(key=lambda i: (i.severity is not Severity.FATAL, i.opened_at, i.id))
    found = [_doing(world, i, jobs.get(i.id, ())) for i in mine]
    return tuple(sorted(found, key=lambda each: each.held))


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
    held = _held_back(world, incident) if step is None else ""
    return Doing(
        incident_id=incident.id,
        node=incident.node,
        state=incident.state.value,
        what="held back" if held else _AT_WORK[incident.state],
        fault=incident.headline,
        since=incident.state_since or incident.opened_at,
        step=f"{step.kind} {step.action.target.text}".strip() if step is not None else "",
        step_since=step.planned_at if step is not None else None,
        reason=held or (step.reason if step is not None else "") or incident.note,
        due_at=None if held else due_at,
        due="" if held else due,
        jobs=tuple(f"{r.job.job_id} {r.phase.value}" for r in sorted(recoveries, key=lambda r: r.id)),
        held=bool(held),
    )


_UNDONE = frozenset({ProposalState.OPEN, ProposalState.SNOOZED, ProposalState.DISMISSED})
"""Proposals whose step is not done, and for which the incident stays where it is."""


def _held_back(world: World, incident: Incident) -> str:
    """Why nothing is done about an incident without a step in flight; empty: its next step is Holdfast's."""
    if world.book.paused:
        return f"paused by {world.book.paused}"
    hands = hands_off.on(world, incident.node)
    if hands is not None and (hands.holds_incidents or hands.hands is hands_off.Hands.JUST_BACK):
        return hands.text
    policy = policy_of(incident.node, world)
    if policy.mode is Mode.OBSERVE:
        return f"nothing is done: {policy.why}"
    asked = next((r for r in incident.proposals if r.unseen_since is None and r.status in _UNDONE), None)
    if asked is None:
        held = step_held(world, incident)
        return held.text if held is not None else ""
    answered = f"{asked.status.value} by {asked.by}" if asked.by else "waits for an answer"
    return f"{answered} (holdfast proposals --all): {asked.what}"


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


def waits(
    world: World | None, parts: Iterable[PartState], outbox: Iterable[PendingMessage] = ()
) -> tuple[WaitingItem, ...]:
    """What is needed of an operator, the most urgent first: failed parts, a pause, brakes, proposals, incidents, held jobs, messages that
    were not delivered."""
    failed = [_of_part(p) for p in parts if p.condition is Condition.FAILED]
    unsent = _unsent(outbox)
    if world is None:
        return (*failed, *unsent)
    book = world.book
    return (*failed, *_pause(book), *_brakes(world), *_proposals(book), *_incidents(book), *unsent)


def _of_part(part: PartState) -> WaitingItem:
    return WaitingItem("part", part.name.value, part.text, None, part.next_step or "holdfast status --parts")


def _pause(book: Book) -> list[WaitingItem]:
    if not book.paused:
        return []
    return [WaitingItem("paused", "", f"paused by {book.paused}: nothing is done", book.paused_at, "holdfast resume")]


def _brakes(world: World) -> list[WaitingItem]:
    holding = [b for _, b in sorted(world.book.brakes.items()) if b.holds]
    return [
        WaitingItem("brake", b.name, why_now(world, b, "; held back now: "), b.tripped_at, f"holdfast release {b.name}")
        for b in holding
    ]


def _proposals(book: Book) -> list[WaitingItem]:
    """Those that an operator has to answer; what was snoozed is asked again."""
    open_ones = [(i, r) for i in book.open_incidents() for r in i.proposals if r.status is ProposalState.OPEN]
    return [_proposed(i, r) for i, r in sorted(open_ones, key=lambda each: (each[1].asked_at, each[0].id))]


def _proposed(incident: Incident, record: ProposalRecord) -> WaitingItem:
    subject = record.node or incident.node or (f"job {record.job}" if record.job is not None else "")
    what = f"accept or dismiss: {record.what}: {record.reason}"
    name = proposal_id(incident.id, record.number)
    return WaitingItem("proposal", subject, what, record.asked_at, f"holdfast accept {name}   # or dismiss, snooze")


def _unsent(outbox: Iterable[PendingMessage]) -> list[WaitingItem]:
    """Messages that an address refused, the oldest first; one whose first try is under way is not among them."""
    refused = [(m.message, [w for w in m.waits if w.attempts]) for m in outbox]
    return [
        WaitingItem(
            "notice", "message", f"not delivered to {_addresses(waits)}: {message.subject}", message.at, _NOTICES
        )
        for message, waits in sorted(refused, key=lambda each: (each[0].at, each[0].id))
        if waits
    ]


_NOTICES = "holdfast notices   # holdfast runbook notifier-fails"


def _addresses(waits: Iterable[PendingAddress]) -> str:
    return ", ".join(w.address for w in waits)


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
    subject = f"job {run.job_id}" if run is not None else incident.node
    return WaitingItem("held_job", subject, what, incident.opened_at, answer)


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
