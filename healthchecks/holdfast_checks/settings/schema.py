"""Settings: read from TOML into what ``option`` declares, and shown in an example file. Standard library only.

An unknown key is an error that names the file, the key and the nearest valid one; a value of the wrong type or out of its
range says so in one line. Nothing is guessed and nothing is converted but an integer where a float is asked for."""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from holdfast_checks.settings.option import REQUIRED, Declaration, Required, declaration_of, default_of

T = TypeVar("T")

_WORDS: Mapping[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path (a string)",
}


class WrongSetting(ValueError):
    """One line that names file and key."""


def load(path: Path) -> dict[str, Any]:
    """A TOML file, parsed. Raises OSError, WrongSetting."""
    with path.open("rb") as file:
        try:
            return tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise WrongSetting(f"{path}: not TOML: {error}") from error


def build(table: Mapping[str, Any], kind: type[T], where: str, *, others_too: bool = False) -> T:
    """Turn a parsed table into a dataclass; ``where`` begins every error. ``others_too``: its own unknown keys are passed over,
    those of tables in it are not.

    Raises WrongSetting."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if not others_too:
        refuse_unknown(table, fields, where)
    read = values({key: table[key] for key in table if key in fields}, kind, where)
    missing = [name for name, field in fields.items() if name not in read and default_of(field) is REQUIRED]
    if missing:
        raise WrongSetting(f"{where}: missing key {missing[0]!r}")
    return kind(**read)


def values(table: Mapping[str, Any], kind: type[Any], where: str) -> dict[str, Any]:
    """Values for fields of a dataclass, within what is declared of them. Raises WrongSetting."""
    hints = typing.get_type_hints(kind)
    declarations = {field.name: declaration_of(field) for field in dataclasses.fields(kind)}
    read: dict[str, Any] = {}
    for key, given in table.items():
        value = _value(given, hints[key], f"{where}: {key}")
        _in_range(value, declarations[key], where, key)
        if one_of := declarations[key].one_of:
            for word in value if isinstance(value, tuple | frozenset) else (value,):
                refuse_other(word, one_of, f"{where}.{key}")
        read[key] = hints[key](value) if _is_enum(hints[key]) else value
    return read


def refuse_other(word: object, valid: tuple[str, ...], where: str) -> None:
    """Raises WrongSetting for what is none of these words."""
    if not isinstance(word, str) or word not in valid:
        near = difflib.get_close_matches(str(word), valid, n=1, cutoff=0.5)
        hint = f"; did you mean {str(near[0])!r}?" if near else ""
        raise WrongSetting(f"{where}: {word!r} is none of {', '.join(valid)}{hint}")


def refuse_unknown(table: Iterable[str], valid: Iterable[str], where: str) -> None:
    """Raises WrongSetting."""
    names = sorted(valid)
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(names)}"
            raise WrongSetting(f"{where}: unknown key {key!r}; {hint}")


def _value(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        kinds = [each for each in arguments if each is not type(None)]
        return _value(value, next((each for each in kinds if type(value) is each), kinds[0]), where)
    if origin in (tuple, frozenset):
        _expect(value, list, "a list", where)
        return origin(_value(each, arguments[0], f"{where}[{index}]") for index, each in enumerate(value))
    if origin is dict:
        _expect(value, dict, "a table", where)
        return {key: _value(each, arguments[1], f"{where}.{key}") for key, each in value.items()}
    if dataclasses.is_dataclass(hint):
        _expect(value, dict, "a table", where)
        return build(value, typing.cast("type[Any]", hint), where)
    return _scalar(value, hint, where)


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, StrEnum)


def _scalar(value: Any, kind: Any, where: str) -> Any:
    if _is_enum(kind):
        kind = str
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and kind is not bool:
        raise WrongSetting(f"{where}: expected {_WORDS[kind]}, found {value!r}")
    _expect(value, str if kind is Path else kind, _WORDS[kind], where)
    return Path(value) if kind is Path else value


def _expect(value: Any, kind: type, words: str, where: str) -> None:
    if not isinstance(value, kind):
        raise WrongSetting(f"{where}: expected {words}, found {value!r}")


def _in_range(value: Any, declared: Declaration, where: str, key: str) -> None:
    numbers = value.items() if isinstance(value, dict) else [("", value)]
    for name, number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        place = f"{where}: {key}.{name}" if name else f"{where}: {key}"
        low, high = declared.low, declared.high
        outside = (low is not None and number < low) or (high is not None and number > high)
        if outside and declared.why and math.isfinite(number):
            beyond = f"less than {low:g}" if high is None else f"not {_range_words(low, high)}"
            raise WrongSetting(f"{where}.{key}: {number:g} is {beyond}: {declared.why}")
        if not math.isfinite(number) and (declared.why or None in (low, high)):
            raise WrongSetting(f"{place}: {number} is not a finite number")
        if outside or not math.isfinite(number):
            raise WrongSetting(f"{place}: {number} is not {_range_words(low, high)}")


def _range_words(low: float | None, high: float | None) -> str:
    if low is None:
        return f"at most {high:g}" if high is not None else "a finite number"
    return f"between {low:g} and {high:g}" if high is not None else f"at least {low:g}"


def example(kind: type[Any], head: str, inside: str = "") -> str:
    """A commented TOML file with every key at its default, tables last. ``inside``: the table that it is a part of, with a dot."""
    lines = [*(f"# {line}".rstrip() for line in head.splitlines()), ""]
    tables: list[str] = []
    for field in dataclasses.fields(kind):
        default, doc = default_of(field), f"# {declaration_of(field).doc}"
        if dataclasses.is_dataclass(default):
            part = example(typing.cast("type[Any]", type(default)), "", f"{inside}{field.name}.").strip().splitlines()
            tables += ["", doc, f"[{inside}{field.name}]", *part]
        elif isinstance(default, dict):
            pairs = (f"{key} = {toml(each)}" for key, each in default.items())
            tables += ["", doc, f"[{inside}{field.name}]", *pairs]
        elif default is REQUIRED or default is None:
            lines += [doc, f"# {field.name} ="]
        else:
            lines += [doc, f"{field.name} = {toml(default)}"]
    return "\n".join([*lines, *tables]) + "\n"


def toml(value: Any) -> str:
    """A default as TOML shows it; what has no default is shown empty."""
    if value is None or isinstance(value, Required):
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in pairs) + " }"
    if isinstance(value, dict):
        inside = ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, tuple | frozenset):
        ordered = sorted(value, key=str) if isinstance(value, frozenset) else value
        return "[" + ", ".join(toml(each) for each in ordered) + "]"
    if isinstance(value, str | Path | StrEnum):
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
