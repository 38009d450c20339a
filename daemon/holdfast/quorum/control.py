"""The quorum service's control socket, for the controller: a Unix socket, one JSON object per line in each direction.

``{"do": "open", "room": "job-71", "rules": {"min_groups": 2}}`` → ``{"ok": true, …}`` or ``{"ok": false, "error": "one line"}``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from holdfast.model.errors import HoldfastError, Rejected
from holdfast.quorum.nouns import Rules
from holdfast.quorum.service import Service
from holdfast.unix_socket import bound

log = logging.getLogger(__name__)

_LINE_BYTES_MAX = 65_536
_PAGE_BYTES = 1 << 20
"""A page of brief views ends with the rendezvous that exceeds this size. The limit on known members bounds the size of one."""
_PEERCRED = struct.Struct("3i")
_RULES = {f.name: f.type for f in fields(Rules)}


class ControlSocket:
    """Server of the control socket. Only root, the service's own user and the listed users may send requests."""

    def __init__(self, service: Service, path: Path, users: frozenset[int] = frozenset()) -> None:
        self._service = service
        self._path = path
        self._users = users | {0, os.getuid()}
        self._server: asyncio.Server | None = None
        self._refused = 0
        self._verbs: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "open": self._open,
            "close": self._close,
            "evict": self._evict,
            "leave": self._leave,
            "spare": self._spare,
            "promote": self._promote,
            "status": self._status,
            "events": self._events,
            "set_aside": self._set_aside,
        }

    async def start(self) -> None:
        """Raises OSError."""
        mode = 0o666 if len(self._users) > 2 else 0o600  # access is decided by the peer's uid, as the kernel reports it
        listener = bound(self._path, mode, socket.SOCK_STREAM)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LINE_BYTES_MAX)

    async def stay(self) -> None:
        """Recreate the socket if its path was removed: clients could not connect until the next start. Raises OSError."""
        if self._server is not None and not self._path.is_socket():
            log.warning("event=quorum_socket_gone path=%s", self._path)
            self._server.close()
            await self.start()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw: Any = writer.get_extra_info("socket")
        pid, uid, _gid = _PEERCRED.unpack(raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size))
        try:
            if uid not in self._users:
                self._refused += 1
                if self._refused in (1, 10, 100) or self._refused % 1000 == 0:
                    log.warning("event=quorum_control_refused uid=%d pid=%d times=%d", uid, pid, self._refused)
                _say(writer, {"ok": False, "error": f"user {uid} may not speak to the quorum service"})
                return
            while line := await reader.readline():
                _say(writer, await self._answer(line))
                await writer.drain()
        except (ConnectionError, ValueError, asyncio.LimitOverrunError) as error:
            log.info("event=quorum_control_dropped uid=%d error=%r", uid, str(error))
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            if not isinstance(asked, dict) or asked.get("do") not in self._verbs:
                raise Rejected(f"do is one of {', '.join(self._verbs)}")
            return {"ok": True, **await self._verbs[asked["do"]](asked)}
        except (ValueError, RecursionError):
            return {"ok": False, "error": "not valid JSON"}
        except HoldfastError as error:
            return {"ok": False, "error": str(error), "kind": type(error).__name__}

    async def _open(self, asked: dict[str, Any]) -> dict[str, Any]:
        addresses = asked.get("addresses", [])
        if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
            raise Rejected("addresses is a list of texts")
        rules = _rules({**_object(asked.get("rules", {})), "groups": asked.get("groups", 0)})
        return await self._service.open(_text(asked, "room"), rules, tuple(addresses))

    async def _close(self, asked: dict[str, Any]) -> dict[str, Any]:
        await self._service.close(_text(asked, "room"))
        return {}

    async def _evict(self, asked: dict[str, Any]) -> dict[str, Any]:
        member, reason = _text(asked, "member"), _text(asked, "reason")
        return {"gone": await self._service.change(_text(asked, "room"), lambda room: room.evict(member, reason))}

    async def _leave(self, asked: dict[str, Any]) -> dict[str, Any]:
        member = _text(asked, "member")
        return {"gone": await self._service.change(_text(asked, "room"), lambda room: room.leave(member))}

    async def _spare(self, asked: dict[str, Any], *, spare: bool = True) -> dict[str, Any]:
        group = _text(asked, "group")
        await self._service.change(_text(asked, "room"), lambda room: room.hold(group, spare=spare))
        return {}

    async def _promote(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await self._spare(asked, spare=False)

    async def _status(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked.get("brief") is True:
            return self._page(str(asked.get("after", "")))
        names = (_text(asked, "room"),) if "room" in asked else self._service.rooms()
        return {"rooms": [self._room(name) for name in names]}

    def _page(self, after: str) -> dict[str, Any]:
        """What the controller needs of each rendezvous whose name sorts after this one; ``more``: further pages follow."""
        names = [name for name in self._service.rooms() if name > after]
        shown: list[dict[str, Any]] = []
        size = 0
        while names and size < _PAGE_BYTES:
            shown.append(self._brief(names.pop(0)))
            size += len(json.dumps(shown[-1]))
        return {"rooms": shown, "more": bool(names)}

    def _brief(self, name: str) -> dict[str, Any]:
        """One rendezvous for the controller. ``gone``: only starts, as the controller names them, not single Managers."""
        host = self._service.host(name)
        room = host.room
        return {
            "room": name,
            "members": [str(m.identity) for m in room.last.members] if room.last else [],
            "known": sorted(map(str, room.known())),
            "gone": {who: gone.why.value for who, gone in room.gone.items() if ":" not in who},
            "unwritten": host.unwritten,
        }

    async def _events(self, asked: dict[str, Any]) -> dict[str, Any]:
        after_id, limit = asked.get("after_id", 0), asked.get("limit", 1000)
        if type(after_id) is not int or type(limit) is not int or not 1 <= limit <= 10_000:
            raise Rejected("after_id is a number, limit one from 1 to 10000")
        room = _text(asked, "room") if "room" in asked else None
        found = await asyncio.to_thread(self._service.state.happened, after_id=after_id, room=room, limit=limit)
        return {"events": [{"id": r.id, "room": r.room, "at": r.at.isoformat(), **asdict(r.event)} for r in found]}

    async def _set_aside(self, _asked: dict[str, Any]) -> dict[str, Any]:
        return asdict(await asyncio.to_thread(self._service.state.set_aside))

    def _room(self, name: str) -> dict[str, Any]:
        host = self._service.host(name)
        room = host.room
        return {
            "room": name,
            "url": self._service.url(name),
            "quorum_id": room.last.id if room.last else 0,
            "step": room.last.step if room.last else 0,
            "members": [str(m.identity) for m in room.last.members] if room.last else [],
            "known": sorted(map(str, room.known())),
            "asking": sorted(map(str, room.asking())),
            "spares": sorted(room.spares),
            "done": room.done,
            "gone": {who: str(gone) for who, gone in room.gone.items()},
            "reason": room.reason(time.monotonic()),
            "refused": self._service.refused(name),
            "too_often": host.arrivals.refused,
            "omitted": host.record.omitted,
            "unwritten": host.unwritten,
            "rules": asdict(room.rules),
        }


def _say(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")


def _text(asked: dict[str, Any], key: str) -> str:
    value = asked.get(key)
    if not isinstance(value, str) or not 1 <= len(value) <= 1024 or not value.isprintable():
        raise Rejected(f"{key} is missing, or no text of 1 to 1024 printable characters")
    return value


def _object(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise Rejected("rules is an object")
    return given


def _rules(given: dict[str, Any]) -> Rules:
    for key, value in given.items():
        kinds: tuple[type, ...] = (int,) if _RULES.get(key) == "int" else (int, float)
        if key not in _RULES or type(value) not in kinds:
            raise Rejected(f"rules: {key} is not a number, or unknown; known: {', '.join(_RULES)}")
    return Rules(**given)
