"""What a site says of its nodes, read from the agent's ``agent.toml`` without the agent.

Keys that only the agent knows are passed over, and so is what is unknown in a table (the agent complains of that); a value of the wrong
type or out of its range is an error."""

from __future__ import annotations

import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from holdfast_checks import acting_file
from holdfast_checks.acting import Lists
from holdfast_checks.settings import Settings

T = TypeVar("T")

_RENAMED = {"gpu_count": "expected_gpus", "sysfs_path": "sysfs", "node": "slurmd_node"}
"""Keys of the file that have another name in :class:`Settings`."""
_NOT_IN_THE_FILE = frozenset({"proc", *_RENAMED.values()})
_PATHS = ("state_dir", "kmsg_path", "pstore_path", "sysfs", "slurmd_pid_file", "slurm_conf")
"""Paths at the top; a relative one counts from the folder of the file."""
_STATE_DIR = Path("/var/lib/holdfast")
"""The agent's own default."""
_WORDS: Mapping[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path (a string)",
}


@dataclass(frozen=True, slots=True)
class Site:
    """The settings of the checks, and the few keys of the agent that a run by hand obeys too."""

    settings: Settings = field(default_factory=Settings)
    nvml_library: str = ""
    nvml_deadline_s: float = 20.0
    nvml_env: dict[str, str] = field(default_factory=dict)
    disabled_checks: tuple[str, ...] = ()
    act_on: tuple[str, ...] | None = None
    observe_only: tuple[str, ...] = ()

    @property
    def acting(self) -> Lists:
        """Which checks act here: as the file says, and the controller, as its agent remembers it."""
        return acting_file.kept(self.settings.state_dir or _STATE_DIR).on_a_node(self.act_on, self.observe_only)


def read(path: Path | None) -> Site:
    """None: the defaults. Raises OSError, ValueError in one line that names file and key."""
    if path is None:
        return Site()
    with path.open("rb") as file:
        try:
            table = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not TOML: {error}") from error
    own = {key: value for key, value in table.items() if key not in _NOT_IN_THE_FILE}
    settings = _build({_RENAMED.get(key, key): value for key, value in own.items()}, Settings, str(path))
    site = _build({key: value for key, value in own.items() if key != "settings"}, Site, str(path))
    folder = path.resolve().parent
    absolute = {name: folder / value for name in _PATHS if (value := getattr(settings, name)) is not None}
    settings = replace(settings, **absolute, expected_gpus=settings.expected_gpus or None)
    return replace(site, settings=settings)


def _build(table: Mapping[str, Any], kind: type[T], where: str) -> T:
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for each in dataclasses.fields(kind):  # type: ignore[arg-type]
        if each.name in table:
            values[each.name] = _value(table[each.name], hints[each.name], f"{where}: {each.name}")
            _in_range(values[each.name], each.metadata, f"{where}: {each.name}")
    return kind(**values)


def _value(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _value(value, next(each for each in arguments if each is not type(None)), where)
    if origin is tuple:
        _expect(value, list, "a list", where)
        return tuple(_value(each, arguments[0], f"{where}[{index}]") for index, each in enumerate(value))
    if origin is dict:
        _expect(value, dict, "a table", where)
        return {key: _value(each, arguments[1], f"{where}.{key}") for key, each in value.items()}
    if dataclasses.is_dataclass(hint):
        _expect(value, dict, "a table", where)
        return _build(value, typing.cast("type[Any]", hint), where)
    return _scalar(value, hint, where)


def _scalar(value: Any, kind: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and kind is not bool:
        raise ValueError(f"{where}: expected {_WORDS[kind]}, found {value!r}")
    _expect(value, str if kind is Path else kind, _WORDS[kind], where)
    return Path(value) if kind is Path else value


def _expect(value: Any, kind: type, words: str, where: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{where}: expected {words}, found {value!r}")


def _in_range(value: Any, metadata: Mapping[str, Any], where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = metadata.get("low"), metadata.get("high")
    if not math.isfinite(value) or (low is not None and value < low) or (high is not None and value > high):
        ends = [f"at least {low:g}" if low is not None else "", f"at most {high:g}" if high is not None else ""]
        raise ValueError(f"{where}: {value} is not {' and '.join(filter(None, ends)) or 'a finite number'}")
