"""Client of the controller's API for programs in Python: typed answers, pages and retries handled. Needs the extra ``cli`` (pydantic).

.. code-block:: python

    from holdfast.client import Holdfast

    for incident in Holdfast().incidents(only_open=True, check=["gpu.xid"]):
        print(incident.id, incident.node, incident.headline)

Answers are read tolerantly: of a newer controller unknown fields are dropped, of an older one missing fields are empty. Every call
may raise :class:`Usage` (wrong use, or a token without the right), :class:`Rejected` (not known, or the order does not fit the
state) and :class:`Unavailable` (no answer; try again later), all of them :class:`HoldfastError` with one line for people."""

from __future__ import annotations

import json
import os
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from holdfast.api.answers.job_shapes import JobShape, JobsShape, WhyShape
from holdfast.api.answers.node_shapes import ClusterShape, NodeShape, NodeStory
from holdfast.api.answers.operator_shapes import WindowShape
from holdfast.api.answers.shape import Shape
from holdfast.api.answers.shapes import EventShape, EventsShape, IncidentShape, IncidentsShape, IncidentStory
from holdfast.api.answers.status_shapes import StatusShape
from holdfast.api.client import ApiClient
from holdfast.model.errors import HoldfastError, NotFound, Rejected, Unavailable, Usage

__all__ = ["Holdfast", "HoldfastError", "NotFound", "Rejected", "Unavailable", "Usage"]

S = TypeVar("S", bound=Shape)

TRIES = 3
"""Of an order whose answer did not come: it has one key, so that it is carried out once however often it arrives."""
AGAIN_S = 1.0
SILENCE_S = 45.0
"""The controller sends a comment each 15 s: a stream on which nothing comes for this long is dead."""
_PAGE = 200


