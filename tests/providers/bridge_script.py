"""A site's script that asks a test for its answer by a Unix socket: ``bridge_script.py SOCKET VERB …``. Standard library only."""

from __future__ import annotations

import json
import socket
import sys


def main(path: str) -> int:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(sys.stdin.buffer.read())
        line.shutdown(socket.SHUT_WR)
        said = json.loads(b"".join(iter(lambda: line.recv(65536), b"")))
    print(json.dumps(said["answer"]))  # noqa: T201 - its answer
    return int(said["status"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
