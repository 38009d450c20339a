"""The state of the notices as a note in the store (:class:`holdfast.model.notice.NoticeState`)."""

from __future__ import annotations

import logging

from pydantic import TypeAdapter, ValidationError

from holdfast.model.notice import NOTE, NoticeState

log = logging.getLogger(__name__)

__all__ = ["NOTE", "read_state", "write_state"]
_STATE = TypeAdapter(NoticeState)


def write_state(state: NoticeState) -> str:
    """Serialize for :func:`read_state`."""
    return _STATE.dump_json(state).decode()


def read_state(text: str | None) -> NoticeState:
    """Tolerant: unknown fields are ignored. A note that cannot be read counts as none: a notice may then be sent a second time."""
    if text is None:
        return NoticeState()
    try:
        return _STATE.validate_json(text)
    except ValidationError as error:
        log.warning("event=notices_unreadable errors=%d effect='notices may be repeated'", error.error_count())
        return NoticeState()
