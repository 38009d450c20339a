"""The controller's client of the quorum service: its control socket, one JSON object each way (``docs/quorum.md``).

Each call opens a new connection: a restart of the service needs no reconnect, and calls of several threads do not interfere."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from holdfast.model.elastic_jobs.rooms import OpenRoom, RoomRecord, RoomRules, RoomView
from holdfast.model.errors import NotFound, OutsideError, Rejected, Unavailable
from holdfast_checks.aside import FilesSetAside

T = TypeVar("T")

DEADLINE_S = 5.0
"""Timeout of one call: a hanging service delays its caller no longer than this."""
LONGEST_ANSWER_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 16
_PAGE = 1000
"""Records of one rendezvous that are requested at a time."""
_ERRORS: Mapping[str, type[OutsideError]] = {"NotFound": NotFound, "Unavailable": Unavailable}


class QuorumLink:
    """Implements :class:`holdfast.ports.QuorumRooms`; safe to use from many threads."""

    def __init__(self, path: Path, deadline_s: float = DEADLINE_S) -> None:
        """Connects to nothing yet."""
        self._path = path
        self._deadline_s = deadline_s

    def open(self, room: str, rules: RoomRules) -> OpenRoom:
        how = asdict(rules)
        groups = how.pop(
            "groups"
        )  # sent apart from the rules: an earlier release of the service refuses rules that it does not know
        answer = self._ask(do="open", room=room, rules=how, groups=groups)
        return OpenRoom(_text(answer, "url"), _text(answer, "token"))

    def evict(self, room: str, member: str, reason: str) -> tuple[str, ...]:
        return _texts(self._ask(do="evict", room=room, member=member, reason=reason), "gone")

    def close(self, room: str) -> None:
        self._ask(do="close", room=room)

    def rooms(self) -> tuple[RoomView, ...]:
        """List the rendezvous page by page, so that no answer grows with their number. An earlier release sends all at once."""
        found: list[RoomView] = []
        more = True
        while more:
            answer = self._ask(do="status", brief=True, after=found[-1].name if found else "")
            page = [_view(each) for each in _objects(answer, "rooms")]
            found += page
            more = answer.get("more") is True and bool(page)
        return tuple(found)

    def records(self, after_id: int, limit: int) -> tuple[RoomRecord, ...]:
        return self._page(after_id, limit)

    def began(self, room: str) -> datetime | None:
        after_id, first = 0, None
        while page := self._page(after_id, _PAGE, room=room):
            for record in page:
                first = None if record.kind == "closed" else first or record.at
            after_id = page[-1].id
        return first

    def set_aside(self) -> FilesSetAside:
        """Rendezvous that the service could not read. Raises OutsideError; Rejected by a service of an earlier release."""
        answer = self._ask(do="set_aside")
        count, since_s = answer.get("count"), answer.get("since_s")
        if type(count) is not int:
            raise Unavailable("the quorum service does not report what it has set aside")
        return FilesSetAside(count, float(since_s) if isinstance(since_s, int | float) else None)

    def _page(self, after_id: int, limit: int, **of: str) -> tuple[RoomRecord, ...]:
        answer = self._ask(do="events", after_id=after_id, limit=limit, **of)
        return tuple(_record(each) for each in _objects(answer, "events"))

    def _ask(self, **asked: Any) -> dict[str, Any]:
        """Send one request. Raises Unavailable when the service is not there, is late or sends no valid answer; else its own error."""
        try:
            line = self._exchange(json.dumps(asked).encode() + b"\n")
            answer = json.loads(line)
        except OSError as error:
            raise Unavailable(f"the quorum service at {self._path} does not answer: {error}") from error
        except ValueError as error:
            raise Unavailable(f"the quorum service at {self._path} ended in the middle of its answer") from error
        if not isinstance(answer, dict):
            raise _strange("no object")
        if answer.get("ok") is True:
            return answer
        kind = _ERRORS.get(str(answer.get("kind")), Rejected)
        raise kind(f"the quorum service: {answer.get('error')}")

    def _exchange(self, line: bytes) -> bytes:
        """Raises OSError (TimeoutError past the deadline)."""
        until_s = time.monotonic() + self._deadline_s
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
            connection.settimeout(self._deadline_s)
            connection.connect(str(self._path))
            connection.sendall(line)
            answer = bytearray()
            while not answer.endswith(b"\n"):
                connection.settimeout(max(until_s - time.monotonic(), 0.001))
                chunk = connection.recv(_CHUNK_BYTES)
                answer += chunk
                if not chunk or len(answer) > LONGEST_ANSWER_BYTES:
                    break
            return bytes(answer)


def _view(document: Mapping[str, Any]) -> RoomView:
    return RoomView(
        name=_text(document, "room"),
        known=_texts(document, "known"),
        members=_texts(document, "members"),
        gone=frozenset(_field(document, "gone", dict)),
        unwritten=str(document.get("unwritten", "")),
    )


def _record(document: Mapping[str, Any]) -> RoomRecord:
    try:
        at = datetime.fromisoformat(_text(document, "at")).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _strange("at is no time") from error
    return RoomRecord(
        id=_field(document, "id", int),
        room=_text(document, "room"),
        at=at,
        kind=_text(document, "kind"),
        who=_text(document, "who"),
        reason=_text(document, "reason"),
        quorum_id=_field(document, "quorum_id", int),
        step=_field(document, "step", int),
        members=_texts(document, "members"),
    )


def _objects(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = _field(answer, key, list)
    if not all(isinstance(each, dict) for each in found):
        raise _strange(f"{key} holds no objects")
    return found


def _texts(answer: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(str(each) for each in _field(answer, key, list))


def _text(answer: Mapping[str, Any], key: str) -> str:
    return _field(answer, key, str)


def _field(answer: Mapping[str, Any], key: str, kind: type[T]) -> T:
    value = answer.get(key)
    if not isinstance(value, kind):
        raise _strange(f"{key} is missing")
    return value


def _strange(what: str) -> Unavailable:
    """Error for an answer that cannot be read: during an upgrade another release may run for a moment."""
    return Unavailable(f"the quorum service sent an unexpected answer ({what}): check that it is of this release")
