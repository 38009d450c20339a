"""The quorum service: one gRPC port per rendezvous, which can be opened and closed while the service runs.

One port each, because stock torchft and torchtitan jobs can only be given an address: they work unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import logging
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from holdfast.descriptors import for_connections, open_files
from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.quorum import messages
from holdfast.quorum.host import Formed, RendezvousHost
from holdfast.quorum.identity import (
    Farewell,
    Forged,
    GroupIdentity,
    identify,
    room_token,
    split_farewell,
    split_observe,
)
from holdfast.quorum.nouns import MEMBERS_MAX, Away, MemberRefused, QuorumMember, RendezvousSnapshot, Rules
from holdfast.quorum.room import Rendezvous
from holdfast.quorum.state import QuorumStore, StoredRendezvous
from holdfast_checks.aside import put_aside

log = logging.getLogger(__name__)

KEY_BYTES = 32
_KEY_EFFECT = "a new key is made; members of running elastic jobs are refused until their groups start again"
_KEY_DO = "where the right key is in a backup: stop the service, restore it, start the service; else restart the elastic jobs' groups"
_FEWEST_CONNECTIONS, _MOST_CONNECTIONS = 64, 4096
_LONGEST_ADDRESS = 1024
_LONGEST_DATA = 16_384
_TEXTS_OF_A_ROOM, _LEAST_SHARE = 1 << 20, 1024
"""Limit on the addresses and data of all members together, and on those of one member in the largest rendezvous: every member is sent
those of all, and they are stored."""
_ROOM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OPTIONS = (
    ("grpc.max_receive_message_length", 65_536),
    ("grpc.so_reuseport", 0),  # a port belongs to one rendezvous of one service
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.server_handshake_timeout_ms", 10_000),  # for a connection that sends nothing; gRPC's default: two minutes
    ("grpc.max_connection_idle_ms", 60_000),  # without a call: a member sends heartbeats, and connects again
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),  # torchft pings an idle connection every 60 s
)


def read_key(path: Path) -> bytes:
    """The key that tokens are derived from; created at the first start, readable by its owner only. A key that is too short is moved aside.

    Raises OSError, Unavailable where another service uses the key that is too short."""
    for _ in range(2):
        with contextlib.suppress(FileExistsError):
            _make_key(path)
        key = path.read_bytes()
        if len(key) >= KEY_BYTES:
            return key
        _put_key_aside(path, len(key))
    raise OSError(f"{path} is no key of {KEY_BYTES} bytes: restore it from a backup, or remove it")


def _make_key(path: Path) -> None:
    """Write the key to disk (fsync) before any token is derived from it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _put_key_aside(path: Path, size: int) -> None:
    with path.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Unavailable(f"another quorum service runs with {path}") from error
        put_aside(path, f"{size} bytes, not {KEY_BYTES}", _KEY_EFFECT, _KEY_DO)


