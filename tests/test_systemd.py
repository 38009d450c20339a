"""What the daemons report to systemd: ready after a first complete cycle, alive after each further one, and nothing from a stuck one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from holdfast import systemd
from holdfast.systemd import WatchdogPulse, sd_notify, watchdog_interval_s
from support.descriptors import descriptors_left


def test_a_notice_arrives_as_systemd_expects_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        sd_notify("READY=1")
        assert server.recv(100) == b"READY=1"


def test_outside_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    sd_notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody-listens"))
    sd_notify("READY=1")


def test_a_beat_needs_no_further_descriptor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A loop that continues although none is left is alive, and is not killed for it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        sd_notify("READY=1")
        with descriptors_left(0):
            sd_notify("WATCHDOG=1")
        assert (server.recv(100), server.recv(100)) == (b"READY=1", b"WATCHDOG=1")


def test_a_first_beat_without_a_descriptor_raises_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    systemd._notice().close()
    systemd._notice.cache_clear()
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with descriptors_left(0):
        sd_notify("READY=1")


@pytest.mark.parametrize(
    ("usec", "pid", "interval_s"),
    [("", "", None), ("60000000", "", 30.0), ("60000000", "1", None), ("100", "", 0.5), ("soon", "", None)],
)
def test_interval_is_half_of_watchdogsec(
    monkeypatch: pytest.MonkeyPatch, usec: str, pid: str, interval_s: float | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", pid or str(os.getpid()))
    assert watchdog_interval_s() == interval_s


@pytest.mark.parametrize(
    ("interval_s", "told"),
    [(30.0, ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]), (None, ["READY=1"])],
)
def test_a_pulse_tells_no_more_than_it_must(interval_s: float | None, told: list[str]) -> None:
    said: list[str] = []
    times = iter((0.0, 1.0, 29.0, 30.0, 31.0, 500.0))
    pulse = WatchdogPulse(lambda: next(times), said.append, interval_s)
    assert said == []
    for _ in range(6):
        pulse.beat()
    assert said == told
