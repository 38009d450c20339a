"""Cuts of the management network of a simulated site."""

from __future__ import annotations

from support.simulated.site import Site


def cut(site: Site, *names: str) -> None:
    """The head node and all nodes beyond the cut lose these nodes; they reach each other, and their jobs go on."""
    beyond = set(site.slurm.nodes) - set(names)
    for name in names:
        machine = site.machine(name)
        machine.cut_off, machine.unreachable_by = True, beyond


def back(site: Site, *names: str) -> None:
    """The cut is over for these nodes; for all where none is named."""
    for name in names or site.slurm.nodes:
        machine = site.machine(name)
        machine.cut_off, machine.unreachable_by = False, set()
