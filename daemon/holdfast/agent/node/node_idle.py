"""Check whether a Slurm job holds this node, on the node itself at the last moment: the controller's view may be a second old."""

from __future__ import annotations

import re

from holdfast.agent.node.processes import SlurmNode
from holdfast.model.errors import Unavailable

_STATE = re.compile(r"\bState=(\S+)")
_FREE = frozenset({"IDLE", "DOWN"})
_BUSY_FLAGS = frozenset({"COMPLETING"})


def held_by(slurm: SlurmNode) -> str | None:
    """Short text on what holds the node; None: it is free.

    Both slurmctld and this node are checked: a job of several nodes has no process here before its first step, and slurmctld may be a
    moment behind. Raises Unavailable when one of them gives no answer: then the node must not be taken as free."""
    jobs = sorted({step.job_id for step in slurm.stepds()})
    if jobs:
        return f"job {', '.join(map(str, jobs))}"
    return busy(slurm.show("node", slurm.node))


def disturbed_by(slurm: SlurmNode, *, serves: bool) -> str | None:
    """Short text on the work that an active check or a pair probe would disturb here; None: none.

    ``serves`` = False: the order claims that no job can be here yet. This is trusted only where this machine runs nothing that may be
    the node's slurmd; otherwise Slurm is asked as usual. Raises Unavailable when Slurm gives no answer."""
    try:
        strays = slurm.strays()
        believed = not serves and not slurm.has_slurmd()
    except OSError as error:
        raise Unavailable(f"the processes of this machine cannot be listed: {error}") from error
    if not believed and (holder := held_by(slurm)) is not None:
        return holder
    return strays[0] if strays else None


def busy(record: str) -> str | None:
    """Reason why a node with this record of ``scontrol -o show node`` is not free; None: it is free."""
    found = _STATE.search(record)
    if found is None:
        return "Slurm shows no state of the node"
    base, *flags = found.group(1).rstrip("*~#!%$@^-").split("+")
    base = base.rstrip("*~#!%$@^-")
    if base not in _FREE or _BUSY_FLAGS & set(flags):
        return f"Slurm shows the node {found.group(1)}"
    return None
