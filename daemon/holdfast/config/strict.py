"""A strict TOML → frozen dataclass reader. Standard library only, since the agent uses it on every node.

An unknown key is an error that names the file, the key and the nearest valid one; a value of the wrong type or out of its
range says so in one line. Nothing is guessed and nothing is converted but an integer where a float is asked for.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from holdfast.model.errors import ConfigError

T = TypeVar("T")

_WORDS: Mapping[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path (a string)",
}


def option(default: Any, doc: str, *, low: float | None = None, high: float | None = None) -> Any:
    """A dataclass field with one sentence for the example file and, for numbers, the allowed range (both ends included)."""
    metadata = {"doc": doc, "low": low, "high": high}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def load(path: Path, kind: type[T]) -> T:
    """Read a TOML file into a dataclass. Raises ConfigError in one line."""
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    return build(table, kind, str(path))


def build(table: Mapping[str, Any], kind: type[T], where: str) -> T:
    """Turn a parsed table into a dataclass; ``where`` begins every error."""
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            raise ConfigError(f"{where}: unknown key {key!r}{_nearest(key, fields)}")
        values[key] = _value(value, hints[key], f"{where}: {key}")
        _in_range(values[key], fields[key].metadata, f"{where}: {key}")
    missing = [name for name, field in fields.items() if name not in values and _required(field)]
    if missing:
        raise ConfigError(f"{where}: missing key {missing[0]!r}")
    return kind(**values)


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _nearest(key: str, valid: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(key, valid, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; valid keys: {', '.join(sorted(valid))}"


def _value(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        kinds = [each for each in arguments if each is not type(None)]
        return _value(value, next((each for each in kinds if type(value) is each), kinds[0]), where)
    if origin is tuple:
        _expect(value, list, "a list", where)
        return tuple(_value(each, arguments[0], f"{where}[{index}]") for index, each in enumerate(value))
    if origin is frozenset:
        _expect(value, list, "a list", where)
        return frozenset(_value(each, arguments[0], f"{where}[{index}]") for index, each in enumerate(value))
    if origin is dict:
        _expect(value, dict, "a table", where)
        return {key: _value(each, arguments[1], f"{where}.{key}") for key, each in value.items()}
    if dataclasses.is_dataclass(hint):
        _expect(value, dict, "a table", where)
        return build(value, typing.cast("type[Any]", hint), where)
    return _scalar(value, hint, where)


def _scalar(value: Any, kind: Any, where: str) -> Any:
    if kind is Path:
        _expect(value, str, _WORDS[Path], where)
        return Path(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and kind is not bool:
        raise ConfigError(f"{where}: expected {_WORDS[kind]}, found {value!r}")
    _expect(value, kind, _WORDS[kind], where)
    return value


def _expect(value: Any, kind: type, words: str, where: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{where}: expected {words}, found {value!r}")


def _in_range(value: Any, metadata: Mapping[str, Any], where: str) -> None:
    low, high = metadata.get("low"), metadata.get("high")
    numbers = value.items() if isinstance(value, dict) else [("", value)]
    for name, number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        place = f"{where}.{name}" if name else where
        if not math.isfinite(number) or (low is not None and number < low) or (high is not None and number > high):
            raise ConfigError(f"{place}: {number} is not {_range_words(low, high)}")


def _range_words(low: float | None, high: float | None) -> str:
    if low is None:
        return f"at most {high:g}" if high is not None else "a finite number"
    return f"between {low:g} and {high:g}" if high is not None else f"at least {low:g}"


def example(kind: type[Any], head: str, inside: str = "") -> str:
    """A commented TOML file with every key at its default, tables last. ``inside``: the table that it is a part of, with a dot."""
    lines = [*(f"# {line}".rstrip() for line in head.splitlines()), ""]
    tables: list[str] = []
    for field in dataclasses.fields(kind):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        doc = [f"# {field.metadata.get('doc', '')}"]
        if dataclasses.is_dataclass(default):
            part = example(type(default), "", f"{inside}{field.name}.").strip().splitlines()
            tables += ["", *doc, f"[{inside}{field.name}]", *part]
            continue
        if isinstance(default, dict):
            pairs = (f"{key} = {_toml(each)}" for key, each in default.items())
            tables += ["", *doc, f"[{inside}{field.name}]", *pairs]
        elif default is dataclasses.MISSING or default is None:
            lines += [*doc, f"# {field.name} ="]
        else:
            lines += [*doc, f"{field.name} = {_toml(default)}"]
    return "\n".join([*lines, *tables]) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, str | Path):
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return f"{value:g}" if isinstance(value, float) else str(value)
