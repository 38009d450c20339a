"""Faults of a node's network path that are not visible on the node: only a test between two nodes finds them."""

from __future__ import annotations

from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import PracticeFault
from holdfast.practice.hardware import path


def _heal(machine: PracticeMachine) -> None:
    path.restore(machine.host.folder)


FAULTS = (
    PracticeFault(
        "path_dead",
        "Bulk data to the node is lost; small messages pass, and no check of the node sees it.",
        lambda machine, _value, _gpu: path.break_path(machine.host.folder, path.DEAD),
        heal=_heal,
    ),
    PracticeFault(
        "path_corrupt",
        "A bit is turned in bulk data to the node, and no check of the node sees it.",
        lambda machine, _value, _gpu: path.break_path(machine.host.folder, path.CORRUPT),
        heal=_heal,
    ),
)
