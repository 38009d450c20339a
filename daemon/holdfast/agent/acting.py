"""Receives the lists of acting checks from the leading controller, and keeps them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast_checks import acting, acting_file
from holdfast_checks.acting import Lists

log = logging.getLogger(__name__)

CHECKS = "checks"
"""Field of the answer to a heartbeat."""


class Acting:
    """Lists of acting checks. ``answered`` is called by the sending thread, ``lists`` by the agent's loop."""

    def __init__(
        self,
        own: tuple[tuple[str, ...] | None, tuple[str, ...]],
        state_dir: Path,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``own``: ``act_on`` and ``observe_only`` of agent.toml. ``changed`` is called when :attr:`lists` change."""
        self._own = own
        self._state_dir = state_dir
        self._given = acting_file.kept(state_dir)
        self._changed = changed

    @property
    def lists(self) -> Lists:
        """The checks that act on this node now."""
        return self._given.on_a_node(*self._own)

    def answered(self, answer: Mapping[str, Any]) -> None:
        """Process the answer to a heartbeat. An answer of a standby, or without lists, changes nothing."""
        given = acting.parsed(answer.get(CHECKS)) if answer.get("leader") is True else None
        if given is None or given == self._given:
            return
        self._given = given
        try:
            acting_file.keep(self._state_dir, given)
        except OSError as error:
            log.error(
                "event=acting_not_kept error=%r effect=after_a_restart_the_former_lists_hold_until_a_heartbeat",
                str(error),
            )
        log.info("event=acting act_on=%s observe_only=%s", ",".join(given.act_on), ",".join(given.observe_only))
        self._changed()
