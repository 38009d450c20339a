"""Turns that survive an input that makes a decision raise. Pure, except for what the turn that is passed in may do.

Without this, a turn that raises would end the controller, and it would end again on the same input after every restart: no node would be
repaired any more. So the input to blame is searched for and set aside (:mod:`.inputs` defines its substitute), its node is held for an
operator, and the turn continues with everything else. If no such input is found, nothing is decided (:class:`TurnFailed`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from holdfast.decisions.incidents.correlate import NO_INCIDENT, acts
from holdfast.decisions.inputs import Input, InputKind, inputs, without
from holdfast.decisions.turn import apply, merge
from holdfast.model.agents.report import Finding
from holdfast.model.book import Change, World
from holdfast.model.event import Event
from holdfast.model.ids import NewId
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import NewIncident, open_incident
from holdfast_checks.result import Remedy, Severity

TurnFunction = Callable[[World], Change]

TRIES = 200
"""Most turns that one search may take."""
SET_ASIDE = "holdfast.set_aside"
"""Check shown with the incident of a held node if the input set aside is not a finding."""
AGAIN_S = 600.0
"""Retry an input that was set aside after this long: its surroundings may have changed."""
_HOLDS = frozenset(
    {InputKind.FINDING, InputKind.ORDER_OUTCOME, InputKind.AGENT, InputKind.NODE_RECORD, InputKind.MARK, InputKind.NODE}
)
"""Parts about a node's health or owner: while one of them is set aside, the only action on the node is a drain."""


class TurnFailed(Exception):
    """The turn raises, and no input alone is to blame: nothing is decided. Its cause is what the turn raised."""


@dataclass(frozen=True, slots=True)
class InputSetAside:
    """An input that made a turn fail."""

    what: Input
    at: datetime
    error: str
    """What the turn raised, for people."""


@dataclass(frozen=True, slots=True)
class Turned:
    """Result of a turn."""

    change: Change
    aside: tuple[InputSetAside, ...] = ()
    """All inputs set aside in this turn, including those of earlier turns."""
    new: tuple[InputSetAside, ...] = ()
    """Set aside by this turn."""


def turn_without(world: World, turn: TurnFunction, aside: Collection[InputSetAside]) -> Turned:
    """Turn once, without what earlier turns have set aside. Raises what the turn raises."""
    known = tuple(a for a in aside if world.now - a.at < timedelta(seconds=AGAIN_S))
    left = without(_without_held_findings(world), (a.what for a in known))
    return Turned(_kept(turn(left), known), known)


def careful_turn(world: World, turn: TurnFunction, new_id: NewId, aside: Collection[InputSetAside] = ()) -> Turned:
    """Turn once, without the inputs that make the turn raise. ``aside``: those of earlier turns. Raises TurnFailed."""
    try:
        return turn_without(world, turn, aside)
    except Exception as error:  # noqa: BLE001 - whatever a decision raises is looked into
        known = tuple(a for a in aside if world.now - a.at < timedelta(seconds=AGAIN_S))
        world = _without_held_findings(world)
        left = without(world, (a.what for a in known))
        new = _blamed(left, turn, error)
    every = (*known, *new)
    held = _held(world, left, new, new_id)
    try:
        rest = without(left, (a.what for a in new))
        change = turn(replace(rest, book=apply(rest.book, held)))
    except Exception as error:
        raise TurnFailed(_text(error)) from error
    return Turned(_kept(merge(held, change), every), every, new)


def _blamed(world: World, turn: TurnFunction, error: Exception) -> tuple[InputSetAside, ...]:
    found = blame(world, turn)
    if found is None:
        raise TurnFailed(_text(error)) from error
    return tuple(InputSetAside(each, world.now, _text(error)) for each in found)


def _text(error: BaseException) -> str:
    stage = "".join(f" ({note})" for note in getattr(error, "__notes__", ())[:1])
    return f"{type(error).__name__}: {error}"[:300] + stage


@dataclass(slots=True)
class _Trial:
    """Counts the turns that are tried."""

    world: World
    turn: TurnFunction
    left: int = TRIES
    _known: dict[frozenset[Input], bool] = field(default_factory=dict)

    def passes(self, left_out: Iterable[Input]) -> bool:
        """Whether the turn does not raise without these. False too once there were too many tries."""
        which = frozenset(left_out)
        if which not in self._known:
            self._known[which] = self._try(which)
        return self._known[which]

    def _try(self, left_out: frozenset[Input]) -> bool:
        self.left -= 1
        if self.left < 0:
            return False
        try:
            self.turn(without(self.world, left_out))
        except Exception:  # noqa: BLE001 - that it raises is the answer
            return False
        return True