class _Door:
    """gRPC handler of one rendezvous: its two calls."""

    def __init__(self, host: RendezvousHost, token: str) -> None:
        self._host = host
        self._token = token
        self._known: dict[str, GroupIdentity] = {}
        """Names that were verified, so that a heartbeat costs one look-up."""
        self._written: tuple[Formed | None, bytes] = None, b""
        self.refused = 0

    def handlers(self) -> Any:
        return grpc.method_handlers_generic_handler(
            messages.SERVICE,
            {
                "Quorum": grpc.unary_unary_rpc_method_handler(self._quorum, None, self._write),
                "Heartbeat": grpc.unary_unary_rpc_method_handler(self._heartbeat, None, messages.write_nothing),
            },
        )

    def _write(self, formed: Formed) -> bytes:
        """Encode an answer once for all members of a quorum: encoding it per member would delay every rendezvous."""
        if self._written[0] is not formed:
            self._written = formed, messages.write_quorum(formed)
        return self._written[1]

    async def _quorum(self, raw: bytes, context: Any) -> Formed:
        try:
            asked = messages.read_quorum_request(raw)
            wire_id, looking = split_observe(asked.replica_id)
            who = self._identify(wire_id, context)
            if looking:
                return self._host.observe(who)
            return await self._host.ask(_member(who, asked, self._host.room.heard))
        except DecodeError:
            return await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "not a lighthouse request")
        except Forged as error:
            return await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, str(error))
        except Away as error:
            return await self._refuse(context, grpc.StatusCode.UNAVAILABLE, str(error))
        except MemberRefused as error:
            return await self._refuse(context, grpc.StatusCode.PERMISSION_DENIED, str(error))

    async def _heartbeat(self, raw: bytes, context: Any) -> None:
        """Handle a heartbeat. A refused member gets no error here, or its Manager would reconnect ten times a second; its next quorum
        request fails."""
        try:
            wire_id, farewell = split_farewell(messages.read_heartbeat(raw))
            who = self._known.get(wire_id) or self._identify(wire_id, context)
        except (DecodeError, Forged):
            self.refused += 1
            return
        if farewell is None:
            self._host.heartbeat(who)
            return
        try:
            await self._host.change(
                lambda room: room.finish(who) if farewell is Farewell.DONE else room.leave(str(who))
            )
        except Unavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    def _identify(self, wire_id: str, context: Any) -> GroupIdentity:
        addresses = self._host.kept.addresses
        if addresses and (peer := _peer_address(context.peer())) not in addresses:
            raise Forged(f"{peer or 'this address'} belongs to no node of this job")
        if (who := self._known.get(wire_id)) is None:
            who = identify(wire_id, None if addresses else self._token)
            if not addresses and len(self._known) < self._host.room.rules.members_max:
                self._known[wire_id] = who
        return who

    async def _refuse(self, context: Any, code: Any, line: str) -> Formed:
        self.refused += 1
        if self.refused in (1, 10, 100) or self.refused % 1000 == 0:
            room = self._host.kept.name
            log.warning(
                "event=quorum_refused room=%s peer=%s times=%d why=%r", room, context.peer(), self.refused, line
            )
        await context.abort(code, f"Holdfast's rendezvous {self._host.kept.name}: {line}")
        raise AssertionError("abort raises")


def _member(who: GroupIdentity, asked: messages.Requester, members: int) -> QuorumMember:
    texts = len(asked.address) + len(asked.store_address) + len(asked.data)
    too_long = max(len(asked.address), len(asked.store_address)) > _LONGEST_ADDRESS or len(asked.data) > _LONGEST_DATA
    if too_long or texts > max(_TEXTS_OF_A_ROOM // max(members, 1), _LEAST_SHARE):
        raise MemberRefused("an address or the data of the request is too long")
    return QuorumMember(
        who,
        asked.replica_id,
        asked.address,
        asked.store_address,
        asked.step,
        asked.world_size,
        asked.shrink_only,
        asked.commit_failures,
        asked.data,
    )


def _peer_address(peer: str) -> str | None:
    """``ipv4:10.0.0.1:4711`` or ``ipv6:[…%5D]:4711`` → the address; None for what has none."""
    kind, _, rest = peer.partition(":")
    text = rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]").split("%")[0]
    try:
        address = ipaddress.ip_address(text) if kind in ("ipv4", "ipv6") else None
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return None if address is None else str(mapped or address)


