"""Policy of checks on a node: which checks act, so that the node is drained for their findings, and by which thresholds. Pure.

The policy is the site's: ``[checks]`` and ``[[nodes]]`` of the controller's settings, which an agent is given with the answer to a
heartbeat when it has another version, and keeps in ``state_dir``, so that it also holds after a restart without a controller. A node's
``agent.toml`` can make a check less active: its ``observe_only`` is added to the site's, its ``disabled_checks`` to the checks that the
site has switched off, and of its threshold and the site's the milder one counts. Its ``act_on`` replaces the site's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_LONGEST = 500
"""Ids in a list: there are some ninety checks, and a site may have its own."""

ALL = "*"
"""In ``act_on``: every check."""

THRESHOLDS: Mapping[str, Callable[[float, float], float]] = {
    "gpu.nvlink_recoveries_per_min": max,
    "gpu.temperature_margin_c": min,
    "host.load_per_cpu": max,
    "host.memory_available_mib": min,
    "host.mount_deadline_s": max,
    "host.time_error_s": max,
    "host.time_offset_s": max,
    "network.busy_after_min": max,
    "network.flap_quiet_min": min,
    "network.memlock_gib": min,
    "network.silent_after_min": max,
}
"""Options of ``agent.toml`` that a controller may set, as ``TABLE.KEY``, and which of two values makes the check less active. Only numbers
are here: a controller that was taken over must not be able to name a command, a path or a user (docs/threat-model.md)."""


@dataclass(frozen=True, slots=True)
class Lists:
    """Ids of checks."""

    act_on: tuple[str, ...] = ()
    """New checks that act; ``*``: all."""
    observe_only: tuple[str, ...] = ()
    """Proven checks that only observe."""

    def on_a_node(self, act_on: Collection[str] | None, observe_only: Collection[str]) -> Lists:
        """With what the node's ``agent.toml`` says (``act_on`` None: nothing)."""
        own = self.act_on if act_on is None else tuple(act_on)
        return Lists(own, tuple(dict.fromkeys((*self.observe_only, *observe_only))))


@dataclass(frozen=True, slots=True)
class CheckPolicy:
    """What the site says of the checks of one node, or of all."""

    lists: Lists = field(default_factory=Lists)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """``TABLE.KEY`` → value, for those of :data:`THRESHOLDS` that are set."""
    off: tuple[str, ...] = ()
    """Checks that are not run."""

    def restricted(
        self,
        observe_only: Iterable[str],
        thresholds: Mapping[str, float],
        *,
        off: Iterable[str] = (),
        act_on: Collection[str] = (),
    ) -> CheckPolicy:
        """This policy and a more cautious word on top of it: a check observes, or is off, if either says so; the milder threshold counts;
        of the new checks that act only those of ``act_on`` still do (empty: all of them)."""
        lists = self.lists.on_a_node(None, tuple(observe_only))
        if act_on:
            lists = replace(lists, act_on=narrowed(lists.act_on, act_on))
        both = {name: mildest(name, (*_said(self.thresholds, name), value)) for name, value in thresholds.items()}
        return CheckPolicy(lists, {**self.thresholds, **both}, tuple(dict.fromkeys((*self.off, *off))))

    @property
    def version(self) -> str:
        """Digest of the content; the order of ids and of keys does not count."""
        said = (
            sorted(set(self.lists.act_on)),
            sorted(set(self.lists.observe_only)),
            sorted((name, float(value)) for name, value in self.thresholds.items()),
            *([sorted(set(self.off))] if self.off else []),  # without: the version of an earlier release
        )
        return hashlib.sha256(repr(said).encode()).hexdigest()[:12]

    def document(self) -> dict[str, Any]:
        """As an agent is given it."""
        return {
            "version": self.version,
            "act_on": list(self.lists.act_on),
            "observe_only": list(self.lists.observe_only),
            "thresholds": dict(self.thresholds),
            "checks_off": list(self.off),
        }


def narrowed(acting: Collection[str], most: Collection[str]) -> tuple[str, ...]:
    """Those of the acting checks that are also of ``most``; ``*``: all."""
    if ALL in acting:
        return tuple(most)
    return tuple(each for each in acting if ALL in most or each in most)


def mildest(name: str, values: Iterable[float]) -> float:
    """The value by which the check is the least active."""
    first, *others = values
    for other in others:
        first = THRESHOLDS[name](first, other)
    return first


def _said(thresholds: Mapping[str, float], name: str) -> tuple[float, ...]:
    return (thresholds[name],) if name in thresholds else ()


def flat(tables: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Tables of thresholds, as a file has them, by ``TABLE.KEY``."""
    return {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}


def parsed(given: object) -> Lists | None:
    """Read the lists that a controller or a file gives. None: they have another form."""
    if not isinstance(given, Mapping):
        return None
    act_on, observe_only = (ids(given.get(name)) for name in ("act_on", "observe_only"))
    return None if act_on is None or observe_only is None else Lists(act_on, observe_only)


def ids(given: Any) -> tuple[str, ...] | None:
    """A list of ids; None: it is something else."""
    if not isinstance(given, list) or len(given) > _LONGEST or not all(isinstance(each, str) for each in given):
        return None
    return tuple(given)
