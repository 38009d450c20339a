"""The uvicorn server around the application, with bounds that fit thousands of waiting agents."""

from __future__ import annotations

import ipaddress

import uvicorn
from fastapi import FastAPI

from holdfast.model.errors import ConfigError

KEEP_ALIVE_S = 75
"""Longer than the longest poll: agents keep one connection."""
STOP_S = 3


def is_loopback(host: str) -> bool:
    """Whether a bind to ``host`` can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind(host: str, tls_cert: str | None, tls_key: str | None) -> None:
    """Tokens cross no network in the clear. Raises ConfigError for a bind beyond loopback without TLS."""
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("server: tls_cert and tls_key belong together; set both or neither")
    if tls_cert is None and not is_loopback(host):
        raise ConfigError(
            f"server: host {host} is not loopback and TLS is not set: add tls_cert and tls_key, or host = 127.0.0.1"
        )


def build_server(
    app: FastAPI, *, host: str, port: int, tls_cert: str | None = None, tls_key: str | None = None
) -> uvicorn.Server:
    """A server to be run in the caller's event loop with ``serve()``. Raises ConfigError, see :func:`check_bind`."""
    check_bind(host, tls_cert, tls_key)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        access_log=False,
        log_config=None,
        lifespan="off",
        ws="none",
        server_header=False,
        date_header=False,
        backlog=4096,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    return uvicorn.Server(config)
