"""Which checks act on this node: their findings count in full, so that the node is drained for them. The others observe. Pure.

The lists are the site's: ``[checks]`` of the controller's settings, which every agent is given with the answer to its heartbeats and
keeps in ``state_dir``, so that they also hold after a restart without a controller. A node whose ``agent.toml`` has such lists
goes by them: its ``act_on`` replaces the site's, its ``observe_only`` is added to the site's, as either makes fewer checks act."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

_LONGEST = 500
"""Ids in a list: there are some ninety checks, and a site may have its own."""


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


def parsed(given: object) -> Lists | None:
    """Read what a controller or a file gives. None: it has another form, and says nothing."""
    if not isinstance(given, Mapping):
        return None
    act_on, observe_only = (_ids(given.get(name)) for name in ("act_on", "observe_only"))
    return None if act_on is None or observe_only is None else Lists(act_on, observe_only)


def _ids(given: Any) -> tuple[str, ...] | None:
    if not isinstance(given, list) or len(given) > _LONGEST or not all(isinstance(each, str) for each in given):
        return None
    return tuple(given)
