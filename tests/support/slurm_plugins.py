"""The Slurm plug-ins, compiled for tests, and agents that give prepared answers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

SLURM_INCLUDE = os.environ.get("SLURM_INCLUDE", "/usr/include")
"""Where the headers of the Slurm under test are; the Makefile takes the same variable."""
PLUGINS = Path(__file__).parents[2] / "slurm-plugins"


def has_headers() -> bool:
    """Whether this machine can compile against Slurm's headers."""
    if shutil.which("cc") is None or shutil.which("make") is None:
        return False
    argv = ["cc", f"-I{SLURM_INCLUDE}", "-x", "c", "-fsyntax-only", "-"]
    return not subprocess.run(argv, input=b"#include <slurm/spank.h>\n", capture_output=True, check=False).returncode


def make(folder: Path, *goals: str) -> None:
    """Compile into a folder; warnings are errors."""
    argv = ["make", "--silent", "-C", str(PLUGINS / "spank"), f"OUT={folder}", *goals]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@dataclass
class FakeAgent:
    """Listens, keeps what it receives, and answers each line with the same bytes, possibly late, possibly not at all."""

    path: Path
    answer: bytes | None = None
    delay_s: float = 0.0
    heard: list[bytes] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self.path.chmod(0o777)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        with suppress(OSError):  # stopped
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError), connection.makefile("rwb", buffering=0) as lines:
                    for line in lines:
                        self.heard.append(line)
                        if self.answer is not None:
                            self._stopping.wait(self.delay_s)
                            lines.write(self.answer)
