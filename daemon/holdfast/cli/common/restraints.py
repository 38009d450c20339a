"""What holds Holdfast back, and what operators have allowed for a time, in words: above `holdfast nodes` and on `holdfast status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.common.show import counted, moment

if TYPE_CHECKING:
    from holdfast.api.answers.restraint_shapes import BrakeShape, ExtensionShape, RestraintsShape

_MODES = {
    "observe": "mode observe: faults are recorded, and nothing is done about them",
    "propose": "mode propose: steps wait for an operator's accept (holdfast proposals)",
    "act": "mode act: nodes are drained and repaired, jobs are recovered",
}


def mode_line(got: RestraintsShape) -> str:
    return _MODES.get(got.mode, f"mode {got.mode or '?'}")


def held_lines(got: RestraintsShape) -> list[str]:
    """One line for each thing; none where nothing is out of the ordinary."""
    lines = []
    if not got.leader:
        lines.append(
            got.not_leading or f"this controller does not lead; as last read {got.led_by or 'another one'} does"
        )
    if got.paused:
        since = f" since {moment(got.paused_at)[:19]} UTC" if got.paused_at is not None else ""
        lines.append(f"paused{since} by {got.paused}; nothing is done until `holdfast resume`")
    if got.frozen:
        lines.append(f"frozen: {got.frozen}")
    if got.proposals_open:
        waits = "waits" if got.proposals_open == 1 else "wait"
        lines.append(f"{counted(got.proposals_open, 'step')} {waits} for an operator's accept: holdfast proposals")
    return lines + [brake_line(b) for b in got.brakes] + [extension_line(e) for e in got.extensions]


def brake_line(brake: BrakeShape) -> str:
    since = f"tripped at {moment(brake.tripped_at)[:19]} UTC"
    release = f"`holdfast runbook brake`, then release it with `holdfast release {brake.kind}`"
    return f"brake {brake.kind} holds: {brake.reason}; {since}; {release}"


def extension_line(extension: ExtensionShape) -> str:
    until = f"until {moment(extension.until)[:19]} UTC"
    why = f": {extension.reason}" if extension.reason else ""
    return f"budget {extension.kind} is extended by {machines(extension.plus, extension.plus_nodes)} {until}, by {extension.by}{why}"


def machines(plus: int, plus_nodes: int) -> str:
    """How much more: ``10 machines (of no more different nodes)``."""
    nodes = f"{plus_nodes} more" if plus_nodes else "no more"
    return f"{counted(plus, 'machine')} (of {nodes} different nodes a day)"
