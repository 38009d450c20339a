"""An actor or a controller that kills itself (SIGKILL) at every boundary that it crosses for the first time, and starts again.

``python -m support.crashing actor|controller CONFIG CROSSED [PATTERN…]``. The file CROSSED has one line for each boundary at which a
process ended; with patterns only those boundaries count. A parent that has imported everything forks a child for each process: the child
is the daemon as shipped, and it dies by SIGKILL like any other."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from threading import Lock
from typing import Any

from holdfast.config.controller import ControllerSettings, load
from holdfast.controller.timing.lanes import LANES
from holdfast.head import actor_main, controller_main, serving, wiring
from holdfast.head.wiring import ActorParts
from holdfast.model.actions.action import Intent
from holdfast.model.agents.report import Report
from holdfast.model.book import Change
from holdfast.ports import Accepted

_ASKING = frozenset(
    {
        "view",
        "node",
        "job",
        "components",
        "jobs_on",
        "all_nodes",
        "all_reservations",
        "version",
        "config",
        "reservation",
        "name",
        "can",
    }
)
_ASKING |= {"instance_of", "instance", "find_launched", "repairs_itself", "notices", "on_trial"}


@contextmanager
def _one_at_a_time() -> Iterator[Mapping[str, Executor]]:
    """One worker for all lanes."""
    with ThreadPoolExecutor(1) as worker:
        yield dict.fromkeys(LANES, worker)


class Boundaries:
    """Records on disk which boundaries have killed once."""

    def __init__(self, path: Path, patterns: tuple[str, ...]) -> None:
        self._path = path
        self._patterns = patterns
        self._lock = Lock()
        self.crossed = path.read_text().splitlines() if path.exists() else []

    def cross(self, name: str) -> None:
        """Does not return where the boundary is new."""
        if self._patterns and not any(fnmatch(name, pattern) for pattern in self._patterns):
            return
        with self._lock:
            if name not in self.crossed:
                self.die(name)

    def die(self, name: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
        os.kill(os.getpid(), signal.SIGKILL)


class Calls:
    """An adapter with a boundary before and after each call that changes something."""

    def __init__(self, adapter: Any, boundaries: Boundaries) -> None:
        self._adapter = adapter
        self._boundaries = boundaries

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._adapter, name)
        return found if name in _ASKING else self._around(name, found)

    def _around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def around(*args: Any, **more: Any) -> Any:
            self._boundaries.cross(f"{name}{args} before")
            answer = call(*args, **more)
            self._boundaries.cross(f"{name}{args} after")
            return answer

        return around


def live_as_actor(config: Path, boundaries: Boundaries) -> int:
    """The shipped entry point, around an actor whose boundaries kill."""
    build = wiring.build_actor

    def build_mortal(settings: ControllerSettings) -> ActorParts:
        parts = build(settings)
        actor = parts.actor
        scheduler: Any = Calls(actor.outside.scheduler, boundaries)
        provider: Any = Calls(actor.outside.provider, boundaries)
        outside = replace(actor.outside, scheduler=scheduler, provider=provider)

        def cross(intent: Intent, moment: str) -> None:
            boundaries.cross(f"{intent.key} {moment}")

        # One step at a time: another step's death must not hide a boundary of this one.
        return replace(parts, actor=replace(actor, outside=outside, before_step=cross, pools=_one_at_a_time))

    vars(actor_main)["build_actor"] = build_mortal
    return actor_main.run(config)


def live_as_controller(config: Path, boundaries: Boundaries) -> int:
    """The shipped entry point. Each process ends at its first commit: every other one before it, else after it.

    A process also ends between a report on disk and the answer to its agent, once for each report."""
    build = serving.build_controller
    before = len([line for line in boundaries.crossed if line.startswith("life ")]) % 2 == 0

    def build_mortal(settings: ControllerSettings) -> serving.Controller:
        controller = build(settings)
        store: Any = controller.store
        commit, accept = store.commit, store.accept_soon

        def dying_commit(change: Change, fence: int) -> None:
            if not before:
                commit(change, fence)
            boundaries.die(f"life {len(boundaries.crossed)} {'before' if before else 'after'} commit {_said(change)}")

        def dying_accept(report: Report, shown: Collection[int] | None = None) -> Future[Accepted]:
            durable: Future[Accepted] = accept(report, shown)
            if report.findings or report.outcomes:
                name = f"accept {report.node} {report.outbox_id} {report.sequence}"
                durable.add_done_callback(lambda _done: boundaries.cross(name))
            return durable

        store.commit, store.accept_soon = dying_commit, dying_accept
        return controller

    vars(controller_main)["build_controller"] = build_mortal
    return controller_main.run(config)


def _said(change: Change) -> str:
    return " ".join([*(i.key for i in change.intents), *(f"{i.id}={i.state.value}" for i in change.incidents)])


ROLES = {"actor": live_as_actor, "controller": live_as_controller}


def run(role: str, config: str, crossed: str, *patterns: str) -> int:
    load(Path(config))
    while True:
        child = os.fork()
        if not child:
            os._exit(ROLES[role](Path(config), Boundaries(Path(crossed), patterns)))
        _, status = os.waitpid(child, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
