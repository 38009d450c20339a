"""The control endpoint ``/_practice/…``: JSON in, JSON out; documented in docs/providers.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from holdfast.practice.aws import CONTROL_PREFIX
from holdfast.practice.aws.faults import Weather, fault_from_json
from holdfast.practice.aws.hyperpod_control import HYPERPOD_VERBS
from holdfast.practice.aws.machine_control import MACHINE_VERBS
from holdfast.practice.aws.truth import instances

if TYPE_CHECKING:
    from holdfast.practice.aws.emulator import Emulator


def control(emulator: Emulator, environ: Mapping[str, Any], body: bytes) -> tuple[int, bytes]:
    """Answer one control request: HTTP status and JSON. A bad request is 400 with one line."""
    name = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO'][len(CONTROL_PREFIX) :]}"
    verb = _VERBS.get(name)
    if verb is None:
        return 404, _json({"error": f"no such verb: {name}; there are: {', '.join(sorted(_VERBS))}"})
    try:
        query = {k: v[-1] for k, v in parse_qs(environ.get("QUERY_STRING", "")).items()}
        data = json.loads(body) if body else query
        return 200, _json(verb(emulator, data))
    except (ValueError, TypeError, KeyError) as error:
        return 400, _json({"error": f"{type(error).__name__}: {error}"})


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _ready(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    return {"ready": True, "calls": emulator.calls.count}


def _calls(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    return emulator.calls.select(data.get("action", ""), int(data.get("since", 0)))


def _faults(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    return [asdict(fault) for fault in emulator.faults.armed()]


def _add_fault(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    emulator.faults.add(fault_from_json(data))
    return _faults(emulator, data)


def _weather(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    emulator.faults.set_weather(Weather(**data))
    emulator.hyperpod.delays.list_lag_s = emulator.faults.weather.stale_s
    return asdict(emulator.faults.weather)


def _clear(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    """Faults, weather, impairments and invisibility end; instances stay."""
    if emulator.faults.weather.stale_s:
        emulator.hyperpod.delays.list_lag_s = 0.0
    emulator.faults.clear()
    emulator.world.impaired.clear()
    emulator.world.hidden.clear()
    emulator.world.hide_describes = 0
    emulator.world.events.clear()
    emulator.world.interrupted.clear()
    emulator.world.stuck.clear()
    emulator.world.groups_without_capacity.clear()
    emulator.world.ended_launch_is_error = False
    emulator.hyperpod.clear()
    return {}


def _hide(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    emulator.world.hide_describes = int(data["describes"])
    return {}


def _delays(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    emulator.world.delays = replace(emulator.world.delays, **{k: float(v) for k, v in data.items()})
    return asdict(emulator.world.delays)


def _clock(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    at = data["at"]
    emulator.world.stands_at = None if at is None else float(at)
    return {"at": emulator.world.now()}


_VERBS = {
    "GET ready": _ready,
    "GET calls": _calls,
    "GET faults": _faults,
    "POST faults": _add_fault,
    "POST weather": _weather,
    "POST clear": _clear,
    "POST hide": _hide,
    "POST delays": _delays,
    "POST clock": _clock,
    "GET instances": instances,
    **MACHINE_VERBS,
    **HYPERPOD_VERBS,
}
