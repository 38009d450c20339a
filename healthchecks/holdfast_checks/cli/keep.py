"""State that one run keeps for the next: samples of checks that compare, counts of those that need several, reported kernel lines, and
what was once seen in place.

A file of JSON, of which only the last survives a boot. It
is built from scalars, sequences, mappings and the frozen dataclasses of this package alone, so that
reading a file runs nothing; one that cannot be read is a first run."""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from holdfast_checks.aside import put_aside
from holdfast_checks.registry import Sample
from holdfast_checks.runner import Samples
from holdfast_checks.whole_file import write_whole

log = logging.getLogger(__name__)

_VERSION = 1
_PACKAGE = "holdfast_checks."
_TAG = "!"
RENAMED: Mapping[str, str] = {
    "holdfast_checks.checks.efa_admin:EfaAdminFacts": "holdfast_checks.checks.efa_admin:Facts",
    "holdfast_checks.checks.efa_counters:EfaCountersFacts": "holdfast_checks.checks.efa_counters:Facts",
    "holdfast_checks.checks.efa_silence:RdmaTraffic": "holdfast_checks.checks.efa_silence:Look",
    "holdfast_checks.checks.host_cpu:HostCpuFacts": "holdfast_checks.checks.host_cpu:Facts",
    "holdfast_checks.checks.host_services:HostServicesFacts": "holdfast_checks.checks.host_services:Facts",
    "holdfast_checks.checks.ib_counters:IbCountersFacts": "holdfast_checks.checks.ib_counters:Facts",
    "holdfast_checks.checks.ib_flaps:IbFlapsFacts": "holdfast_checks.checks.ib_flaps:Facts",
    "holdfast_checks.checks.net_ethernet:NetEthernetFacts": "holdfast_checks.checks.net_ethernet:Facts",
    "holdfast_checks.custom_guard:CustomResults": "holdfast_checks.custom_guard:Told",
    "holdfast_checks.link_history:LinkDown": "holdfast_checks.link_history:Down",
    "holdfast_checks.probes.imds:ImdsDocument": "holdfast_checks.probes.imds:Said",
    "holdfast_checks.probes.netdev:NetworkDevice": "holdfast_checks.probes.netdev:Link",
    "holdfast_checks.reading:NvmlReading": "holdfast_checks.reading:Reading",
    "holdfast_checks.settings:CheckSettings": "holdfast_checks.settings:Settings",
}
"""A class that was renamed → its name in the file, which is that of the releases before: a run reads what another release has kept."""
_CLASSES = {named: name for name, named in RENAMED.items()}


@dataclass(slots=True)
class KeptRuns:
    """Of the runs before in the same boot."""

    samples: Samples = field(default_factory=Samples)
    looks: dict[str, list[bool]] = field(default_factory=dict)
    """Name of a finding → whether each of the latest runs was bad, oldest first."""
    told: set[str] = field(default_factory=set)
    """Names of kernel lines that an earlier run has reported."""
    seen_right: str = ""
    """A dump of :class:`holdfast_checks.seen_right.SeenRight`."""


def load(path: Path, boot_id: str) -> KeptRuns:
    """An empty one for a file that is not there, or of another make; of another boot, what was once seen in its place."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["version"] != _VERSION:
            raise ValueError(f"version {str(raw['version'])[:20]!r}, not {_VERSION}")
        seen_right = str(raw.get("seen_right", ""))
        if raw["boot_id"] != boot_id:
            return KeptRuns(seen_right=seen_right)
        kept = KeptRuns(looks=dict(raw["looks"]), told=set(raw["told"]), seen_right=seen_right)
        for check, sample in raw["samples"].items():
            _load_sample(kept.samples, check, sample)
    except FileNotFoundError:
        return KeptRuns()
    except OSError as error:
        log.warning("event=samples_unreadable path=%s error=%r effect=first_run", path, error)
        return KeptRuns()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        put_aside(path, repr(error), "this run counts as the first", "remove the file that was put aside")
        return KeptRuns()
    return kept


def _load_sample(samples: Samples, check: str, raw: Mapping[str, Any]) -> None:
    try:
        samples.change(check, Sample(_decoded(raw["facts"]), float(raw["monotonic_s"])))
    except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        log.debug("event=sample_unreadable check=%s error=%r", check, error)


def save(path: Path, boot_id: str, kept: KeptRuns, checks: Iterable[str]) -> None:
    """Write it for its owner alone, so that a reader sees the old or the new one. Raises OSError."""
    samples: dict[str, Any] = {}
    for check in checks:
        sample = kept.samples.before(check)
        if sample is not None:
            try:
                samples[check] = {"facts": _encoded(sample.facts), "monotonic_s": sample.monotonic_s}
            except TypeError as error:
                log.debug("event=sample_not_kept check=%s error=%s", check, error)
    whole = {
        "version": _VERSION,
        "boot_id": boot_id,
        "samples": samples,
        "looks": kept.looks,
        "told": sorted(kept.told),
        "seen_right": kept.seen_right,
    }
    write_whole(path, json.dumps(whole), 0o600)


def _encoded(value: Any) -> Any:
    """Raises TypeError for what cannot be kept."""
    if isinstance(value, Enum):
        return {_TAG: _name(type(value)), "v": value.value}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Path):
        return {_TAG: "path", "v": str(value)}
    if isinstance(value, tuple):
        return [_encoded(each) for each in value]
    if isinstance(value, list | set | frozenset):
        kind = "list" if isinstance(value, list) else "set"
        return {_TAG: kind, "v": [_encoded(each) for each in value]}
    if isinstance(value, Mapping):
        return {_TAG: "map", "v": [[_encoded(key), _encoded(each)] for key, each in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: _encoded(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return {_TAG: _name(type(value)), "v": fields}
    raise TypeError(f"a {type(value).__name__} is not kept")


def _name(kind: type[Any]) -> str:
    if not kind.__module__.startswith(_PACKAGE):
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} is not kept")
    name = f"{kind.__module__}:{kind.__qualname__}"
    return RENAMED.get(name, name)


def _decoded(raw: Any) -> Any:
    if isinstance(raw, list):
        return tuple(_decoded(each) for each in raw)
    if not isinstance(raw, dict):
        return raw
    kind, value = raw[_TAG], raw["v"]
    match kind:
        case "path":
            return Path(value)
        case "list":
            return [_decoded(each) for each in value]
        case "set":
            return frozenset(_decoded(each) for each in value)
        case "map":
            return {_decoded(key): _decoded(each) for key, each in value}
    return _built(_class(kind), value)


def _built(kind: type[Any], value: Any) -> Any:
    if issubclass(kind, Enum):
        return kind(value)
    return kind(**{name: _decoded(each) for name, each in value.items()})


def _class(name: str) -> type[Any]:
    """A dataclass or an enumeration of this package, and nothing else. Raises TypeError."""
    module, _, path = _CLASSES.get(name, name).partition(":")
    if not module.startswith(_PACKAGE):
        raise TypeError(f"{name} is not of this package")
    found: Any = getattr(importlib.import_module(module), path, None)
    if not isinstance(found, type) or found.__module__ != module:
        raise TypeError(f"{name} is no class of this package")
    if not dataclasses.is_dataclass(found) and not issubclass(found, Enum):
        raise TypeError(f"{name} is no noun of this package")
    return found
