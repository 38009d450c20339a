"""The quorum service with its admission port and real gRPC clients for it, in one process and one event loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from holdfast.quorum import messages
from holdfast.quorum.control import ControlSocket
from holdfast.quorum.identity import replica_name
from holdfast.quorum.service import Service
from holdfast.quorum.state import QuorumStore

KEY = b"k" * 32


class Site:
    """A service with its control socket, and clients for it."""

    def __init__(self, folder: Path, state: QuorumStore) -> None:
        self.folder = folder
        self.service = Service(state, KEY, bind="127.0.0.1", advertise="127.0.0.1")
        self.control = ControlSocket(self.service, folder / "q.sock")
        self.channels: dict[str, Any] = {}

    async def do(self, **asked: Any) -> dict[str, Any]:
        reader, writer = await asyncio.open_unix_connection(self.folder / "q.sock")
        writer.write(json.dumps(asked).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await reader.readline())
        writer.close()
        return answer

    def call(self, url: str, method: str) -> Any:
        channel = self.channels.setdefault(url, grpc.aio.insecure_channel(url.removeprefix("http://")))
        return channel.unary_unary(f"/{messages.SERVICE}/{method}")

    async def ask(self, url: str, wire_id: str, step: int = 0) -> tuple[int, list[str]]:
        request = messages.QuorumRequest()
        request.requester.replica_id, request.requester.step = wire_id, step
        raw = await self.call(url, "Quorum")(request.SerializeToString(), timeout=10)
        quorum = messages.QuorumResponse.FromString(raw).quorum
        assert abs(quorum.created.seconds - time.time()) < 60
        return quorum.quorum_id, [p.replica_id for p in quorum.participants]

    async def beat(self, url: str, wire_id: str) -> None:
        await self.call(url, "Heartbeat")(messages.HeartbeatRequest(replica_id=wire_id).SerializeToString(), timeout=10)


@asynccontextmanager
async def site(folder: Path, state: QuorumStore) -> AsyncIterator[Site]:
    made = Site(folder, state)
    await made.service.start()
    await made.control.start()
    try:
        yield made
    finally:
        for channel in made.channels.values():
            await channel.close()
        await made.control.stop()
        await made.service.stop()


def with_site(folder: Path, scene: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        state = QuorumStore(f"sqlite:///{folder}/holdfast.db")
        try:
            async with site(folder, state) as made:
                await scene(made)
        finally:
            state.close()

    asyncio.run(play())


def named(opened: dict[str, Any], group: str, start: str = "a") -> str:
    return replica_name(opened["token"], group, start) + ":u"


async def refusal(asking: Coroutine[Any, Any, Any]) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asking
    return caught.value.code().name, str(caught.value.details())
