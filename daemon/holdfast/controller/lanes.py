"""The queues of an incident: in each, steps go one after the other in their order; queues do not wait for each other."""

from __future__ import annotations

from holdfast.model.action import (
    Action,
    Assign,
    CheckInstance,
    Launch,
    Notify,
    Reboot,
    Replace,
    ReportFault,
    StopStart,
    Terminate,
)

_PROVIDER = (Launch, Terminate, Assign, Replace, Reboot, StopStart, ReportFault, CheckInstance)
WORKERS = 8
"""Steps that an actor carries out at the same time."""


def lane(action: Action) -> str:
    """Which queue of its incident a step waits in."""
    if isinstance(action, _PROVIDER):
        return "provider"
    return "people" if isinstance(action, Notify) else "slurm"
