"""The floods of ``bench/floods.py``, as a separate process: ``flood.py PLAN.json``. Standard library only.

Each kind does its worst from a few threads and ignores ``Retry-After``; the answers are counted and printed at the
end as one line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import socket
import ssl
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

THREADS = 4
HELD = 3000
"""Connections that are kept open at a time, by all threads together."""
_RESET = b"\1\0\0\0\0\0\0\0"
_HOST = b"Host: x\r\n"


class Flood:
    """One plan: ``kind``, ``port``, ``seconds``, ``tls`` and, where one is used, ``token`` and ``node``."""

    def __init__(self, plan: dict[str, object]) -> None:
        self.address = ("127.0.0.1", int(str(plan["port"])))
        self.until_s = time.monotonic() + float(str(plan["seconds"]))
        self.tls = bool(plan["tls"])
        self.token = str(plan.get("token", "")).encode()
        self.node = str(plan.get("node", ""))
        self.kind, self.source = str(plan["kind"]), str(plan["source"])
        self.counts: Counter[str] = Counter()
        self._trust = ssl.create_default_context()
        self._trust.check_hostname, self._trust.verify_mode = False, ssl.CERT_NONE

    def run(self) -> Counter[str]:
        """Until the end of its time."""
        work = KINDS[self.kind]
        threads = [threading.Thread(target=self._repeat, args=(work,), daemon=True) for _ in range(THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(max(self.until_s - time.monotonic(), 0.0) + 3.0)
        return self.counts

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until_s

    def _repeat(self, work: Callable[[Flood], None]) -> None:
        while not self.over:
            try:
                work(self)
            except OSError as error:
                self.counts[type(error).__name__] += 1

    def connect(self) -> socket.socket:
        """Without TLS."""
        made = socket.create_connection(self.address, 2, source_address=(self.source, 0))
        self.counts["connected"] += 1
        return made

    def client(self) -> socket.socket:
        """After the handshake, where the server speaks TLS."""
        made = self.connect()
        if not self.tls:
            return made
        try:
            return self._trust.wrap_socket(made)
        except OSError:
            made.close()
            raise

    def hold(self, begin: Callable[[], bytes], *, tls: bool) -> None:
        """Open connections that begin like this and then say nothing; the oldest goes for the newest."""
        held: deque[socket.socket] = deque()
        try:
            while not self.over:
                try:
                    made = self.client() if tls else self.connect()
                    made.sendall(begin())
                    held.append(made)
                except OSError as error:
                    self.counts[type(error).__name__] += 1
                if len(held) > HELD // THREADS:
                    held.popleft().close()
        finally:
            for each in held:
                each.close()

    def ask(self, *requests: bytes) -> None:
        """Each of these again and again on one connection, the next as soon as the one before is answered."""
        with contextlib.closing(self.client()) as made:
            made.settimeout(10)
            while not self.over:
                for each in requests:
                    made.sendall(each)
                    self.counts[_status(made)] += 1

    def request(self, method: str, path: str, body: bytes = b"", token: bytes | None = None) -> bytes:
        head = b"%b %b HTTP/1.1\r\n%bAuthorization: Bearer %b\r\n" % (
            method.encode(),
            path.encode(),
            _HOST,
            self.token if token is None else token,
        )
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _status(made: socket.socket) -> str:
    found = b""
    while b"\r\n\r\n" not in found:
        part = made.recv(65_536)
        if not part:
            raise ConnectionError("closed")
        found += part
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    left = length - len(body)
    while left > 0:
        part = made.recv(min(left, 1 << 20))
        if not part:
            raise ConnectionError("closed")
        left -= len(part)
    return head[9:12].decode()


def bodies(flood: Flood) -> None:
    """Bodies without end, and no token."""
    block = b"x" * 65_536
    with contextlib.closing(flood.client()) as made:
        made.sendall(b"POST /v1/reports HTTP/1.1\r\n" + _HOST + b"Content-Length: 1073741824\r\n\r\n")
        while not flood.over:
            made.sendall(block)


def heads(flood: Flood) -> None:
    """Heads without end."""
    block = b"X: " + b"y" * 65_000 + b"\r\n"
    with contextlib.closing(flood.client()) as made:
        made.sendall(b"GET / HTTP/1.1\r\n" + _HOST)
        while not flood.over:
            made.sendall(block)


def rows(flood: Flood) -> None:
    """Requests in a row whose answers are not waited for."""
    block = (b"GET /readyz HTTP/1.1\r\n" + _HOST + b"\r\n") * 40
    with contextlib.closing(flood.client()) as made:
        while not flood.over:
            made.sendall(block)
            made.recv(1 << 20)


def halves(flood: Flood) -> None:
    """Half a request, and silence."""
    flood.hold(lambda: b"GET /healthz HTTP/1.1\r\n" + _HOST + b"X:", tls=True)


def connections(flood: Flood) -> None:
    """Connections that say nothing."""
    flood.hold(lambda: b"", tls=False)


def handshakes(flood: Flood) -> None:
    """TLS handshakes that the server has to sign for, and that never end."""

    def hello() -> bytes:
        coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
        begun = flood._trust.wrap_bio(coming, going)
        with contextlib.suppress(ssl.SSLWantReadError):
            begun.do_handshake()
        return going.read()

    flood.hold(hello, tls=False)


def garbage(flood: Flood) -> None:
    """Bytes that are no HTTP."""
    with contextlib.closing(flood.client()) as made:
        made.sendall(random.randbytes(1000))
        made.recv(1000)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def made_up(flood: Flood) -> None:
    """Invented tokens, a different one each time."""
    flood.ask(*(flood.request("GET", "/v1/nodes", token=random.randbytes(16).hex().encode()) for _ in range(200)))


def viewer(flood: Flood) -> None:
    """A good viewer's token, for what costs most."""
    paths = ("/v1/nodes", "/metrics", "/v1/metrics?window_s=34560000&each=true", "/v1/events?limit=1000")
    flood.ask(*(flood.request("GET", path) for path in paths))


