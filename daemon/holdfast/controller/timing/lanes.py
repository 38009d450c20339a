"""Lanes (queues) of an incident: steps of one lane run one after the other, in order; lanes do not wait for each other.

Each lane has its own workers, so that slow calls to a provider delay no drain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from holdfast.model.actions.action import (
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
SLURM, PROVIDER, PEOPLE = "slurm", "provider", "people"
LANES = (SLURM, PROVIDER, PEOPLE)
WORKERS = 8
"""Number of steps of one lane that an actor carries out at the same time."""


def lane(action: Action) -> str:
    """The lane of its incident in which a step waits."""
    if isinstance(action, _PROVIDER):
        return PROVIDER
    return PEOPLE if isinstance(action, Notify) else SLURM


@contextmanager
def pools(workers: int = WORKERS) -> Iterator[Mapping[str, Executor]]:
    """A pool of ``workers`` threads for each lane. On exit, steps under way are waited for."""
    with ExitStack() as stack:
        yield {
            each: stack.enter_context(ThreadPoolExecutor(workers, thread_name_prefix=f"act-{each}")) for each in LANES
        }
