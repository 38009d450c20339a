"""The conditions as a note in the store (:class:`holdfast.model.conditions.Conditions`)."""

from __future__ import annotations

import logging

from pydantic import TypeAdapter, ValidationError

from holdfast.model.conditions import CONDITIONS, Conditions

log = logging.getLogger(__name__)

__all__ = ["CONDITIONS", "read_conditions", "write_conditions"]
_STATE = TypeAdapter(Conditions)


def write_conditions(conditions: Conditions) -> str:
    """Serialize for :func:`read_conditions`."""
    return _STATE.dump_json(conditions).decode()


def read_conditions(text: str | None) -> Conditions | None:
    """None: there is no note, or none that can be read; then no end is known."""
    if text is None:
        return None
    try:
        return _STATE.validate_json(text)
    except ValidationError as error:
        log.warning("event=conditions_unreadable errors=%d effect='an end may not be announced'", error.error_count())
        return None
