"""The uvicorn server around the application, with bounds that fit thousands of waiting agents."""

from __future__ import annotations

import gc
import logging
import time

import uvicorn
from fastapi import FastAPI

from holdfast.api.transport import listening, protocols
from holdfast.api.transport.certificates import check_pair
from holdfast.api.transport.connections import KEEP_ALIVE_S, Bounds, Connections
from holdfast.config.binding import check_bind, networks
from holdfast.config.sections import ServerSection
from holdfast.descriptors import for_connections, open_files

log = logging.getLogger(__name__)

STOP_S = 3


def quiet_gc() -> None:
    """To be called once, when everything is imported and wired: what lives for ever is no longer walked.

    Measured with 4,096 agents and as many waiting polls: full collections of 100 to 200 ms stopped the event loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 1000)


def connections_for(section: ServerSection) -> Connections:
    """Bounded by the settings, and by the descriptors that this process may open now. Raises ConfigError."""
    room, wanted = for_connections(open_files()), section.max_connections
    if wanted > room:
        log.warning("event=max_connections_lowered wanted=%d most=%d reason=open_files", wanted, room)
    proxies = networks(section.proxies, "server.proxies")
    bounds = Bounds(min(wanted or room, room), section.max_connections_per_address, proxies=proxies)
    return Connections(bounds, time.monotonic)


def build_server(
    app: FastAPI,
    *,
    host: str,
    port: int,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    connections: Connections | None = None,
) -> uvicorn.Server:
    """A server to be run in the caller's event loop with ``serve()``. ``connections``: None: bounded as shipped.

    Raises ConfigError when ``host`` is beyond loopback and TLS is not set, or when certificate and key cannot be used."""
    check_bind(host, tls_cert, tls_key)
    if tls_cert is not None and tls_key is not None:
        check_pair(tls_cert, tls_key)
    config = listening.GuardedConfig(
        app,
        host=host,
        port=port,
        loop="asyncio",  # another one would not accept by our listener
        http=protocols.protocol,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        access_log=False,
        log_config=None,
        lifespan="off",
        ws="none",
        server_header=False,
        date_header=False,
        backlog=4096,
        h11_max_incomplete_event_size=protocols.MAX_HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    config.guard = listening.ConnectionGuard(connections or connections_for(ServerSection()))
    return listening.GuardedServer(config)
