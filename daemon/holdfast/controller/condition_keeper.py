"""Keeps the record of conditions that belong to no incident. The actor reads it to announce their ends; a new leader continues with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from holdfast import unexpected
from holdfast.condition_note import CONDITIONS, read_conditions, write_conditions
from holdfast.decisions.notices import conditions
from holdfast.model.book import World
from holdfast.model.conditions import Conditions
from holdfast.ports import Lease, Store

LOOK_S = 5.0
"""How often the world is searched for them."""
PART = "conditions"
"""Part of this process (:mod:`holdfast.unexpected`)."""


@dataclass
class ConditionKeeper:
    """For one thread at a time."""

    store: Store
    _fence: int | None = None
    """Lease under which the record was read; another leader may have written it since an earlier one."""
    _text: str | None = None
    _known: Conditions = field(default_factory=Conditions)
    _look_at_s: float = 0.0

    def follow(self, world: World, lease: Lease | None, now_s: float) -> World:
        """The world with the conditions of it. What begins is in the store before anything is decided about it.

        Raises Unavailable, LeaderFencedOff, Stale."""
        if lease is None:
            return world
        if self._fence != lease.fence:
            self._text = self.store.note(CONDITIONS)
            self._known, self._fence = read_conditions(self._text) or Conditions(), lease.fence
            self._look_at_s = now_s
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_S
            self._note(self._followed(world), lease.fence)
        return replace(world, conditions=self._known)

    def _followed(self, world: World) -> Conditions:
        try:
            found = conditions.follow(self._known, conditions.seen_in(world), world.now)
        except Exception as error:  # noqa: BLE001 - of one input; the turn itself sets it aside
            unexpected.failed(PART, error)
            return self._known
        unexpected.passed(PART)
        return found

    def _note(self, found: Conditions, fence: int) -> None:
        if found == self._known and self._text is not None:
            return
        text = write_conditions(found)
        try:
            self.store.record_once(CONDITIONS, self._text, text, (), fence)
        except Exception:
            self._fence = None
            raise
        self._text, self._known = text, found
