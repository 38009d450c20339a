"""Validation of requests and answers against botocore's model of SageMaker: types, required members, patterns, limits, enums.

botocore's client only checks types and minima of requests, and nothing of answers; the service is stricter."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel, Shape

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "structure": dict, "map": dict, "list": list, "string": str, "boolean": bool, "integer": int, "long": int,
    "float": (int, float), "double": (int, float), "timestamp": (int, float),
}  # fmt: skip


@functools.cache
def sagemaker() -> ServiceModel:
    """The newest model that the installed botocore has; reading it takes some tenths of a second."""
    return ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def request_errors(action: str, given: Any) -> list[str]:
    shape = sagemaker().operation_model(action).input_shape
    return list(_errors(shape, given, "request")) if shape is not None else []


def answer_errors(action: str, answer: Any) -> list[str]:
    shape = sagemaker().operation_model(action).output_shape
    return list(_errors(shape, answer, "answer")) if shape is not None else []


def _errors(shape: Shape, value: Any, where: str) -> Iterator[str]:
    expected = _TYPES.get(shape.type_name)
    if expected is not None and (not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool)):
        yield f"{where}: {type(value).__name__} is no {shape.type_name}"
        return
    deeper: Callable[[Any, Any, str], Iterator[str]] | None = _DEEPER.get(shape.type_name)
    if deeper is not None:
        yield from deeper(shape, value, where)


def _structure(shape: Any, value: Mapping[str, Any], where: str) -> Iterator[str]:
    for name in shape.required_members:
        if name not in value:
            yield f"{where}: {name} is missing"
    for name, inner in value.items():
        if name not in shape.members:
            yield f"{where}: {name} is unknown"
        else:
            yield from _errors(shape.members[name], inner, f"{where}.{name}")


def _list(shape: Any, value: list[Any], where: str) -> Iterator[str]:
    yield from _within(shape, len(value), where)
    for index, inner in enumerate(value):
        yield from _errors(shape.member, inner, f"{where}[{index}]")


def _string(shape: Any, value: str, where: str) -> Iterator[str]:
    yield from _within(shape, len(value), where)
    pattern, enum = shape.metadata.get("pattern"), shape.metadata.get("enum")
    if pattern and re.fullmatch(pattern, value) is None:
        yield f"{where}: {value!r} does not match {pattern}"
    if enum and value not in enum:
        yield f"{where}: {value!r} is none of {', '.join(enum)}"


def _number(shape: Any, value: float, where: str) -> Iterator[str]:
    yield from _within(shape, value, where)


def _within(shape: Any, size: float, where: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if (least is not None and size < least) or (most is not None and size > most):
        yield f"{where}: {size} is not within {least} to {most}"


_DEEPER: Mapping[str, Callable[[Any, Any, str], Iterator[str]]] = {
    "structure": _structure, "list": _list, "string": _string, "integer": _number, "long": _number,
}  # fmt: skip
