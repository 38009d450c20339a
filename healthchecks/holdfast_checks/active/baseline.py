"""Baseline of active tests: figures of good nodes by instance type, and the comparison of a new figure with them.

The file is JSON: ``{"version": 1, "types": {"p5.48xlarge": {"copy.h2d": {"unit": "GB/s", "values": [52.1, …]}}}}``; a value is the
median of one run over the GPUs of one node. Copy it to the other nodes of the type, or point ``active.baseline`` at one on every
node."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast_checks.active.report import ActiveReport, Figure
from holdfast_checks.settings import CheckSettings
from holdfast_checks.whole_file import write_whole

FILE_NAME = "baseline.json"
FEWEST_RUNS = 3
"""The median of fewer runs says little, and nothing about the normal spread."""
MOST_RUNS = 64
DEGRADED_BELOW = 0.9
FAILED_BELOW = 0.7
_NORMAL_SPREADS = 4.0
"""A figure within this many median deviations of the median is as good as the learned ones."""
_VERSION = 1
ANY_TYPE = "*"


class BadBaseline(Exception):
    """The file is no baseline; nothing is compared."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a figure is held against."""

    value: float
    unit: str
    source: str
    """``learned`` with the number of runs, or where a shipped floor comes from."""
    spread: float = 0.0
    """Median absolute deviation of the runs; 0 for a shipped floor."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Runs of one instance type: name of the figure (``copy.h2d``) → its values, oldest first."""

    instance_type: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def reference(self, name: str, *, floors: bool = True) -> Reference | None:
        """Learned if there were runs enough, else (with ``floors``) the floor shipped for the type."""
        values = self.values.get(name, ())
        if len(values) >= FEWEST_RUNS:
            middle = statistics.median(values)
            spread = statistics.median(abs(value - middle) for value in values)
            return Reference(middle, self.units.get(name, ""), f"learned from {len(values)} runs", spread)
        for kind in (self.instance_type, ANY_TYPE) if floors else ():
            floor = _floors().get(kind, {}).get(name)
            if floor is not None:
                return Reference(float(floor[0]), str(floor[1]), str(floor[2]))
        return None

    def with_run(self, reports: Iterable[ActiveReport]) -> Baseline:
        """With the figures of one run on a good node. A report of corruption or trouble teaches nothing."""
        units, values = dict(self.units), dict(self.values)
        for report in reports:
            if report.corruptions or report.troubles:
                continue
            for name, own in by_name(report).items():
                units[name] = own[0].unit
                run = statistics.median(figure.value for figure in own)
                values[name] = (*values.get(name, ()), run)[-MOST_RUNS:]
        return Baseline(self.instance_type, units, values)


def by_name(report: ActiveReport) -> dict[str, list[Figure]]:
    """The report's rates (what has no ``/s`` in its unit is not compared) by their names in the baseline."""
    found: dict[str, list[Figure]] = {}
    for figure in report.figures:
        if figure.unit.endswith("/s"):
            found.setdefault(f"{report.test}.{figure.name}", []).append(figure)
    return found


def share(figure: float, reference: Reference) -> float:
    """Of the reference; 1.0 for whatever is as good as what was normal when it was learned."""
    if reference.value <= 0:
        return 1.0
    if figure >= reference.value - _NORMAL_SPREADS * reference.spread:
        return max(1.0, figure / reference.value)
    return figure / reference.value


def path_of(settings: CheckSettings) -> Path | None:
    """Where this node's baseline is; None: nowhere."""
    if settings.active.baseline is not None:
        return settings.active.baseline
    return settings.state_dir / FILE_NAME if settings.state_dir is not None else None


def load(settings: CheckSettings) -> Baseline:
    """The baseline of this node's type; an empty one where there is no file. Raises BadBaseline, OSError."""
    path = path_of(settings)
    types = _read(path).get(settings.instance_type, {}) if path is not None else {}
    try:
        return Baseline(
            settings.instance_type,
            {name: str(row["unit"]) for name, row in types.items()},
            {name: tuple(float(value) for value in row["values"]) for name, row in types.items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBaseline(f"{path}: {error!r}") from error


def save(settings: CheckSettings, baseline: Baseline) -> Path:
    """Write it atomically, next to those of other types. Raises BadBaseline where there is nowhere to write, OSError."""
    path = path_of(settings)
    if path is None:
        raise BadBaseline("no folder for the baseline: set state_dir or active.baseline")
    types = _read(path)
    types[baseline.instance_type] = {
        name: {"unit": baseline.units.get(name, ""), "values": list(values)}
        for name, values in sorted(baseline.values.items())
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({"version": _VERSION, "types": types}, indent=1) + "\n")
    return path


def _read(path: Path) -> dict[str, Any]:
    try:
        root = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise BadBaseline(f"{path}: not JSON: {error}") from error
    if not isinstance(root, dict) or root.get("version") != _VERSION or not isinstance(root.get("types"), dict):
        raise BadBaseline(f"{path}: no baseline of version {_VERSION}")
    types: dict[str, Any] = root["types"]
    return types


@cache
def _floors() -> dict[str, dict[str, list[Any]]]:
    text = files("holdfast_checks.catalog").joinpath("floors.json").read_text(encoding="utf-8")
    floors: dict[str, dict[str, list[Any]]] = json.loads(text)
    return floors
