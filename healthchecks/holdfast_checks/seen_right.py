"""Checks that have once found what they check in its place on this node. Pure.

A check that takes an absence for a fault cannot distinguish a broken node from a wrong place: another release writes no pid file, a site
moved a socket, a setting has a typo that a roll-out carries to every node at once. One OK on this node, of this component and at this
place, is the proof that it looks in the right one; until then its findings are only recorded."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_checks.registry import Check
from holdfast_checks.result import Result, Verdict
from holdfast_checks.settings import CheckSettings

log = logging.getLogger(__name__)

_MOST = 1000
"""Proofs that are kept; the oldest go first. Mounts that come and go would otherwise fill the agent's memory."""

SeenPlace = tuple[str, str, str]
"""Check, component, place."""


@dataclass(slots=True)
class SeenRight:
    """The proofs of one node. Filled from what was kept, and by :meth:`learn`."""

    places: Mapping[str, str] = field(default_factory=dict)
    """Check → where it looks. A check that is not here judges no absence, and needs no proof."""
    _proofs: dict[SeenPlace, None] = field(default_factory=dict)

    def learn(self, results: Iterable[Result]) -> bool:
        """Take in what a check found; whether that proves anything new."""
        fresh = {proof: None for result in results if result.verdict is Verdict.OK and (proof := self._proof(result))}
        if self._proofs.keys() >= fresh.keys():
            return False
        self._proofs = dict(list({**self._proofs, **fresh}.items())[-_MOST:])
        return True

    def unproven(self, result: Result) -> str:
        """Where the result's check looked, if it has never found the component there on this node; empty: it needs no proof, or has one."""
        proof = self._proof(result)
        return "" if proof is None or proof in self._proofs else proof[2]

    def dump(self) -> str:
        """For :meth:`load`, after a restart."""
        return json.dumps([list(proof) for proof in self._proofs])

    def load(self, text: str | None) -> None:
        """Take up an earlier :meth:`dump`. One that cannot be read proves nothing."""
        try:
            kept = [(str(check), str(component), str(place)) for check, component, place in json.loads(text or "[]")]
        except (ValueError, TypeError, RecursionError) as error:
            do = "nothing: each check proves itself again with its next OK"
            log.warning(
                "event=seen_right_unreadable reason=%r effect='findings of absence are only recorded' do=%r",
                str(error)[:200],
                do,
            )
            return
        self._proofs = dict.fromkeys(kept)

    def _proof(self, result: Result) -> SeenPlace | None:
        place = self.places.get(result.check)
        return None if place is None else (result.check, result.component, place)


def places_of(checks: Mapping[str, Check], settings: CheckSettings) -> dict[str, str]:
    """Where each check looks that takes an absence for a fault."""
    return {name: check.place(settings) for name, check in checks.items() if check.place is not None}


def recorded_only(place: str) -> str:
    """What a finding says of itself while it is not acted on."""
    return f"only recorded: never yet seen right on this node ({place})"
