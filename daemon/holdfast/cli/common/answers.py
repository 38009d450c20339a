"""Answers of the API, read into the API's own shapes: also those of a controller of another release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import __version__
from holdfast.model.errors import Unavailable

if TYPE_CHECKING:
    from holdfast.api.answers.shape import Shape

S = TypeVar("S", bound="Shape")


def read(shape: type[S], answer: Any) -> S:
    """The answer as the shape says it (:meth:`holdfast.api.answers.shape.Shape.read`). Raises Unavailable, in one line, where something
    essential is missing or makes no sense.

    Pydantic and the shapes are imported by the verbs that show something, not by ``holdfast --help``."""
    from pydantic import ValidationError  # noqa: PLC0415

    try:
        return shape.read(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "object"
        text = f"the controller's answer has no {where} that this command understands ({first['msg']})"
        raise Unavailable(f"{text}: its release is another one than {__version__}, or it is no Holdfast") from None
