"""Screens that are drawn again: ``--watch`` and `holdfast top`, each driven in its own terminal."""

from __future__ import annotations

import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from typing import Any

import pytest

from holdfast.cli.common.live import drawn, printed, with_seconds
from holdfast.model.errors import Unavailable

ARGUMENTS = [
    (["nodes"], ["nodes"]),
    (["nodes", "--watch"], ["nodes", "--watch=2"]),
    (["nodes", "--watch", "5"], ["nodes", "--watch", "5"]),
    (["nodes", "--watch", "0.5", "--bad"], ["nodes", "--watch", "0.5", "--bad"]),
    (["nodes", "--watch", "--bad"], ["nodes", "--watch=2", "--bad"]),
    (["nodes", "--watch", "n1"], ["nodes", "--watch=2", "n1"]),
    (["nodes", "--watch=7"], ["nodes", "--watch=7"]),
    (["nodes", "--", "--watch"], ["nodes", "--", "--watch"]),
]


@pytest.mark.parametrize(("given", "read"), ARGUMENTS)
def test_watch_alone_means_two_seconds(given: list[str], read: list[str]) -> None:
    assert with_seconds(given) == read


def test_a_frame_fills_the_terminal_and_no_more() -> None:
    few = drawn("a\nb\n", "title", 20, 5)
    assert few.startswith("\x1b[H")
    assert few.count("\n") == 2
    many = drawn("\n".join(map(str, range(100))), "a title that is too long", 20, 5)
    assert many.count("\n") == 4
    assert "… 97 more lines" in many
    assert "a title that is too " in many


def test_an_error_is_the_last_line_of_a_frame() -> None:
    def fails() -> None:
        print("first")  # noqa: T201 - as a verb does
        raise Unavailable("the controller does not answer")

    assert printed(fails) == "first\nholdfast: the controller does not answer\n"


def test_without_a_terminal_it_is_shown_once(holdfast: Any, site: dict[str, str]) -> None:
    once = holdfast("spares", "--watch", **site)
    assert (once.status, once.err, once.out) == (0, "", holdfast("spares", **site).out)
    got = holdfast("top", **site)
    assert (got.status, got.out) == (2, "")
    assert "`holdfast status` prints the same once" in got.err


class Terminal:
    """A process with a terminal of 80 columns and 40 lines."""

    def __init__(self, process: subprocess.Popen[bytes], side: int) -> None:
        self.process, self._side, self.seen = process, side, b""

    def until(self, text: str, within_s: float = 60.0) -> None:
        """Read until this has been printed."""
        ends_s = time.monotonic() + within_s
        while text.encode() not in self.seen:
            left_s = ends_s - time.monotonic()
            assert left_s > 0, self.seen.decode(errors="replace")
            if select.select([self._side], [], [], left_s)[0]:
                some = self._read()
                assert some, f"it has ended: {self.seen.decode(errors='replace')}"
                self.seen += some

    def press(self, keys: bytes) -> None:
        self.seen = b""
        os.write(self._side, keys)

    def ended(self) -> int:
        """Exit status, when all that it printed has been read."""
        while (some := self._read()) != b"":
            self.seen += some
        return self.process.wait(60)

    def _read(self) -> bytes:
        try:
            return os.read(self._side, 65536)
        except OSError:  # the process has closed the other side
            return b""


@contextmanager
def a_terminal(*argv: str, **env: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    # Ctrl-C of the terminal reaches it, also where a shell that started the tests in the background has it ignored.
    process = subprocess.Popen(
        ["env", "--default-signal=INT", "setsid", "--ctty", sys.executable, "-m", "holdfast.cli", *argv],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **env},
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.slow
@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_top_is_drawn_again_until_a_key_ends_it(site: dict[str, str], key: bytes) -> None:
    with a_terminal("top", "--every", "0.5", **site) as terminal:
        terminal.until("WAITS FOR YOU")
        terminal.until("LAST NIGHT")
        assert terminal.seen.count(b"\x1b[?1049h") == 1
        terminal.seen = b""
        terminal.until("\x1b[H")
        terminal.until("LAST NIGHT")
        terminal.press(key)
        assert terminal.ended() == 0
        assert terminal.seen.endswith(b"\x1b[?25h\x1b[?1049l"), "the terminal is as it was"
        assert b"Traceback" not in terminal.seen


@pytest.mark.slow
def test_watch_goes_over_an_outage(site: dict[str, str]) -> None:
    env = {**site, "HOLDFAST_URL": "http://127.0.0.1:1"}
    with a_terminal("nodes", "--watch", "0.5", **env) as terminal:
        terminal.until("does not answer")
        terminal.seen = b""
        terminal.until("does not answer")
        terminal.press(b"q")
        assert terminal.ended() == 0
    with a_terminal("nodes", "--bad", "--watch", **site) as terminal:
        terminal.until("every 2 s: holdfast nodes --bad --watch")
        terminal.until("2 nodes: 1 in service")
        terminal.press(b"q")
        assert terminal.ended() == 0
