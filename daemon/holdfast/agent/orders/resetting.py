"""Order to reset GPUs: all processes must release them first, including the agent's NVML child; processes that still use them are
reported instead."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from holdfast.agent.node.node_idle import held_by
from holdfast.agent.node.processes import SlurmNode
from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.stuck_job import drained_by_us, node_seen
from holdfast.agent.orders.verbs import number
from holdfast.agent.sources.nvml import NvmlSource
from holdfast.agent.timing.loop import Loop
from holdfast.model.errors import Rejected
from holdfast_checks.probes.child import CHILDREN, Children, Finished
from holdfast_checks.settings.gpu import GpuSettings

log = logging.getLogger(__name__)

_MOST_GPUS = 64
_LONGEST_S = 600.0
_SERVICE_S = 30.0
_LET_GO_S = 5.0


class Nvml(Protocol):
    """The agent's own hold on the GPUs."""

    def let_go(self, within_s: float) -> bool:
        """Release the GPUs; whether no process of the agent holds one any more."""
        ...

    def resume(self) -> None: ...


def reset_gpu(nvml: Nvml, slurm: SlurmNode, settings: GpuSettings, children: Children = CHILDREN) -> OrderHandler:
    """Reset the GPUs named by UUID. ok: the tool reports success; the validation that follows checks whether they work.

    Rejected while a job holds the node or may start there, or for invalid names. Services stopped for the reset are started again,
    whatever its outcome. A GPU that fell off the bus cannot be reset: the order fails, and the ladder continues with a reboot."""

    def verb(order: ReceivedOrder) -> OrderResult:
        gpus = _names(order)
        until_s = time.monotonic() + number(order.args, "max_s", 180.0, _LONGEST_S)
        if (holder := held_by(slurm)) is not None:
            raise Rejected(f"not reset: {holder} holds the node")
        if not drained_by_us(node_seen(slurm)):  # on any other node a job may start at any moment
            raise Rejected("not reset: the node is not drained by Holdfast")
        with _released(nvml) as released, _stopped(settings.reset_stops, children) as stopped:
            if not released:
                return OrderResult(False, "the agent's own NVML process hangs in the driver: a reboot is needed")
            if users := gpu_users(settings.device_path):
                return OrderResult(
                    False, f"GPUs are in use by {', '.join(users)}", {"users": users, "stopped": stopped}
                )
            return _reset(settings, gpus, until_s, children, stopped)

    return verb


def _names(order: ReceivedOrder) -> list[str]:
    gpus = order.args.get("gpus")
    if not isinstance(gpus, list) or not 0 < len(gpus) <= _MOST_GPUS or not all(map(_is_uuid, gpus)):
        raise Rejected("argument gpus must be a list of GPU UUIDs")
    return [str(g) for g in gpus]


def _is_uuid(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"GPU-[0-9a-zA-Z-]{1,64}", name) is not None


def _reset(
    settings: GpuSettings, gpus: list[str], until_s: float, children: Children, stopped: list[str]
) -> OrderResult:
    """Reset them one by one, or the whole board where that is refused and the GPUs share NVSwitches."""
    argv = [*settings.reset_command, "-i", ",".join(gpus)]
    said = _run(argv, until_s, children)
    detail = {"gpus": gpus, "stopped": stopped}
    if said is None:
        return OrderResult(True, f"reset {len(gpus)} GPUs", detail)
    if not list(settings.device_path.glob("nvidia-nvswitch*")):
        return OrderResult(False, f"reset failed: {said}", detail)
    whole = _run(list(settings.reset_command), until_s, children)
    if whole is not None:
        return OrderResult(False, f"reset failed: {said}; of the whole board: {whole}", detail)
    return OrderResult(True, "reset the whole board, its GPUs share NVSwitches", {**detail, "board": True})


def _run(argv: Sequence[str], until_s: float, children: Children) -> str | None:
    """Run a command; the reason why it failed, or None."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        return "no time is left"
    try:
        done = children.run("gpu_reset", argv, left_s)
    except OSError as error:
        return f"{argv[0]}: {error.strerror or error}"
    if not isinstance(done, Finished):
        return f"{argv[0]} did not end within {left_s:.0f} s"
    return None if done.status == 0 else done.complaint


@contextmanager
def _released(nvml: Nvml) -> Iterator[bool]:
    try:
        yield nvml.let_go(_LET_GO_S)
    finally:
        nvml.resume()


@contextmanager
def _stopped(services: Sequence[str], children: Children) -> Iterator[list[str]]:
    """Stop the running ones of these services, and start them again at the end."""
    stopped = [name for name in services if _systemctl(children, "is-active", "--quiet", name)]
    try:
        for name in stopped:
            _systemctl(children, "stop", name)
        yield stopped
    finally:
        for name in stopped:
            if not _systemctl(children, "start", name):
                log.error("event=service_not_started_again service=%s", name)


def _systemctl(children: Children, *argv: str) -> bool:
    try:
        done = children.run(f"systemctl {argv[-1]}", ["systemctl", *argv], _SERVICE_S)
    except OSError:
        return False  # no systemd here
    return isinstance(done, Finished) and done.status == 0


def gpu_users(devices: Path, proc: Path = Path("/proc")) -> list[str]:
    """Processes that have a GPU's device file open, as ``name (pid)``."""
    prefix = f"{devices}/nvidia"
    processes = [folder for folder in proc.iterdir() if folder.name.isdigit()]
    users = (f for f in processes if any(target.startswith(prefix) for target in _open_files(f)))
    return sorted(f"{_name(folder)} ({folder.name})" for folder in users)


def _open_files(folder: Path) -> Iterator[str]:
    try:
        fds = os.listdir(folder / "fd")
    except OSError:
        return
    for fd in fds:
        try:
            yield os.readlink(folder / "fd" / fd)
        except OSError:
            continue


def _name(folder: Path) -> str:
    try:
        return (folder / "comm").read_text().strip()
    except OSError:
        return "?"


class Held:
    """:class:`Nvml` of the agent for an order's thread: the agent's loop carries out the calls."""

    def __init__(self, loop: Loop, nvml: NvmlSource) -> None:
        self._loop, self._nvml = loop, nvml

    def let_go(self, within_s: float) -> bool:
        done = threading.Event()
        self._loop.call(self._nvml.let_go)
        self._loop.call(done.set)
        until_s = time.monotonic() + within_s
        while not (done.is_set() and self._nvml.probe.released):
            if time.monotonic() >= until_s:
                return False
            time.sleep(0.05)
        return True

    def resume(self) -> None:
        self._loop.call(self._nvml.resume)
