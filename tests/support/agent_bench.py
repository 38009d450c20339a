"""A minimal controller over real HTTP, and the files of one node, for the tests of the agent."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import tomli_w

from holdfast.practice.hardware import host as host_files

Json = dict[str, Any]
PCI = "0000:3b:00.0"
XID = f"NVRM: Xid (PCI:{PCI[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class FakeController:
    """Controller stub over real HTTP/1.1; ``answer`` decides how it responds to a report."""

    def __init__(self) -> None:
        self.reports: list[Json] = []
        """Every report received, with ``received_s`` (CLOCK_MONOTONIC)."""
        self.heartbeats: list[Json] = []
        self.orders: list[Json] = []
        self.tokens: set[str] = set()
        self.answer: Callable[[Json], tuple[int, Json]] = lambda _report: (200, {"duplicate": False})
        self.rooms_asked: list[Json] = []
        self.room: Callable[[Json], tuple[int, Json]] = lambda _question: (404, {"error": "no elastic job"})
        self.heartbeat_status = 200
        self.heartbeat_answer: Json = {"leader": True}
        self.lose_answers = 0
        self.longest_wait_s = 0.5
        """How long a poll for orders waits; short, so that tests end soon."""
        self.changed = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_arguments: object) -> None: ...

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.tokens.add(self.headers.get("Authorization", ""))
                if self.path == "/v1/heartbeats":
                    outer._note(outer.heartbeats, body)
                    self._answer(outer.heartbeat_status, outer.heartbeat_answer)
                    return
                if self.path == "/v1/agent/room":
                    outer._note(outer.rooms_asked, body)
                    self._answer(*outer.room(body))
                    return
                status, answer = outer.answer(body)
                outer._note(outer.reports, {**body, "received_s": time.monotonic(), "status": status})
                if outer.lose_answers > 0:
                    outer.lose_answers -= 1
                    self.close_connection = True
                    return
                self._answer(status, answer)

            def do_GET(self) -> None:
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
                with outer.changed:
                    outer.changed.wait_for(
                        lambda: bool(outer.orders), min(float(query["wait_s"][0]), outer.longest_wait_s)
                    )
                    self._answer(200, {"orders": list(outer.orders)})

            def _answer(self, status: int, body: Json) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_arguments: object) -> None: ...

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def _note(self, where: list[Json], what: Json) -> None:
        with self.changed:
            where.append(what)
            self.changed.notify_all()

    def give(self, *orders: Json) -> None:
        with self.changed:
            self.orders.extend(orders)
            self.changed.notify_all()

    def items(self, kind: str = "") -> list[Json]:
        """Items of accepted reports without those of repeated reports, as a real controller counts them."""
        named = {(r["boot_id"], r["outbox_id"], r["sequence"]): r for r in self.reports if r["status"] == 200}
        return [item for report in named.values() for item in report["items"] if kind in ("", item["kind"])]

    def wait(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout_s), "the agent did not say what was waited for"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Folder:
    """One node's files, as a practice cluster lays them out, with a kernel log to write into."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.kmsg = path / "kmsg"
        self.kmsg.write_text("")
        (path / "boot_id").write_text("boot-1\n")
        (path / "instance_id").write_text("i-0abc\n")
        (path / "token").write_text("secret\n")
        self.seq = 0
        host_files.install(path)  # not the host that runs the tests
        self.config = path / "agent.toml"
        self.write_config(f'controllers = ["{url}"]')

    def write_config(self, more: str, **host: Any) -> None:
        """``more``: further keys and tables; ``host``: settings of ``[host]`` in addition to those of the emulated one."""
        table = tomli_w.dumps({"host": {**host_files.agent_settings(self.path), **host}})
        self.config.write_text(
            'node = "n1"\nstate_dir = "state"\nrun_dir = "run"\nkmsg_path = "kmsg"\nboot_id_path = "boot_id"\n'
            'instance_id_path = "instance_id"\nsysfs_path = "sys"\ntoken_file = "token"\nheartbeat_s = 0.2\n'
            f'slurmd_pid_file = "slurmd.pid"\ndisk_paths = ["."]\n{more}\n{table}'
        )

    def log(self, message: str, facility: int = 0) -> float:
        """Write a kernel record now and return its time."""
        now_s = time.monotonic()
        with self.kmsg.open("a") as file:
            file.write(f"{facility * 8 + 3},{self.seq},{int(now_s * 1e6)},-;{message}\n")
        self.seq += 1
        return now_s

    def start(self) -> subprocess.Popen[bytes]:
        """The real agent in a separate process."""
        command = [sys.executable, "-m", "holdfast.agent", "--config", str(self.config)]
        with (self.path / "agent.log").open("ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "PYTHONWARNINGS": "error"})

    @property
    def agent_log(self) -> str:
        return (self.path / "agent.log").read_text()


def seen_right(folder: Path) -> set[str]:
    """Checks that the agent in this folder has recorded as seen OK."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder}/state/agent.db?mode=rw", uri=True)) as db:
            row = db.execute("SELECT value FROM meta WHERE key = 'seen_right'").fetchone()
    except sqlite3.OperationalError:  # the agent has just started
        return set()
    return {proof[0] for proof in json.loads(row[0])} if row else set()


@contextlib.contextmanager
def running(folder: Folder) -> Iterator[subprocess.Popen[bytes]]:
    """The agent in a separate process; killed at the end."""
    process = folder.start()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
