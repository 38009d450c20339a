"""What holds Holdfast back, as the API shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.api.answers.restraint_shapes import BrakeShape, ExtensionShape, RestraintsShape
from holdfast.decisions.brakes.held_back import why_now
from holdfast.decisions.parts import not_leading
from holdfast.decisions.silence.silent_nodes import freeze_reason
from holdfast.model.book import Book, Brake, World
from holdfast.model.operators.proposals import ProposalState
from holdfast.model.parts import DiskRoom
from holdfast.model.policies.policy import Mode


@dataclass(frozen=True, slots=True)
class Head:
    """What this controller knows of itself."""

    leads: bool = True
    led_by: str | None = None
    """Controller that leads, as last seen; None: not known."""
    trouble: str | None = None
    """Why its loop decides nothing at present; None: it does."""
    disk: DiskRoom | None = None
    mode: Mode | None = None
    """As its settings say, for as long as the loop has not turned."""


def restraints_shape(world: World | None, now: datetime, head: Head) -> RestraintsShape:
    """``world``: as of the loop's last turn; None: it has not turned yet."""
    book = world.book if world is not None else Book()
    mode = world.policy.mode if world is not None else head.mode
    return RestraintsShape(
        mode=mode.value if mode is not None else "",
        leader=head.leads,
        led_by=head.led_by,
        not_leading=not_leading(leads=head.leads, led_by=head.led_by, trouble=head.trouble, disk=head.disk),
        paused=book.paused,
        paused_at=book.paused_at,
        frozen=head.trouble or _frozen(world),
        brakes=_brakes(world),
        proposals_open=open_proposals(book),
        extensions=[ExtensionShape.model_validate(e) for _, e in sorted(book.extensions.items()) if e.until > now],
    )


def open_proposals(book: Book) -> int:
    """Steps of open incidents that an operator is asked about now."""
    return sum(r.status is ProposalState.OPEN for i in book.open_incidents() for r in i.proposals)


def _frozen(world: World | None) -> str | None:
    if world is None:
        return "the control loop has not turned yet"
    reason = freeze_reason(world)
    return f"{reason}; for as long as this lasts no silent node is found dead (docs/dead-nodes.md)" if reason else None


def _brakes(world: World | None) -> list[BrakeShape]:
    """The reason is of the moment when the brake tripped; an operator decides by what it holds back now."""
    if world is None:
        return []
    holding = [b for _, b in sorted(world.book.brakes.items()) if b.holds]
    return [_brake(world, b) for b in holding]


def _brake(world: World, brake: Brake) -> BrakeShape:
    return BrakeShape(
        kind=brake.name,
        tripped_at=brake.tripped_at,
        reason=why_now(world, brake, " (when it tripped); now held back: "),
        node_set=brake.node_set,
        nodes=brake.nodes,
    )
