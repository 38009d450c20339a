"""State and error counters of every NVLink of one GPU, with as few calls as the driver allows."""

from __future__ import annotations

from typing import Any

import pynvml as nvml

from holdfast_checks.probes.nvml_calls import fields, named, plain

_FIELDS: tuple[tuple[int, ...], ...] = ((161,), (162, 215), (163,), (214,), (211,))
"""For each of :data:`holdfast_checks.details.COUNTERS` the field that has it: NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, …_DL_RECOVERY or
(NVLink 5) …_COUNT_LINK_RECOVERY_EVENTS, …_DL_CRC, …_COUNT_LINK_RECOVERY_FAILED_EVENTS, …_COUNT_LOCAL_LINK_INTEGRITY_ERRORS.
The link's number is the field's scope."""

_OLD_COUNTERS: tuple[int | None, ...] = (0, 1, 2, None, None)
"""The same for nvmlDeviceGetNvLinkErrorCounter: replay, recovery, CRC of flits. Drivers before R515 have only these."""


class LinkReader:
    """Remembers how many links the part has and which counters they have."""

    def __init__(self) -> None:
        self._count: int | None = None
        self._fields: list[int | None] | None = None

    def read(self, handle: Any) -> dict[str, Any]:
        """``link_count`` and ``links``, each ``[active, counter, …]``."""
        states, end = self._states(handle)
        if not states:
            return {"link_count": end if "e" in end else {"u": 1}}
        counters = self._counters(handle, len(states))
        links = [[plain(state), *map(plain, row)] for state, row in zip(states, counters, strict=True)]
        return {"link_count": len(states), "links": links}

    def _states(self, handle: Any) -> tuple[list[Any], dict[str, Any]]:
        """Invalid argument and not supported both mean: no further link. Any other refusal is of that link alone."""
        most = getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)
        states: list[Any] = []
        end: dict[str, Any] = {"u": 1}
        for link in range(most if self._count is None else self._count):
            state = named("nvmlDeviceGetNvLinkState", handle, link)
            if isinstance(state, dict) and ("u" in state or not states):
                end = state
                break
            states.append(state)
        if self._count is None and states and "u" in end:
            self._count = len(states)
        return states, end

    def _counters(self, handle: Any, count: int) -> list[list[Any]]:
        if self._fields is None:
            self._fields = _known_fields(handle)
        known = [field for field in self._fields if field is not None]
        if not known:
            return [_old_counters(handle, link) for link in range(count)]
        values = iter(fields(handle, [(field, link) for link in range(count) for field in known]))
        return [[None if field is None else next(values) for field in self._fields] for _ in range(count)]


def _known_fields(handle: Any) -> list[int | None]:
    """For each counter the field that this part answers for its first link."""
    asked = [field for choices in _FIELDS for field in choices]
    answers = dict(zip(asked, fields(handle, [(field, 0) for field in asked]), strict=True))
    usable = {field for field, answer in answers.items() if not (isinstance(answer, dict) and "u" in answer)}
    return [next((field for field in choices if field in usable), None) for choices in _FIELDS]


def _old_counters(handle: Any, link: int) -> list[Any]:
    return [
        None if counter is None else named("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter)
        for counter in _OLD_COUNTERS
    ]
