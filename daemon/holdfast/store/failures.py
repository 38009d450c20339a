"""Translation of the database library's errors into Holdfast's, one line each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from holdfast.model.errors import OutsideError, Rejected, Unavailable

OUR_FAULT = (exc.DataError, exc.IntegrityError, exc.ProgrammingError)
"""Errors of a statement: the database answered, and the connection and other work on it are not affected."""


def is_outage(error: BaseException) -> bool:
    """Whether the error concerns the database or the connection to it rather than the statement."""
    return isinstance(error, (exc.DBAPIError, exc.TimeoutError, exc.InvalidRequestError)) and not isinstance(
        error, OUR_FAULT
    )


def translate(error: exc.SQLAlchemyError) -> OutsideError:
    """Unavailable for an outage, Rejected for what the database refuses to hold."""
    cause = getattr(error, "orig", None) or error
    line = " ".join(str(cause).split())[:300] or type(cause).__name__
    return (
        Unavailable(f"the store does not answer: {line}")
        if is_outage(error)
        else Rejected(f"the store refused: {line}")
    )


@contextmanager
def translated() -> Iterator[None]:
    """Raises Unavailable or Rejected in place of the library's errors."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise translate(error) from error
