"""A package index on loopback on which strangers offer higher versions under the names of our distribution."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO

NAMES = ("holdfast", "holdfast-slurm")
MARK = "a stranger's"
_VERSION = "99.0"


def strangers_wheel(name: str) -> tuple[str, bytes]:
    """A stranger's wheel: file name and content. It contains another module ``holdfast``."""
    stem = name.replace("-", "_")
    info, made = f"{stem}-{_VERSION}.dist-info", BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        opened.writestr("holdfast/__init__.py", f'__version__ = "{MARK}"\n')
        opened.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {_VERSION}\n")
        opened.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        opened.writestr(f"{info}/RECORD", "")
    return f"{stem}-{_VERSION}-py3-none-any.whl", made.getvalue()


class Strangers:
    """``asked``: the paths that were asked for under our names."""

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        self._port = port

    @property
    def environ(self) -> dict[str, str]:
        """For pip: this index in addition to those of the machine. To pip all of them are equal, and the highest version wins."""
        command = [sys.executable, "-m", "pip", "config", "get", "global.extra-index-url"]
        others = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        others = os.environ.get("PIP_EXTRA_INDEX_URL", others)
        url = f"http://127.0.0.1:{self._port}/simple"
        return {"PIP_EXTRA_INDEX_URL": f"{url} {others}".strip(), "PIP_NO_CACHE_DIR": "1"}


@contextmanager
def strangers() -> Iterator[Strangers]:
    offered = dict(strangers_wheel(name) for name in NAMES)

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").rpartition("/")[2]
            body = offered.get(name)
            if body is None and name in NAMES:
                files = [f for f in offered if f.startswith(f"{name.replace('-', '_')}-")]
                body = "".join(f'<a href="/files/{f}">{f}</a>' for f in files).encode()
            if body is not None:
                made.asked.append(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.send_header("Content-Type", "text/html" if self.path.startswith("/simple") else "application/zip")
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    made = Strangers(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