def blame(world: World, turn: TurnFunction, tries: int = TRIES) -> tuple[Input, ...] | None:
    """The fewest inputs without which the turn does not raise, found by halves; None: there are none, or they are too many to find.

    Inputs of one part are tried before those of several, findings first."""
    trial, every = _Trial(world, turn, tries), list[Input]()
    for part in InputKind:
        found = inputs(world, part)
        every += found
        if found and trial.passes(found):
            return _checked(trial, _fewest(trial, found, ()))
    return _checked(trial, _fewest(trial, every, ())) if trial.passes(every) else None


def _checked(trial: _Trial, found: tuple[Input, ...]) -> tuple[Input, ...] | None:
    return found if trial.left >= 0 and trial.passes(found) else None


def _fewest(trial: _Trial, suspects: Sequence[Input], out: tuple[Input, ...]) -> tuple[Input, ...]:
    """Those of the suspects that must be left out in addition to ``out``; leaving out all of them is known to help."""
    if trial.passes(out):
        return ()
    if len(suspects) == 1 or trial.left < 0:
        return tuple(suspects)
    half = len(suspects) // 2
    first, second = suspects[:half], suspects[half:]
    of_second = _fewest(trial, second, (*out, *first))
    return _fewest(trial, first, (*out, *of_second)) + of_second


def _without_held_findings(world: World) -> World:
    """Drop the findings of incidents that are held for an operator."""
    held = {i.id for i in world.book.incidents.values() if i.open and i.kind is IncidentKind.UNREADABLE}
    if not held:
        return world
    findings = {n: f for n, f in world.book.findings.items() if f.incident_id not in held}
    return replace(world, book=replace(world.book, findings=findings))


def _held(world: World, left: World, new: Iterable[InputSetAside], new_id: NewId) -> Change:
    """Open an incident for an operator on each node with an input set aside, and assign each such finding to its incident."""
    change, findings = Change(), {str(n): f for n, f in world.book.findings.items()}
    for each in new:
        finding = findings.get(each.what.key) if each.what.part is InputKind.FINDING else None
        if finding is None and each.what.part not in _HOLDS:
            continue
        book = apply(left.book, change)
        there = next((i for i in book.open_on(each.what.node) if i.kind is IncidentKind.UNREADABLE), None)
        if finding is not None and there is None and not acts(finding.severity, finding.remedy):
            change = merge(change, Change(placed={finding.id: NO_INCIDENT}))  # it would have led to nothing
            continue
        if there is None and each.what.node:
            there, events = _open(world, each, finding, new_id)
            change = merge(change, Change(incidents=(there,), events=tuple(events)))
        if finding is not None and there is not None:
            change = merge(change, Change(placed={finding.id: there.id}))
    return change


def _open(world: World, each: InputSetAside, finding: Finding | None, new_id: NewId) -> tuple[Incident, list[Event]]:
    record = world.book.nodes.get(each.what.node)
    new = NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.UNREADABLE,
        node=each.what.node,
        severity=finding.severity if finding is not None else Severity.DEGRADED,
        remedy=Remedy.HUMAN,
        check=finding.check if finding is not None else SET_ASIDE,
        headline=f"{each.what.text}: no decision can be made about it ({each.error})"[:300],
        fault_at=finding.fault_at if finding is not None else world.now,
        instance_id=finding.instance_id if finding is not None else (record.instance_id if record else ""),
        boot_id=finding.boot_id if finding is not None else "",
        note="set aside: nothing but a drain is done about the node until an operator has checked it and closed the incident",
    )
    return open_incident(new, IncidentState.AWAITING_HUMAN, world.now)


def _kept(change: Change, aside: Iterable[InputSetAside]) -> Change:
    """Drop changes that would overwrite a record with its substitute."""
    out = {(a.what.part, a.what.key) for a in aside}
    if not out:
        return change
    return replace(
        change,
        incidents=tuple(i for i in change.incidents if (InputKind.INCIDENT, i.id) not in out),
        recoveries=tuple(r for r in change.recoveries if (InputKind.RECOVERY, r.id) not in out),
        nodes=tuple(n for n in change.nodes if (InputKind.NODE_RECORD, n.name) not in out),
    )
