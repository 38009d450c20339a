"""One turn of the control loop, as a pure function: world in, change out.

findings and the provider's notices → incidents (:mod:`correlate`, :mod:`planned`) → what has happened (:mod:`silent_nodes`, :mod:`follow`,
:mod:`lifecycle`) → decisions (:mod:`decide`) → brakes (:mod:`guard`) → the record (:mod:`record`). The caller commits the change, then
wakes the actor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from holdfast.decisions.brakes.guard import guard
from holdfast.decisions.common import check_policy
from holdfast.decisions.death import unreached
from holdfast.decisions.decide import Decision, decide
from holdfast.decisions.hangs.detect import follow_hangs
from holdfast.decisions.hangs.stragglers import follow_stragglers
from holdfast.decisions.incidents.correlate import correlate
from holdfast.decisions.incidents.identity import follow_identity
from holdfast.decisions.incidents.lifecycle import follow_incidents
from holdfast.decisions.job_ends.run_ends import follow_job_ends
from holdfast.decisions.machines.disputes import follow_disputes
from holdfast.decisions.nodes.adopt_drains import adopt
from holdfast.decisions.nodes.foreign_drains import follow_foreign_drains
from holdfast.decisions.nodes.hands_off import remember
from holdfast.decisions.nodes.restored import forget_old_findings
from holdfast.decisions.nodes.returns import follow_returns
from holdfast.decisions.nodes.slurm_drains import follow_slurm_drains
from holdfast.decisions.nodes.stays_down import follow_stays_down
from holdfast.decisions.planned.planned import plan_stops
from holdfast.decisions.probing.suspects import follow_suspects
from holdfast.decisions.record import record
from holdfast.decisions.recovery.follow import follow_jobs
from holdfast.decisions.recovery.held_jobs import follow_held_jobs
from holdfast.decisions.repair.replace_orders import take_orders
from holdfast.decisions.silence.silent_nodes import silent_nodes, watch_silence
from holdfast.decisions.spares.spare_checks import follow_upkeep
from holdfast.model.book import Book, Change, World
from holdfast.model.ids import NewId


@dataclass(frozen=True, slots=True)
class TurnStage:
    """One step of a turn."""

    name: str
    """Name in logs, traces and metrics."""
    run: Callable[[World], Change]


StageRunner = Callable[[str, Callable[[], Change]], Change]
"""Runs one stage, given its name, and returns its change: what measures it lies outside of this folder, which has no clock."""


def stages(new_id: NewId, fence: int, decided: Callable[[World], Decision] = decide) -> tuple[TurnStage, ...]:
    """All stages of a turn in their order. Each sees the world as the earlier ones left it."""
    return (
        TurnStage("adopt_drains", adopt),
        TurnStage("foreign_drains", follow_foreign_drains),
        TurnStage("restored_store", forget_old_findings),
        TurnStage("identity", follow_identity),
        TurnStage("hands_off", remember),
        TurnStage("correlate", lambda w: correlate(w, new_id)),
        TurnStage("disputes", lambda w: follow_disputes(w, new_id)),
        TurnStage("planned_stops", lambda w: plan_stops(w, new_id)),
        TurnStage("slurm_drains", lambda w: follow_slurm_drains(w, new_id)),
        TurnStage("stays_down", lambda w: follow_stays_down(w, new_id)),
        TurnStage("unreached", lambda w: unreached.remember(w, silent_nodes(w))),
        TurnStage("silence", lambda w: watch_silence(w, new_id)),
        TurnStage("job_ends", follow_job_ends),
        TurnStage("recoveries", follow_jobs),
        TurnStage("held_jobs", lambda w: follow_held_jobs(w, new_id)),
        TurnStage("hangs", lambda w: follow_hangs(w, new_id)),
        TurnStage("stragglers", lambda w: follow_stragglers(w, new_id)),
        TurnStage("suspects", lambda w: follow_suspects(w, new_id)),
        TurnStage("incidents", follow_incidents),
        TurnStage("returns", follow_returns),
        TurnStage("replace_orders", lambda w: take_orders(w, new_id)),
        TurnStage("spare_checks", lambda w: follow_upkeep(w, new_id)),
        TurnStage("decide", lambda w: _decide(w, decided, fence)),
    )


STAGES = tuple(stage.name for stage in stages(lambda _: "", 0))
"""Their names, in their order."""


def turn(
    world: World,
    new_id: NewId,
    fence: int,
    decided: Callable[[World], Decision] = decide,
    around: StageRunner = lambda _, run: run(),
) -> Change:
    """Everything that this turn changes. The same world gives the same change, but for the ids of new incidents. ``decided``: makes the
    decision. ``around``: runs each stage. What a stage raises has its name as a note."""
    world = check_policy.weighed(world)
    total, before = Change(), world.book
    for stage in stages(new_id, fence, decided):
        try:
            change = around(stage.name, partial(stage.run, world))
        except Exception as error:
            error.add_note(f"in the stage {stage.name} of a turn")
            raise
        if not change.empty:
            world, total = replace(world, book=apply(world.book, change)), merge(total, change)
    return _news(before, total)


def _news(before: Book, change: Change) -> Change:
    """Drop no-op updates: two stages may overwrite each other's note and end at the old value."""
    return replace(
        change,
        incidents=tuple(i for i in change.incidents if i != before.incidents.get(i.id)),
        recoveries=tuple(r for r in change.recoveries if r != before.recoveries.get(r.id)),
        nodes=tuple(n for n in change.nodes if n != before.nodes.get(n.name)),
    )


def _decide(world: World, decided: Callable[[World], Decision], fence: int) -> Change:
    decision = decided(world)
    return record(world, decision, guard(world, decision.proposals), fence)


def apply(book: Book, change: Change) -> Book:
    """The state as it will be once the change is committed."""
    findings = {
        number: replace(f, incident_id=change.placed[number]) if number in change.placed else f
        for number, f in book.findings.items()
    }
    return replace(
        book,
        incidents={**book.incidents, **{i.id: i for i in change.incidents}},
        findings=findings,
        recoveries={**book.recoveries, **{r.id: r for r in change.recoveries}},
        intents={**book.intents, **{i.key: i for i in change.intents}},
        marks={**book.marks, **{m.node: m for m in change.marks}},
        nodes={**book.nodes, **{n.name: n for n in change.nodes}},
        brakes={**book.brakes, **{b.name: b for b in change.brakes}},
        ends={**book.ends, **{e.id: e for e in change.ends}} if change.ends else book.ends,
        nodes_since=change.nodes_since or book.nodes_since,
    )


def merge(first: Change, second: Change) -> Change:
    """Merge both changes; if both change the same record, the second wins."""
    return Change(
        incidents=tuple(({i.id: i for i in first.incidents} | {i.id: i for i in second.incidents}).values()),
        placed={**first.placed, **second.placed},
        recoveries=tuple(({r.id: r for r in first.recoveries} | {r.id: r for r in second.recoveries}).values()),
        intents=first.intents + second.intents,
        marks=first.marks + second.marks,
        nodes=tuple(({n.name: n for n in first.nodes} | {n.name: n for n in second.nodes}).values()),
        brakes=first.brakes + second.brakes,
        ends=tuple(({e.id: e for e in first.ends} | {e.id: e for e in second.ends}).values()),
        events=first.events + second.events,
        nodes_since=second.nodes_since or first.nodes_since,
    )