def agent(flood: Flood) -> None:
    """A good agent's token: reports as large as they may be, heartbeats, requests for orders."""
    names = {"version": 1, "node": flood.node, "instance_id": "i-x", "boot_id": "b-x", "agent_version": "0.1"}
    item = {"kind": "finding", "check": "host.x", "verdict": "degraded", "severity": "warning", "summary": "x" * 1000}
    for number in range(1, 1_000_000):
        if flood.over:
            return
        items = [{**item, "component": f"c{number}-{each}"} for each in range(400)]
        named = {"outbox_id": f"o{os.getpid()}-{threading.get_ident()}", "sequence": number, "items": items}
        report = json.dumps({**names, **named}).encode()
        beat = json.dumps({**names, "interval_s": 10}).encode()
        orders = f"/v1/orders?node={flood.node}&instance_id=i-x&boot_id=b-x&wait_s=0"
        with contextlib.closing(flood.client()) as made:
            made.settimeout(10)
            for _ in range(20):
                for each in (
                    flood.request("POST", "/v1/reports", report),
                    flood.request("POST", "/v1/heartbeats", beat),
                    flood.request("GET", orders),
                ):
                    made.sendall(each)
                    flood.counts[_status(made)] += 1


KINDS: dict[str, Callable[[Flood], None]] = {
    "bodies": bodies,
    "heads": heads,
    "rows": rows,
    "halves": halves,
    "connections": connections,
    "handshakes": handshakes,
    "garbage": garbage,
    "made-up tokens": made_up,
    "viewer": viewer,
    "agent": agent,
}

if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    counted = Flood(json.loads(Path(sys.argv[1]).read_text())).run()
    print(json.dumps(counted), flush=True)
    os._exit(0)  # threads that wait for an answer are not waited for
