"""Rendezvous of elastic jobs: the agent requests it from the controller for a job that the requesting process belongs to.

The rendezvous token is the job's secret: it is sent to that process, stays in memory here, and is never logged."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.agent.node.processes import in_job_since_ticks, now_ticks
from holdfast.agent.sending.client import ControllerAnswer, ControllerClient
from holdfast.agent.sending.statements import LOGGED_AT_ONCE, LOGGED_PER_S, LineRate
from holdfast.model.errors import Unavailable

log = logging.getLogger(__name__)

ROUTE = "/v1/agent/room"
_FIELDS = ("room", "url", "token", "group", "start", "min", "max", "sizes", "spares")
_TEXTS = ("room", "url", "token")
_KEPT = 256
ASKED_PER_S, ASKED_AT_ONCE = 4.0, 100.0
"""Requests of one user that are passed to the controller: rate and burst. A launcher asks every 2 s while it has no rendezvous."""
_WAITING = 64
_WAITING_OF_A_USER = 32
_AT_A_TIME = 4
_FACTS_AGAINST = frozenset({404, 409})
"""Answers after which a remembered rendezvous is void: the controller has checked, and Slurm shows no such group of an elastic job."""

RendezvousAnswer = dict[str, Any]


def read_answer(answer: ControllerAnswer) -> RendezvousAnswer:
    """The line for the launcher: the rendezvous, or ``error`` and whether it may ask again (``retry``)."""
    if answer.status == 200:
        if all(isinstance(answer.body.get(name), str) and answer.body[name] for name in _TEXTS):
            return {"v": 1, "kind": "room", **{name: answer.body[name] for name in _FIELDS if name in answer.body}}
        return no_room("the controller's answer names no room")
    told = answer.body.get("retry")
    retry = told if isinstance(told, bool) else answer.status not in _FACTS_AGAINST
    return no_room(answer.error or f"the controller answered {answer.status}", retry=retry)


def no_room(why: str, *, retry: bool = True) -> RendezvousAnswer:
    """The answer to a launcher that has no rendezvous (yet)."""
    return {"error": " ".join(why.split())[:300], "retry": retry}


@dataclass(frozen=True, slots=True)
class _Known:
    """The last answer for a run of a job."""

    room: RendezvousAnswer
    asked_ticks: int
    """Time of the request, in clock ticks since boot."""


class Rooms:
    """Requests rendezvous, and remembers the answers while the controller is away. Safe to use from any thread.

    Slurm may reuse a job id. So a remembered answer is given only to processes whose job provably was here when it was requested."""

    def __init__(self, client: Callable[[], ControllerClient], controllers: int = 1) -> None:
        """``client`` creates one for each request; ``controllers``: how many there are to try."""
        self._client = client
        self._controllers = controllers
        self._known: OrderedDict[tuple[int, int, int], _Known] = OrderedDict()
        self._lock = threading.Lock()
        self._logged = LineRate(per_s=LOGGED_PER_S, burst=LOGGED_AT_ONCE)
        self._rate = LineRate(per_s=ASKED_PER_S, burst=ASKED_AT_ONCE)
        self._waiting: Counter[int] = Counter()
        """Waiting requests, by user."""
        self._asking = threading.BoundedSemaphore(_AT_A_TIME)

    def of(self, job_id: int, uid: int, restarts: int, pid: int | None = None) -> RendezvousAnswer:
        """The rendezvous of this run of the job. Blocks while the controller does not answer.

        ``pid``: the requesting process; None: not known, so no remembered answer is given."""
        asked_ticks = now_ticks()
        with self._lock:
            if not self._rate.allow(uid, time.monotonic()):
                return no_room("too many questions of this user")
            if self._waiting[uid] >= _WAITING_OF_A_USER or self._waiting.total() >= _WAITING:
                return no_room("too many questions at a time")
            self._waiting[uid] += 1
        try:
            with self._asking:
                answer = self._ask({"job_id": job_id, "uid": uid, "restarts": restarts})
        finally:
            with self._lock:
                self._waiting[uid] -= 1
                self._waiting += Counter()  # drops users without waiting requests
        room = self._settle((job_id, uid, restarts), answer, asked_ticks, pid)
        outcome = room.get("room") or room["error"]
        if self._logged.allow(uid, time.monotonic()):
            log.info("event=room_asked job=%d uid=%d restarts=%d outcome=%r", job_id, uid, restarts, outcome)
        return room

    def _ask(self, question: Mapping[str, int]) -> ControllerAnswer | str:
        """The controller's answer, or why there is none. The client automatically tries the next controller."""
        client, why = self._client(), "no controller to ask"
        try:
            for _ in range(self._controllers):
                try:
                    answer = client.post(ROUTE, question)
                except Unavailable as error:
                    why = f"the controller does not answer: {error}"
                    continue
                if answer.status != 503:
                    return answer
                why = answer.error or "the controller cannot answer now"
        finally:
            client.close()
        return why

    def _settle(
        self, key: tuple[int, int, int], answer: ControllerAnswer | str, asked_ticks: int, pid: int | None
    ) -> RendezvousAnswer:
        said = no_room(answer) if isinstance(answer, str) else read_answer(answer)
        with self._lock:
            if "error" not in said:
                self._known[key] = _Known(said, asked_ticks)
                self._known.move_to_end(key)
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
                return said
            if isinstance(answer, ControllerAnswer) and answer.status in _FACTS_AGAINST:
                self._known.pop(key, None)
            known = self._known.get(key)
        since = in_job_since_ticks(pid) if known is not None and pid is not None else None
        return known.room if known is not None and since is not None and since <= known.asked_ticks else said
