"""Single NVML calls in the form of the wire: a number, ``{"u": 1}`` (this driver or part does not know it), ``{"e": code, "t": text}``.

Runs in the child alone. Nothing here raises for an old driver, an old binding or a GPU that refuses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pynvml as nvml

UNSUPPORTED = frozenset({2, 3, 13, 25})
"""Invalid argument (an unknown field id), not supported, function not found, argument version mismatch: an older driver."""
LOST = 15
ABSENT: dict[str, int] = {"u": 1}
_FIELDS_AT_ONCE = 64

_VALUE_NAMES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""nvmlValueType_t → member of the union."""

_OLD_BINDING: tuple[type[Exception], ...] = (
    AttributeError,
    *filter(None, (getattr(nvml, "NVMLLibraryMismatchError", None),)),
)
"""What the binding raises for a name that it lacks, and for a call without a version in its name that the library has only in another."""

FieldId = tuple[int, int]
"""Field and scope (the link's number for NVLink fields, else 0)."""


def error(code: int, text: str) -> dict[str, Any]:
    """A return code in the form of the wire."""
    return dict(ABSENT) if code in UNSUPPORTED else {"e": code, "t": text[:200]}


def reading(call: Callable[..., Any], *args: Any) -> Any:
    """What the call returns, or why it does not."""
    try:
        return call(*args)
    except nvml.NVMLError as refused:
        return error(int(refused.value), str(refused))
    except _OLD_BINDING:
        return dict(ABSENT)


def named(name: str, *args: Any) -> Any:
    """The same for a function of the binding by its name, which an old binding may lack."""
    call = getattr(nvml, name, None)
    return dict(ABSENT) if call is None else reading(call, *args)


def plain(value: Any) -> Any:
    """The value alone, None for any absence."""
    return None if isinstance(value, dict) else value


def text(value: Any) -> str | None:
    """A text that may be absent; older bindings return bytes."""
    value = plain(value)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def fields(handle: Any, wanted: Sequence[FieldId]) -> list[Any]:
    """Many field values with few calls. Where the whole call is refused, each of them is."""
    found: list[Any] = []
    for start in range(0, len(wanted), _FIELDS_AT_ONCE):
        part = list(wanted[start : start + _FIELDS_AT_ONCE])
        values = named("nvmlDeviceGetFieldValues", handle, part)
        found += [values] * len(part) if isinstance(values, dict) else map(_field, values)
    return found


def _field(value: Any) -> Any:
    if value.nvmlReturn != 0:
        return error(int(value.nvmlReturn), "field value")
    name = _VALUE_NAMES.get(int(value.valueType))
    return int(getattr(value.value, name)) if name else {"e": 0, "t": f"field of type {value.valueType}"}


def filled(function: str, struct_type: str, handle: Any) -> Any:
    """A struct that the call fills in, for those calls of the binding that leave this to their caller."""
    make = getattr(nvml, struct_type, None)
    if make is None:
        return dict(ABSENT)
    struct = make()
    answer = named(function, handle, ctypes.byref(struct))
    return answer if isinstance(answer, dict) else struct
