"""TCP relay between each node's agent and the controller, which can drop all traffic of a node: ``relay FOLDER``.

Node K's agent uses ``http://127.x.y.K:RELAY_PORT``. While ``nodes/nK/cut`` exists nothing passes in either direction, not
even the close of a connection; data sent meanwhile arrives after the cut, as with TCP's own retransmissions.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from pathlib import Path

from holdfast.practice.cluster import spec as specs

_LOOK_AGAIN_S = 0.05
_CHUNK_BYTES = 65536


async def _while_cut(cut: Path) -> None:
    while cut.exists():
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, cut: Path) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await source.read(_CHUNK_BYTES):
            await _while_cut(cut)
            target.write(chunk)
            await target.drain()
    await _while_cut(cut)
    if target.can_write_eof():
        with contextlib.suppress(OSError):
            target.write_eof()


async def _serve(cut: Path, controller_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _while_cut(cut)
    try:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", controller_port)
    except OSError:
        writer.transport.abort()
        return
    await asyncio.gather(_pump(reader, upstream_writer, cut), _pump(upstream_reader, writer, cut))
    for end in (upstream_writer, writer):
        end.close()
        with contextlib.suppress(ConnectionError):
            await end.wait_closed()


async def run(folder: Path) -> None:
    """Serve all nodes of the cluster until killed."""
    spec = specs.load(folder)
    servers = []
    for node in spec.nodes:
        serve = functools.partial(_serve, folder / "nodes" / node / "cut", spec.controller_port)
        servers.append(await asyncio.start_server(serve, spec.address(node), spec.relay_port(node)))
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
