"""Cuts of the management network of a simulated site."""

from __future__ import annotations

from support.simulated.site import Site


def cut(site: Site, *names: str) -> None:
    """Cut these nodes off from the head node and all other nodes; they reach each other, and their jobs continue."""
    beyond = set(site.slurm.nodes) - set(names)
    for name in names:
        machine = site.machine(name)
        machine.cut_off, machine.unreachable_by = True, beyond


def back(site: Site, *names: str) -> None:
    """End the cut for these nodes; for all where none is named."""
    for name in names or site.slurm.nodes:
        machine = site.machine(name)
        machine.cut_off, machine.unreachable_by = False, set()
