"""A store that no rank hosts: ``python -m holdfast_train.store_host ADDRESS PORT``, until its standard input ends.

The ranks of a group meet in it after a failure in one of them. Port 0 takes any; the first line of output is ``ADDRESS PORT``."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import dataclass

from holdfast_train.errors import Unusable


@dataclass(slots=True)
class StoreHost:
    """Handle of the process for its starter. It ends automatically when its starter does."""

    process: subprocess.Popen[str]
    port: int

    def stop(self) -> None:
        """End it; safe to repeat."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


def start(address: str, port: int) -> StoreHost:
    """Raises Unusable when it cannot listen there."""
    argv = [sys.executable, "-m", "holdfast_train.store_host", address, str(port)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    line = process.stdout.readline() if process.stdout is not None else ""
    told = line.rsplit(" ", 1)
    if len(told) != 2 or not told[1].strip().isdigit():
        process.wait()
        raise Unusable(f"the ranks of this group cannot meet at {address}:{port}: its store did not start")
    return StoreHost(process, int(told[1]))


def listen(address: str, port: int) -> socket.socket:
    """A listener on this address only. Raises OSError."""
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family)


def main(address: str, port: int) -> None:
    from torch._C._distributed_c10d import TCPStore  # noqa: PLC0415 - slow, and after the port is known to be free

    listener = listen(address, port)
    port = listener.getsockname()[1]
    store = TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    sys.stdout.write(f"{address} {port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    del store


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except OSError as error:
        sys.stderr.write(f"holdfast_train: no store at {sys.argv[1]}:{sys.argv[2]}: {error}\n")
        raise SystemExit(1) from error
