"""The queues of an incident: in each, steps go one after the other in their order; queues do not wait for each other.

Each lane has workers of its own, so that slow calls to a provider delay no drain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

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
SLURM, PROVIDER, PEOPLE = "slurm", "provider", "people"
LANES = (SLURM, PROVIDER, PEOPLE)
WORKERS = 8
"""Steps of one lane that an actor carries out at the same time."""


def lane(action: Action) -> str:
    """Which queue of its incident a step waits in."""
    if isinstance(action, _PROVIDER):
        return PROVIDER
    return PEOPLE if isinstance(action, Notify) else SLURM


@contextmanager
def pools(workers: int = WORKERS) -> Iterator[Mapping[str, Executor]]:
    """A pool of ``workers`` threads for each lane. At the end the steps under way are waited for."""
    with ExitStack() as stack:
        yield {
            each: stack.enter_context(ThreadPoolExecutor(workers, thread_name_prefix=f"act-{each}")) for each in LANES
        }
