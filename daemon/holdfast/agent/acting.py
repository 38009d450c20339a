"""Receives the policy of checks from the leading controller, and keeps it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast_checks import acting_file
from holdfast_checks.acting import Lists
from holdfast_checks.acting_file import given_policy
from holdfast_checks.settings.schema import WrongSetting

log = logging.getLogger(__name__)

CHECKS = "checks"
"""Field of the answer to a heartbeat. Absent: the agent has the policy already, or the controller does not know the node yet."""
_LONGEST = 300


class Acting:
    """Policy of checks on this node. ``answered`` is called by the sending thread, the rest by the agent's loop."""

    def __init__(
        self,
        own: tuple[tuple[str, ...] | None, tuple[str, ...]],
        state_dir: Path,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``own``: ``act_on`` and ``observe_only`` of agent.toml. ``changed`` is called when the policy changes."""
        self._own = own
        self._state_dir = state_dir
        self._given = acting_file.kept(state_dir)
        self._refused = ""
        self._changed = changed

    @property
    def lists(self) -> Lists:
        """The checks that act on this node now."""
        return self._given.policy.lists.on_a_node(*self._own)

    @property
    def thresholds(self) -> Mapping[str, float]:
        """The site's thresholds, before the node's own settings."""
        return self._given.policy.thresholds

    @property
    def off(self) -> frozenset[str]:
        """Checks that the site has switched off here, in addition to ``disabled_checks`` of agent.toml."""
        return frozenset(self._given.policy.off)

    @property
    def version(self) -> str:
        """Version of the policy that this node goes by; empty: it has none, or one of an older controller."""
        return self._given.version

    @property
    def refused(self) -> str:
        """Why the newest policy was refused, so that the one before it still holds; empty: it was not."""
        return self._refused

    def answered(self, answer: Mapping[str, Any]) -> None:
        """Process the answer to a heartbeat. An answer of a standby, or without a policy, changes nothing; a policy that is wrong anywhere
        is refused as a whole."""
        if answer.get("leader") is not True or answer.get(CHECKS) is None:
            return
        try:
            given = given_policy(answer[CHECKS])
        except WrongSetting as error:
            self._refuse(" ".join(str(error).split())[:_LONGEST])
            return
        self._refused = ""
        if given == self._given:
            return
        self._given = given
        try:
            acting_file.keep(self._state_dir, given)
        except OSError as error:
            log.error(
                "event=acting_not_kept error=%r effect=after_a_restart_the_former_policy_holds_until_a_heartbeat",
                str(error),
            )
        log.info(
            "event=acting version=%s act_on=%s observe_only=%s checks_off=%s thresholds=%s",
            given.version,
            ",".join(given.policy.lists.act_on),
            ",".join(given.policy.lists.observe_only),
            ",".join(given.policy.off),
            ",".join(f"{name}={value:g}" for name, value in given.policy.thresholds.items()),
        )
        self._changed()

    def _refuse(self, why: str) -> None:
        if why != self._refused:
            log.error("event=acting_refused error=%r effect=the_former_policy_holds", why)
        self._refused = why
