"""Bandwidth of every EFA device with itself, by libfabric's ``fi_pingpong``.

Written after libfabric's manual and awslabs' health check (shared memory off, or the device is not used at all);
docs/verified.md says on what it has run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from holdfast_checks.active.report import ActiveReport, Corruption, Figure, PlaceTrouble

_SIZE_BYTES = 1 << 20
_ITERATIONS = 1000
_FIRST_PORT = 47592
_START_S = 1.0
_ONE_S = 20.0
_ENV = {"FI_EFA_ENABLE_SHM_TRANSFER": "0", "LC_ALL": "C"}


def loopback(sysfs: Path, seconds: float) -> ActiveReport:
    """One device after the other, until the time is over."""
    command = shutil.which("fi_pingpong")
    devices = efa_devices(sysfs)
    if not devices:
        return ActiveReport("efa", "efa", skipped="no EFA device here")
    if command is None:
        return ActiveReport(
            "efa", "efa", skipped="libfabric's fi_pingpong is not installed (package fabtests or libfabric-bin)"
        )
    until_s = time.monotonic() + seconds
    places: list[str] = []
    figures: list[Figure] = []
    troubles: list[PlaceTrouble] = []
    for number, device in enumerate(devices):
        if time.monotonic() > until_s:
            troubles.append(PlaceTrouble(device, "no time left for it"))
            continue
        try:
            figures.append(Figure(device, "loopback", _measure(command, device, _FIRST_PORT + number), "GB/s"))
            places.append(device)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            troubles.append(PlaceTrouble(device, " ".join(str(error).split())[:200]))
    no_corruption: tuple[Corruption, ...] = ()
    return ActiveReport("efa", "efa", tuple(places), tuple(figures), no_corruption, tuple(troubles))


def efa_devices(sysfs: Path) -> list[str]:
    """Names of the RDMA devices that the driver ``efa`` serves, in order."""
    found = []
    for device in sorted((sysfs / "class" / "infiniband").glob("*")):
        driver = device / "device" / "driver"
        if driver.exists() and driver.resolve().name == "efa":
            found.append(device.name)
    return found


def _measure(command: str, device: str, port: int) -> float:
    """GB/s. Raises OSError, ValueError, SubprocessError."""
    common = [command, "-p", "efa", "-e", "rdm", "-d", f"{device}-rdm", "-I", str(_ITERATIONS), "-S", str(_SIZE_BYTES)]
    env = {**os.environ, **_ENV}
    with subprocess.Popen(
        [*common, "-B", str(port)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            time.sleep(_START_S)
            client = [*common, "-P", str(port), "127.0.0.1"]
            said = subprocess.run(client, env=env, capture_output=True, text=True, timeout=_ONE_S, check=False)
        finally:
            server.kill()
    if said.returncode != 0:
        raise ValueError(f"fi_pingpong failed: {(said.stderr or said.stdout).strip()[:150]}")
    return parse(said.stdout)


def parse(text: str) -> float:
    """GB/s of the last line, by the column ``MB/sec`` of its heading. Raises ValueError."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    heading = next((line for line in lines if "MB/sec" in line), None)
    if heading is None or lines[-1] is heading:
        raise ValueError("fi_pingpong printed no result")
    return float(lines[-1][heading.index("MB/sec")]) / 1e3
