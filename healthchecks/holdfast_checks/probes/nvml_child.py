"""The process that talks to NVML, so that a hanging driver hangs nobody else. Run with ``python -m``.

Reads one JSON request a line from stdin (``{"id": 1, "do": "snapshot"}``), answers one JSON object a line on stdout,
and pushes events as they come. It ends at the end of stdin, with its parent, and after an error of the library as
a whole: a new driver needs a new process.
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
from collections.abc import Callable
from typing import Any

import pynvml as nvml

from holdfast_checks import pci

FIELD_RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; older bindings lack the name. (DCGM's field 230 is another thing: the last Xid.)"""

EVENT_KINDS = {0x2: "ecc_double_bit", 0x8: "xid", 0x8000: "recovery_action"}
EVENT_WAIT_MS = 30_000
REBUILD_PAUSE_S = 1.0
"""Between two event sets after an error: a lost GPU ends every wait at once."""

_UNSUPPORTED = frozenset({2, 3, 13, 25})
"""Invalid argument (an unknown field id), not supported, function not found, argument version mismatch: an older driver."""
_LOST = 15
_TIMEOUT = 10
_NOT_SUPPORTED = 3
_PR_SET_PDEATHSIG = 1

Identity = dict[str, Any]


class Child:
    """State of the process: what is known of each GPU, and the one way out."""

    def __init__(self) -> None:
        self._out = threading.Lock()
        self._ready = False
        self._known: dict[int, Identity] = {}
        self._by_handle: dict[int, Identity] = {}

    def serve(self) -> int:
        """Answer requests until the end of stdin; the exit status."""
        for line in sys.stdin:
            request = json.loads(line)
            try:
                self._say({"id": request["id"], "ok": self._snapshot()})
            except nvml.NVMLError as error:
                self._say({"id": request["id"], "error": {"code": error.value, "text": _error_text(error)}})
                return 3
        return 0

    def _snapshot(self) -> dict[str, Any]:
        if not self._ready:
            nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
        answer = {
            "driver_version": nvml.nvmlSystemGetDriverVersion(),
            "nvml_version": nvml.nvmlSystemGetNVMLVersion(),
            "count": count,
            "gpus": [self._gpu(index) for index in range(count)],
            "monotonic_s": time.monotonic(),
        }
        if not self._ready:
            self._ready = True
            threading.Thread(target=self._follow_events, daemon=True).start()
        return answer

    def _gpu(self, index: int) -> dict[str, Any]:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            identity = self._identity(index, handle)
            readings = _readings(handle)
        except nvml.NVMLError as error:
            if error.value != _LOST:
                raise
            return {**self._known.get(index, {"index": index}), "lost": True}
        lost = any(isinstance(value, dict) and value.get("e") == _LOST for value in readings.values())
        return {**identity, **readings, "lost": lost}

    def _identity(self, index: int, handle: Any) -> Identity:
        """Read once for each GPU: its UUID tells whether it still is the same one."""
        uuid = _text(nvml.nvmlDeviceGetUUID, handle)
        known = self._known.get(index)
        if known is None or known["uuid"] != uuid:
            known = {"index": index, "uuid": uuid, **_identity(handle)}
            self._known[index] = self._by_handle[_address(handle)] = known
        return known

    def _follow_events(self) -> None:
        while True:
            code = self._wait_for_events()
            if code == _NOT_SUPPORTED:
                return
            if code == _LOST:
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


def _identity(handle: Any) -> Identity:
    return {
        "minor": _reading(nvml.nvmlDeviceGetMinorNumber, handle, plain=True),
        "pci": pci.normalise(_bus_id(handle) or ""),
        "serial": _text(nvml.nvmlDeviceGetSerial, handle),
    }


def _readings(handle: Any) -> dict[str, Any]:
    return {
        "temperature_c": _reading(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "clock_event_reasons": _reading(_clock_event_reasons, handle),
        "ecc_corrected_volatile": _reading(nvml.nvmlDeviceGetTotalEccErrors, handle, 0, 0),
        "ecc_uncorrected_volatile": _reading(nvml.nvmlDeviceGetTotalEccErrors, handle, 1, 0),
        **_remapped_rows(handle),
        "recovery_action": _field(handle, FIELD_RECOVERY_ACTION),
    }


def _remapped_rows(handle: Any) -> dict[str, Any]:
    names = ("remap_corrected", "remap_uncorrected", "remap_pending", "remap_failed")
    rows = _reading(nvml.nvmlDeviceGetRemappedRows, handle)
    return dict(zip(names, rows, strict=True)) if isinstance(rows, tuple) else dict.fromkeys(names, rows)


def _reading(call: Callable[..., Any], handle: Any, *args: int, plain: bool = False) -> Any:
    """The value, or its absence in the form of the wire; ``plain``: None instead of a reason."""
    try:
        return call(handle, *args)
    except nvml.NVMLError as error:
        if plain:
            return None
        return {"u": 1} if error.value in _UNSUPPORTED else {"e": error.value, "t": _error_text(error)}


def _field(handle: Any, field_id: int) -> Any:
    values = _reading(nvml.nvmlDeviceGetFieldValues, handle, [field_id])  # type: ignore[arg-type]
    if isinstance(values, dict):
        return values
    code = values[0].nvmlReturn
    if code == 0:
        return values[0].value.uiVal
    return {"u": 1} if code in _UNSUPPORTED else {"e": code, "t": "field value"}


def _clock_event_reasons(handle: Any) -> int:
    """Drivers before R535 know these by their old name."""
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (nvml.NVMLError_FunctionNotFound, AttributeError):
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _text(call: Callable[..., Any], handle: Any) -> str | None:
    value = _reading(call, handle, plain=True)
    return value.decode() if isinstance(value, bytes) else value


def _bus_id(handle: Any) -> str | None:
    info = _reading(nvml.nvmlDeviceGetPciInfo, handle, plain=True)
    if info is None:
        return None
    return info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)


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


def _error_text(error: Any) -> str:
    return str(error)[:200]


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