class Holdfast:
    """One controller, with one token."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """As the command line: HOLDFAST_URL, HOLDFAST_TOKEN (or HOLDFAST_TOKEN_FILE) and HOLDFAST_CA_FILE unless given. Raises Usage."""
        given = {"HOLDFAST_TOKEN": token, "HOLDFAST_CA_FILE": ca_file}
        self._client = ApiClient(url, {**os.environ, **{k: v for k, v in given.items() if v is not None}}, sleep)
        self._sleep = sleep

    def status(self) -> StatusShape:
        """Whether the controller works, part by part, and what holds it back."""
        return _read(StatusShape, self._client.get("/v1/status"))

    def cluster(self) -> ClusterShape:
        """All nodes at once, with what holds Holdfast back."""
        return _read(ClusterShape, self._client.get("/v1/nodes"))

    def nodes(
        self,
        *,
        state: Sequence[str] = (),
        partition: Sequence[str] = (),
        check: Sequence[str] = (),
        kind: Sequence[str] = (),
    ) -> Iterator[NodeShape]:
        """Nodes by name. ``state``: Slurm's words; ``check`` and ``kind``: of an open incident."""
        wanted = {"state": state, "partition": partition, "check": check, "kind": kind}
        return (n for answer in self._pages("/v1/nodes", wanted) for n in _read(ClusterShape, answer).nodes)

    def node(self, name: str) -> NodeStory:
        """One node with its history. Raises Rejected for one that is not known."""
        return _read(NodeStory, self._client.get(f"/v1/nodes/{_part(name)}"))

    def incidents(
        self,
        *,
        only_open: bool = False,
        node: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        state: Sequence[str] = (),
        kind: Sequence[str] = (),
        check: Sequence[str] = (),
        partition: Sequence[str] = (),
    ) -> Iterator[IncidentShape]:
        """Incidents, newest first, opened in [since, until)."""
        wanted: dict[str, Any] = {"open": only_open or None, "node": node, "since": since, "until": until}
        wanted |= {"state": state, "kind": kind, "check": check, "partition": partition}
        return (i for answer in self._pages("/v1/incidents", wanted) for i in _read(IncidentsShape, answer).incidents)

    def incident(self, incident_id: str) -> IncidentStory:
        """One incident with findings, timeline, actions and timings. Raises Rejected for one that is not known."""
        return _read(IncidentStory, self._client.get(f"/v1/incidents/{_part(incident_id)}"))

    def jobs(
        self,
        *,
        job_id: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        state: Sequence[str] = (),
        partition: Sequence[str] = (),
    ) -> Iterator[JobShape]:
        """Jobs that were recovered or registered checkpoints, newest id first; with a user's token that user's own."""
        wanted = {"job_id": job_id, "since": since, "until": until, "state": state, "partition": partition}
        return (j for answer in self._pages("/v1/jobs", wanted) for j in _read(JobsShape, answer).jobs)

    def why(self, job_id: int, task: int | None = None) -> WhyShape:
        """Why runs of a job ended. Raises Rejected where nothing is known of it."""
        return _read(WhyShape, self._client.get(f"/v1/jobs/{int(job_id)}/why", task=task))

    def events(
        self, *, after_id: int = 0, kind: Sequence[str] = (), node: str | None = None, incident: str | None = None
    ) -> Iterator[EventShape]:
        """The record after an event, oldest first, up to now."""
        wanted = {"after_id": after_id, "kind": kind, "node": node, "incident": incident}
        return (e for answer in self._pages("/v1/events", wanted) for e in _read(EventsShape, answer).events)

    def stream(
        self,
        *,
        after_id: int | None = None,
        kind: Sequence[str] = (),
        node: str | None = None,
        incident: str | None = None,
    ) -> Iterator[EventShape]:
        """All records as they are made, for ever: after an event, or from now on. It connects again where it was cut off, and loses nothing
        that came after the first record; keep the last ``id`` to continue in another process. Raises Usage when the token has ended."""
        last, wanted = "", {"after_id": after_id, "kind": kind, "node": node, "incident": incident}
        while True:
            headers = {"Last-Event-ID": last} if last else {}
            try:
                for event in _events(self._client.lines("/v1/stream", headers, SILENCE_S, **_given(wanted))):
                    last = str(event.id)
                    yield event
            except Unavailable:
                pass
            self._sleep(AGAIN_S)

    def pause(self, reason: str, *, key: str | None = None) -> None:
        """Have Holdfast do nothing but record. ``key``: names the order, where a program that was restarted repeats it."""
        self._order("/v1/pause", {"reason": reason}, key)

    def resume(self, reason: str = "", *, key: str | None = None) -> None:
        """End a pause."""
        self._order("/v1/resume", {"reason": reason}, key)

    def maintain(self, nodes: str, hours: float, why: str, *, key: str | None = None) -> WindowShape:
        """Keep hands off nodes (a host list, ``n[1-8]``) from now on. Raises Rejected for nodes that Slurm does not know."""
        return _read(WindowShape, self._order("/v1/maintenance", {"nodes": nodes, "hours": hours, "why": why}, key))

    def end_maintenance(self, nodes: str, *, key: str | None = None) -> None:
        """Give nodes back."""
        self._order("/v1/maintenance/end", {"nodes": nodes}, key)

    def _order(self, path: str, body: dict[str, Any], key: str | None) -> Any:
        name = key if key is not None else str(uuid.uuid4())
        for _ in range(TRIES - 1):
            try:
                return self._client.post(path, body, name)
            except Unavailable:
                self._sleep(AGAIN_S)
        return self._client.post(path, body, name)

    def _pages(self, path: str, wanted: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Answers until there is no more; an older controller answers everything at once, or its newest."""
        cursor: str | None = None
        while True:
            answer = self._client.get(path, **_given({**wanted, "limit": _PAGE, "cursor": cursor}))
            yield answer
            cursor = answer.get("next_cursor") if isinstance(answer, dict) else None
            if not cursor:
                return


def _given(wanted: dict[str, Any]) -> dict[str, Any]:
    """Without what is empty; times as the API reads them."""
    shown = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in wanted.items()}
    return {name: value for name, value in shown.items() if value is not None and value != () and value != []}


def _part(name: str) -> str:
    """As one part of a path, whatever is in it."""
    return urllib.parse.quote(name, safe="")


def _read(shape: type[S], answer: Any) -> S:
    try:
        return shape.read(answer)
    except ValidationError as error:
        raise Unavailable(
            f"the answer is none of a Holdfast controller that this release understands: {error}"
        ) from None


def _events(lines: Iterator[bytes]) -> Iterator[EventShape]:
    """Records of a stream: the lines ``data:``, each of which is complete in itself."""
    for line in lines:
        if line.startswith(b"data:"):
            try:
                found = json.loads(line[5:])
            except (ValueError, RecursionError):
                raise Unavailable("the stream was cut off in the middle of a record") from None
            yield _read(EventShape, found)