class Service:
    """All rendezvous of the service. Lives in one event loop."""

    def __init__(self, state: QuorumStore, key: bytes, *, bind: str, advertise: str) -> None:
        """``bind``: the address to listen on; ``advertise``: the name or address given to jobs."""
        self.state = state
        self._key = key
        self._bind = bind
        self._advertise = advertise
        self._rooms: dict[str, tuple[RendezvousHost, Any, _Door]] = {}
        self._most: dict[str, int] = {}
        """Connections that each open rendezvous may have."""

    async def start(self) -> None:
        """Reopen every rendezvous that was open, on its port. Raises Unavailable."""
        for kept in self.state.load(datetime.now(UTC)):
            await self._serve(RendezvousHost(kept, self.state, restored=True))
        log.info("event=quorum_started rooms=%d", len(self._rooms))

    async def stop(self) -> None:
        """Stop serving. Rendezvous stay open in the database and continue at the next start."""
        await asyncio.gather(*(self._end(name, "the service stops: ask again") for name in list(self._rooms)))

    async def open(self, name: str, rules: Rules, addresses: tuple[str, ...] = ()) -> dict[str, Any]:
        """Open a rendezvous, or change the rules of an open one. Returns its address and token. Raises Rejected, Unavailable."""
        if not _ROOM_NAME.fullmatch(name):
            raise Rejected("a rendezvous' name has 1 to 64 letters, digits, dots, dashes and underscores")
        _check(rules)
        try:
            addresses = tuple(str(ipaddress.ip_address(text)) for text in addresses)
        except ValueError as error:
            raise Rejected(f"addresses: {error}") from error
        if name not in self._rooms:
            kept = StoredRendezvous(name, 0, addresses, RendezvousSnapshot(rules), secrets.token_hex(8))
            await self._serve(RendezvousHost(kept, self.state, restored=False))
        host = self.host(name)
        rules = replace(rules, groups=max(rules.groups, host.room.rules.groups))  # a known group stays known
        if (rules, addresses) != (host.room.rules, host.kept.addresses):
            host.set_rules(rules, addresses)
        await host.change(lambda _room: ())
        return {"url": self.url(name), "token": self._token(host), "needs_token": not addresses}

    async def close(self, name: str) -> None:
        """Close a rendezvous; its record stays. Raises NotFound, Unavailable."""
        self.host(name)
        await self._end(name, "the rendezvous is closed")
        await asyncio.to_thread(self.state.drop, name, datetime.now(UTC))

    async def change(self, name: str, what: Callable[[Rendezvous], tuple[GroupIdentity, ...]]) -> list[str]:
        """Raises NotFound, Unavailable."""
        return [str(who) for who in await self.host(name).change(what)]

    def host(self, name: str) -> RendezvousHost:
        """Raises NotFound."""
        if name not in self._rooms:
            raise NotFound(f"there is no room {name}: open {', '.join(sorted(self._rooms)) or 'one'}")
        return self._rooms[name][0]

    def rooms(self) -> tuple[str, ...]:
        return tuple(sorted(self._rooms))

    def refused(self, name: str) -> int:
        """Calls that were dropped."""
        return self._rooms[name][2].refused

    def url(self, name: str) -> str:
        """Value of ``TORCHFT_LIGHTHOUSE`` for a job."""
        advertise = f"[{self._advertise}]" if ":" in self._advertise else self._advertise
        return f"http://{advertise}:{self.host(name).kept.port}"

    def _token(self, host: RendezvousHost) -> str:
        return room_token(self._key, host.kept.name, host.kept.opening)

    async def _serve(self, host: RendezvousHost) -> None:
        name = host.kept.name
        door = _Door(host, self._token(host))
        most = room_connections(for_connections(open_files()) - sum(self._most.values()))
        server = grpc.aio.server(options=(*_OPTIONS, ("grpc.max_allowed_incoming_connections", most)))
        server.add_generic_rpc_handlers((door.handlers(),))
        bind = f"[{self._bind}]" if ":" in self._bind else self._bind
        try:
            port = server.add_insecure_port(f"{bind}:{host.kept.port}")
        except RuntimeError as error:
            raise Unavailable(f"rendezvous {name} cannot listen on {bind}:{host.kept.port}: {error}") from error
        host.set_port(port)
        await server.start()
        self._rooms[name], self._most[name] = (host, server, door), most
        host.soon()

    async def _end(self, name: str, why: str) -> None:
        host, server, _door = self._rooms.pop(name)
        del self._most[name]
        host.close(why)
        await server.stop(0.2)


def room_connections(left: int) -> int:
    """Connections that one more rendezvous may have, given the number not yet promised to others: any user can open connections, and
    they must not take descriptors that the other rendezvous, the store or the controller's socket need."""
    return max(_FEWEST_CONNECTIONS, min(_MOST_CONNECTIONS, left // 8))


def _check(rules: Rules) -> None:
    if not 1 <= rules.min_groups <= rules.max_groups:
        raise Rejected(
            f"min_groups is {rules.min_groups}, max_groups {rules.max_groups}: 1 <= min_groups <= max_groups"
        )
    if rules.groups < 0 or not 1 <= rules.members_max <= MEMBERS_MAX:
        raise Rejected(f"groups is at least 0, members_max lies between 1 and {MEMBERS_MAX}")
    if not (0.2 <= rules.heartbeat_timeout_s <= 3600 and 0 <= rules.join_timeout_s <= 86_400):
        raise Rejected("heartbeat_timeout_s lies between 0.2 and 3600, join_timeout_s between 0 and 86400")
