"""What every shape of the API's JSON is made of, and how a client reads an answer of another release."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Annotated, Any, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

W = TypeVar("W", bound=StrEnum)
_OF_A_CLIENT = {"client": True}


class _KnownFirst:
    """In the schema an open word is its enum: what this release says."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        known: JsonSchemaValue = handler(schema)["anyOf"][0]
        return known


Open = Annotated[W | str, Field(union_mode="left_to_right"), _KnownFirst()]
"""A value of an enum, or (in the answer of a newer controller) one that this release does not know: shown as it is."""


class Essential:
    """Mark of a field without which an answer says nothing; any other one that is missing is read as empty."""


class Shape(BaseModel):
    """One noun of the API. The server says every field; a client reads with :meth:`read`."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)

    @classmethod
    def read(cls, answer: Any) -> Self:
        """What a controller of any release answered: fields that are not known are dropped, missing ones are empty.

        Empty is null, no text, false, 0 or nothing in it, by the field's type. Raises pydantic.ValidationError where an essential field is
        missing, or one that has no empty form (a time)."""
        return cls.model_validate(answer, context=_OF_A_CLIENT)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context is not _OF_A_CLIENT or not isinstance(data, Mapping):
            return data
        return {**_empty_fields(cls), **data}


@cache
def _empty_fields(shape: type[Shape]) -> dict[str, Any]:
    """Fields that may be missing, with what they are then."""
    fields = shape.model_fields.items()
    return {
        name: _empty(field.annotation)
        for name, field in fields
        if field.is_required()
        and not any(isinstance(m, Essential) for m in field.metadata)
        and _has_empty(field.annotation)
    }


def _has_empty(kind: Any) -> bool:
    return NoneType in get_args(kind) or _plain(kind) in _EMPTY


def _empty(kind: Any) -> Any:
    return None if NoneType in get_args(kind) else _EMPTY[_plain(kind)]()


def _plain(kind: Any) -> Any:
    """``list`` of ``list[str]``; an open word is a text."""
    origin = get_origin(kind)
    return str if origin is Union and str in get_args(kind) else origin or kind


_EMPTY: Mapping[Any, type] = {str: str, bool: bool, int: int, float: float, list: list, dict: dict, Mapping: dict}
