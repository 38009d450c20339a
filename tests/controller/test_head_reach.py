"""The head node's own connects to silent nodes, over real sockets of this machine."""

from __future__ import annotations

import socket
import time

from holdfast.controller.head_reach import connect, resolve


def test_accepted_and_refused_are_answers_and_a_full_backlog_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as full:
        port = server.getsockname()[1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            refused = free.getsockname()[1]
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            began_s = time.monotonic()
            answered = connect(
                {
                    "accepts": ("127.0.0.1", port),
                    "refuses": ("127.0.0.1", refused),
                    "is silent": full.getsockname(),
                    "has no name": ("no-such-host.invalid", 1),
                },
                0.3,
            )
            assert time.monotonic() - began_s < 5.0
    assert answered == {"accepts", "refuses"}


def test_names_that_resolve_become_addresses() -> None:
    found = resolve({"n1": "localhost", "n2": "no-such-host.invalid"})
    assert set(found) == {"n1"}
    assert found["n1"] in ("127.0.0.1", "::1")
