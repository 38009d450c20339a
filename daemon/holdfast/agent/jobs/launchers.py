"""Launchers of elastic groups on this node: connections that requested their rendezvous and are notified when their group is to leave."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.verbs import job_id_of, number
from holdfast.model.errors import Rejected

_REASON = re.compile(r"[a-z][a-z-]{0,31}")
_DEADLINE_MAX_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class LauncherConnection:
    """A connection that requested the rendezvous of one run of a job and is still open."""

    job_id: int
    restarts: int
    pid: int
    connection: socket.socket


class Launchers:
    """Open launcher connections. The job socket's thread adds and removes them; order threads send to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening: dict[int, LauncherConnection] = {}

    def add(self, launcher: LauncherConnection) -> None:
        """Register the launcher for events. A repeated request, also for a later run, replaces its registration."""
        with self._lock:
            self._listening[launcher.connection.fileno()] = launcher

    def remove(self, connection: socket.socket) -> None:
        """Remove the launcher; call this before the connection is closed."""
        with self._lock:
            self._listening.pop(connection.fileno(), None)

    def knows(self, connection: socket.socket) -> bool:
        with self._lock:
            return connection.fileno() in self._listening

    def runs_of(self, job_id: int) -> list[int]:
        """Restart counts of the job's runs with a registered launcher."""
        with self._lock:
            return sorted({each.restarts for each in self._listening.values() if each.job_id == job_id})

    def push(self, job_id: int, restarts: int, line: bytes) -> list[int]:
        """Send a line to the launchers of this run; the pids of those that got it. Never blocks: one that does not read is skipped."""
        with self._lock:
            meant = [each for each in self._listening.values() if (each.job_id, each.restarts) == (job_id, restarts)]
            return sorted(each.pid for each in meant if send_line(each.connection, line))


def send_line(connection: socket.socket, line: bytes) -> bool:
    """Send without blocking; whether the whole line was sent."""
    try:
        return connection.send(line, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT) == len(line)
    except OSError:
        return False  # it does not read, which is allowed


def ask_group_to_leave(launchers: Launchers, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> OrderHandler:
    """Ask the launchers of a run to have their group finish its step, leave and exit with 85. ok: at least one got the request.

    Otherwise nothing else is tried: a signal to processes that are not known to be a launcher's could end them."""

    def verb(order: ReceivedOrder) -> OrderResult:
        job_id = job_id_of(order.args)
        restarts = _count(order.args, "restarts")
        told = launchers.push(job_id, restarts, event_line(order.args, now()))
        detail = {"launchers": told}
        if told:
            return OrderResult(True, f"notified {len(told)} launcher(s) of run {restarts} of job {job_id}", detail)
        runs = ", ".join(map(str, launchers.runs_of(job_id)))
        others = f"; those of run {runs} do" if runs else ""
        return OrderResult(False, f"no launcher of run {restarts} of job {job_id} listens on this node{others}", detail)

    return verb


def event_line(args: Mapping[str, Any], now: datetime) -> bytes:
    """The order as a line for a launcher: a deadline by this node's clock instead of seconds. Raises Rejected."""
    reason, target, deadline = args.get("reason"), args.get("target"), None
    if not isinstance(reason, str) or not _REASON.fullmatch(reason):
        raise Rejected(f"argument reason must be a word such as drain, not {reason!r}")
    if target is not None:
        target = _count(args, "target")
    if args.get("deadline_s") is not None:
        deadline = now + timedelta(seconds=number(args, "deadline_s", 0.0, _DEADLINE_MAX_S))
    event = {
        "v": 1,
        "kind": "event",
        "reason": reason,
        "deadline": None if deadline is None else deadline.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "target": target,
    }
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _count(args: Mapping[str, Any], name: str) -> int:
    value = args.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise Rejected(f"argument {name} must be a number from 0, not {value!r}")
    return value
