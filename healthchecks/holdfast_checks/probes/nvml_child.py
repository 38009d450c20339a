"""The process that calls NVML, so that a hanging driver hangs no other process. Run with ``python -m``.

Reads one JSON request a line from stdin (``{"id": 1, "do": "snapshot", "details_age_s": 60}``), answers one JSON object a
line on stdout, and pushes events as they come. The slow readings are part of an answer only when the last ones are older than
the request allows. It ends at the end of stdin, with its parent, and after an error of the library as a whole: a new driver
needs a new process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import pynvml as nvml

from holdfast_checks import pci
from holdfast_checks.probes.nvml_calls import LOST, named, plain, text
from holdfast_checks.probes.nvml_fast import fast_readings
from holdfast_checks.probes.nvml_slow import SlowReader

EVENT_KINDS = {0x2: "ecc_double_bit", 0x8: "xid", 0x8000: "recovery_action"}
EVENT_WAIT_MS = 30_000
REBUILD_PAUSE_S = 1.0
"""Between two event sets after an error: a lost GPU ends every wait at once."""

_OF_THE_LIBRARY = frozenset({1, 9, 12, 13, 18})
"""Uninitialised, driver not loaded, library or function not found, version mismatch: no fault of one GPU."""
_TIMEOUT = 10
_EVENTS_NOT_SUPPORTED = 3
_PR_SET_PDEATHSIG = 1

GpuIdentity = dict[str, Any]


class Child:
    """State of the process: what is known of each GPU, and the one way out."""

    def __init__(self) -> None:
        self._out = threading.Lock()
        self._ready = False
        self._known: dict[int, GpuIdentity] = {}
        self._by_handle: dict[int, GpuIdentity] = {}
        self._slow: dict[str | None, SlowReader] = {}
        self._details_s: float | None = None

    def serve(self) -> int:
        """Answer requests until the end of stdin; the exit status."""
        for line in sys.stdin:
            request = json.loads(line)
            try:
                self._say({"id": request["id"], "ok": self._snapshot(_age_s(request))})
            except nvml.NVMLError as error:
                self._say({"id": request["id"], "error": {"code": error.value, "text": str(error)[:200]}})
                return 3
        return 0

    def _snapshot(self, details_age_s: float) -> dict[str, Any]:
        if not self._ready:
            nvml.nvmlInit()
        begun_s = time.monotonic()
        slow = self._details_s is None or begun_s - self._details_s >= details_age_s
        count = nvml.nvmlDeviceGetCount()
        answer = {
            "driver_version": text(named("nvmlSystemGetDriverVersion")) or "",
            "nvml_version": text(named("nvmlSystemGetNVMLVersion")) or "",
            "count": count,
            "gpus": [self._gpu(index, slow=slow) for index in range(count)],
            "monotonic_s": time.monotonic(),
        }
        if slow:
            self._details_s = answer["details_monotonic_s"] = begun_s
        if not self._ready:
            self._ready = True
            threading.Thread(target=self._follow_events, daemon=True).start()
        return answer

    def _gpu(self, index: int, *, slow: bool) -> dict[str, Any]:
        """A GPU that is lost, or that NVML refuses, is so alone: the others are read all the same."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            if error.value in _OF_THE_LIBRARY:
                raise
            known = self._known.get(index, {"index": index})
            return {**known, "lost": True} if error.value == LOST else {**known, "lost": False, "failed": error.value}
        identity = self._identity(index, handle)
        readings = fast_readings(handle)
        if slow:
            readings["details"] = self._details(identity["uuid"], handle, readings["temperature_c"])
        return {**identity, **readings, "lost": _says_lost(readings) or _says_lost(readings.get("details", {}))}

    def _details(self, uuid: str | None, handle: Any, temperature_c: Any) -> dict[str, Any]:
        if uuid not in self._slow:
            self._slow[uuid] = SlowReader()
        return self._slow[uuid].read(handle, temperature_c)

    def _identity(self, index: int, handle: Any) -> GpuIdentity:
        """Read once for each GPU: its UUID shows whether it still is the same one."""
        uuid = text(named("nvmlDeviceGetUUID", handle))
        known = self._known.get(index)
        if known is None or uuid not in (None, known["uuid"]):
            known = {"index": index, "uuid": uuid, **_identity(handle)}
            self._known[index] = self._by_handle[_address(handle)] = known
        return known

    def _follow_events(self) -> None:
        while True:
            code = self._wait_for_events()
            if code == _EVENTS_NOT_SUPPORTED:
                return
            if code == LOST:
                self._say({"event": {"kind": "lost", "data": 0, "monotonic_s": time.monotonic()}})
            time.sleep(REBUILD_PAUSE_S)

    def _wait_for_events(self) -> int:
        """Push events until NVML refuses; its code. An event set that waits for no GPU rests for a while."""
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError as error:
            return int(error.value)
        try:
            if not sum(_register(index, events) for index in range(nvml.nvmlDeviceGetCount())):
                time.sleep(EVENT_WAIT_MS / 1000)
                return _TIMEOUT
            while True:
                self._push_next(events)
        except nvml.NVMLError as error:
            return int(error.value)
        finally:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(events)

    def _push_next(self, events: Any) -> None:
        try:
            event = nvml.nvmlEventSetWait_v2(events, EVENT_WAIT_MS)
        except nvml.NVMLError as error:
            if error.value == _TIMEOUT:
                return
            raise
        identity = self._by_handle.get(_address(event.device), {})
        kind = EVENT_KINDS.get(event.eventType, f"{event.eventType:#x}")
        pushed = {"kind": kind, "data": event.eventData, "monotonic_s": time.monotonic(), **identity}
        self._say({"event": pushed})

    def _say(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._out:
            while data:
                data = data[os.write(1, data) :]


def _age_s(request: dict[str, Any]) -> float:
    return float(request.get("details_age_s", 0.0))


def _says_lost(readings: dict[str, Any]) -> bool:
    return any(isinstance(value, dict) and value.get("e") == LOST for value in readings.values())


def _identity(handle: Any) -> GpuIdentity:
    return {
        "minor": plain(named("nvmlDeviceGetMinorNumber", handle)),
        "pci": pci.normalise(_bus_id(handle) or ""),
        "serial": text(named("nvmlDeviceGetSerial", handle)),
    }


def _bus_id(handle: Any) -> str | None:
    info = plain(named("nvmlDeviceGetPciInfo", handle))
    return None if info is None else text(info.busId)


def _register(index: int, events: Any) -> int:
    """Register what the GPU supports; how many kinds of event that was."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        wanted = nvml.nvmlDeviceGetSupportedEventTypes(handle) & sum(EVENT_KINDS)
        if wanted:
            nvml.nvmlDeviceRegisterEvents(handle, wanted, events)
    except nvml.NVMLError:
        return 0  # lost, or it knows no events: the snapshot shows which
    return int(wanted).bit_count()


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _end_with_parent() -> None:
    """A child that hangs in the driver does not see the end of stdin."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve, then leave at once: nothing here may wait for a thread that hangs in the driver."""
    _end_with_parent()
    try:
        status = Child().serve()
    except (KeyboardInterrupt, BrokenPipeError):
        status = 0
    os._exit(status)


if __name__ == "__main__":
    main()
